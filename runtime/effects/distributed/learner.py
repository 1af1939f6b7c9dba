"""A learner of transcripts on several processes: the same algorithm, whose gradients all of them compute together.

    with joined() as ranks:
        algorithm = ranked_learner(lambda model: learner(model, adamw(1e-3), grpo()), module, ranks, budget=16_384)
        train = language_trainer(algorithm, budget=ranks.size * 16_384)
        state = algorithm.init(params)
        learned = train(state, shared(ranks, transcripts))

Every process runs this same program on the same whole batch, which costs little compared to a model: advantages, counts and
metrics are those of the whole batch. Only the model's work is partitioned, and the state is sharded. The result is that of one
process for the batch, up to the order of sums, whatever the number of processes and the assignment of sequences to them.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from attrs import frozen
from torch import Tensor

from ....algorithms.algorithm import Metrics
from ....algorithms.language.batch import Reading, teaches
from ....algorithms.language.learner import LanguageAlgorithm, LanguageState
from ....algorithms.language.loss import Sums
from ....algorithms.language.packing import Layout, SequenceBatch, SequenceLayout
from ....algorithms.language.scoring import LearnerParams
from ....core.causal import CausalModel
from ....core.errors import ChoiceError, message
from ....core.language.types import Counts, TokenBatch, Transcript
from ....core.record import replace
from ....core.tree import tree_map
from ...distributed.partition import Deal, by_tokens, piece, unread_piece
from ...distributed.reduce import as_row, from_row, in_order, united
from .fsdp_module import Workspace, descend, inside, load_parameters, sharded_module, slopes, within, workspace
from .process_group import ProcessGroup, gather_tensor, same_on_all, summed
from .shard import gather_shards, spread_state

Absent = tuple[()]
OTHERS = "give all ranks one batch and one state, with `shared` say"


def ranked_learner(
    make: Callable[[CausalModel], LanguageAlgorithm],
    module: Any,
    ranks: ProcessGroup,
    *,
    budget: int = 16_384,
    packed: int | Absent = (),
    deal: Deal | Absent = (),
    precision: torch.dtype | Absent = (),
    reduction: torch.dtype | Absent = (),
) -> LanguageAlgorithm:
    """Return the algorithm that `make` returns for a model, computed by all processes together on a Hugging Face `module`.

    Its state is sharded, see `spread_state`; `init` takes whole parameters, the same on all processes, or shards. The module's
    own values are not read, and it is not modified. `budget` is the largest number of tokens, padding included, that go through
    the model of one process at once, `packed` the capacity of rows into which several sequences are packed; a `deal` replaces
    both. `precision` is the dtype in which the model computes, if it is not its parameters' own. `reduction` is the dtype in
    which gradients of parts are added up, see `fsdp_module`: with float64, and `by_batches` as the deal, the result does not
    depend on the number of processes beyond the rounding of norms. Metrics are always added in float64. All functions must be
    called on all processes alike. They raise RankError if a process is gone, StructureError if processes hold different
    batches; `loss` is refused, since no process has the loss of the whole batch. Raises: ChoiceError, StructureError.
    """
    policy, model = sharded_module(module)
    algorithm = make(model)
    critic = "values" in algorithm.reads
    space = workspace(policy, ranks, width=model.width, critic=critic, precision=precision, reduction=reduction)
    chosen = by_tokens(budget, ranks=ranks.size, packed=packed) if isinstance(deal, tuple) else deal
    own = {"reads": algorithm.reads, "support": algorithm.support, "metrics": algorithm.metrics}
    return RankedLearner(algorithm=algorithm, space=space, deal=chosen, **own)  # type: ignore[arg-type]


@frozen(kw_only=True, eq=False)
class RankedLearner:
    """A `LanguageAlgorithm` whose work on the model all processes share."""

    algorithm: LanguageAlgorithm  # computes with the module's own weights
    space: Workspace
    deal: Deal
    reads: tuple[str, ...]
    support: str
    metrics: tuple[str, ...]

    def init(self, policy: Any) -> LanguageState:
        """Return this process's shards of the algorithm's state."""
        return spread_state(self.space.ranks, self.algorithm.init(policy))

    def read(self, state: LanguageState, transcript: Transcript, layout: Layout = ()) -> Reading:
        """Return the readings of all transcripts, on all processes."""
        same_on_all("read: the transcripts", self.space.ranks, transcript, OTHERS)
        found: dict[str, Tensor] = {}
        own = tuple(name for name in self.reads if name != "reference_log_prob")
        if own:
            found |= self._read_with(state.params, state, transcript, own)
        if "reference_log_prob" in self.reads:
            stand = replace(state.params, policy=state.reference)
            found |= self._read_with(stand, state, transcript, ("reference_log_prob",))
        return Reading(**found)

    def _read_with(
        self, params: LearnerParams, state: LanguageState, transcripts: Transcript, names: tuple[str, ...]
    ) -> dict[str, Tensor]:
        """Return these fields of every transcript under these parameters, by name, on all processes."""
        space = self.space
        load_parameters(space, params)
        mine, read = self._own(transcripts.length), []
        for part in mine:
            some, own = unread_piece(transcripts, part)

            def work(some: Transcript = some, own: SequenceLayout = own) -> Reading:
                return self.algorithm.read(replace(state, params=inside(space)), some, own)

            with torch.no_grad():
                told = within(space, work)
            read.append({name: getattr(told, name) for name in names})
        number, width = transcripts.token.shape
        columns: dict[str, Tensor] = in_order(read, mine, number, width)
        return {name: summed(space.ranks, column) for name, column in columns.items()}

    def prepare(
        self, state: LanguageState, transcript: Transcript, reading: Reading
    ) -> tuple[TokenBatch, LanguageState, Metrics]:
        """Return the algorithm's own batch: groups are compared whole."""
        return self.algorithm.prepare(state, transcript, reading)

    def counts(self, batch: TokenBatch) -> Counts:
        """Return the algorithm's own denominators."""
        return self.algorithm.counts(batch)

    def loss(self, params: LearnerParams, part: TokenBatch, whole: Counts, layout: Layout = ()) -> NoReturn:
        """Raise ChoiceError: no process has the loss of the whole batch."""
        remedy = "call gradient, whose sums hold the loss of the whole"
        raise ChoiceError(message("loss on ranks", got="called", wanted="gradient", remedy=remedy))

    def gradient(
        self, params: LearnerParams, part: TokenBatch, whole: Counts, layout: Layout = ()
    ) -> tuple[LearnerParams, Sums]:
        """Return this process's shards of the gradient, and the sums of all processes."""
        space = self.space
        same_on_all("gradient: the batch", space.ranks, (part, whole), OTHERS)
        load_parameters(space, params)
        own, found = self._own(part.length), []
        for number, mine in enumerate(own, 1):
            given = (*piece(part, mine), whole)

            def work(given: tuple[TokenBatch, SequenceLayout, Counts] = given) -> tuple[Tensor, Sums]:
                some, layout, whole_counts = given
                return self.algorithm.loss(inside(space), some, whole_counts, layout)

            loss, sums = within(space, work)
            descend(space, loss, last=number == len(own))
            found.append(tree_map(lambda leaf: leaf.detach().double(), sums))
        rows = gather_tensor(space.ranks, as_row(united(found)))
        return slopes(space, params), united([from_row(row) for row in rows])

    def distance(self, params: LearnerParams, part: TokenBatch, layout: Layout = ()) -> Tensor:
        """Return the largest distance of all processes."""
        space = self.space
        load_parameters(space, params)
        found = []
        for mine in self._own(part.length):
            some, own = piece(part, mine)

            def work(some: TokenBatch = some, own: SequenceLayout = own) -> Tensor:
                return self.algorithm.distance(inside(space), some, own)

            with torch.no_grad():
                found.append(within(space, work))
        return torch.stack(gather_tensor(space.ranks, torch.stack(found).amax())).amax()

    def apply(self, state: LanguageState, gradients: LearnerParams, sums: Sums) -> tuple[LanguageState, Metrics]:
        """Return the algorithm's own step on shards, and whole metrics."""
        after, figures = self.algorithm.apply(state, gradients, sums)
        return after, gather_shards(dict(figures))

    def update(self, state: LanguageState, transcript: Transcript) -> tuple[LanguageState, Metrics]:
        """Return the state after one update, and the metrics."""
        reading = self.read(state, transcript) if self.reads else Reading()
        batch, state, figures = self.prepare(state, transcript, reading)
        gradients, sums = self.gradient(state.params, batch, self.counts(batch))
        after, more = self.apply(state, gradients, sums)
        return (after if bool(teaches(batch)) else state), {**figures, **more}

    def _own(self, lengths: Tensor) -> tuple[SequenceBatch, ...]:
        """Return the parts of the batch for this process."""
        return self.deal([int(length) for length in lengths])[self.space.ranks.rank]
