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
from functools import partial
from typing import Any, NoReturn

import torch
from attrs import evolve, frozen
from torch import Tensor

from ....algorithms.algorithm import Metrics
from ....algorithms.language.batch import Reading, teaches
from ....algorithms.language.learner import LanguageAlgorithm, LanguageState
from ....algorithms.language.loss import Sums
from ....algorithms.language.packing import SequenceBatch, SequenceLayout
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


@frozen(kw_only=True, eq=False)
class _ShardedInputs:
    """The data that the functions of a learner on ranks share."""

    algorithm: LanguageAlgorithm  # computes with the module's own weights
    space: Workspace
    deal: Deal


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
    parts = _ShardedInputs(algorithm=algorithm, space=space, deal=chosen)
    own = evolve(
        algorithm,
        init=lambda params: spread_state(ranks, algorithm.init(params)),
        read=partial(_read, parts),
        loss=_refuse_loss,
        gradient=partial(_gradient, parts),
        distance=partial(_distance, parts),
        apply=partial(_apply, parts),
    )
    return evolve(own, update=partial(_update, own))


def _refuse_loss(*arguments: Any) -> NoReturn:
    remedy = "call gradient, whose sums hold the loss of the whole"
    raise ChoiceError(message("loss on ranks", got="called", wanted="gradient", remedy=remedy))


def _own(parts: _ShardedInputs, lengths: Tensor) -> tuple[SequenceBatch, ...]:
    """Return the parts of the batch for this process."""
    return parts.deal([int(length) for length in lengths])[parts.space.ranks.rank]


def _gradient(
    parts: _ShardedInputs,
    params: LearnerParams,
    batch: TokenBatch,
    counts: Counts,
    layout: SequenceLayout | Absent = (),
) -> tuple[LearnerParams, Sums]:
    del layout
    space = parts.space
    same_on_all("gradient: the batch", space.ranks, (batch, counts), OTHERS)
    load_parameters(space, params)
    own, found = _own(parts, batch.length), []
    for number, part in enumerate(own, 1):
        given = (*piece(batch, part), counts)

        def work(given: tuple[TokenBatch, SequenceLayout, Counts] = given) -> tuple[Tensor, Sums]:
            some, layout, whole_counts = given
            return parts.algorithm.loss(inside(space), some, whole_counts, layout)

        loss, sums = within(space, work)
        descend(space, loss, last=number == len(own))
        found.append(tree_map(lambda leaf: leaf.detach().double(), sums))
    rows = gather_tensor(space.ranks, as_row(united(found)))
    return slopes(space, params), united([from_row(row) for row in rows])


def _read(
    parts: _ShardedInputs, state: LanguageState, transcripts: Transcript, layout: SequenceLayout | Absent = ()
) -> Reading:
    del layout
    space = parts.space
    same_on_all("read: the transcripts", space.ranks, transcripts, OTHERS)
    found: dict[str, Tensor] = {}
    own = tuple(name for name in parts.algorithm.reads if name != "reference_log_prob")
    if own:
        found |= _read_with(parts, state.params, state, transcripts, own)
    if "reference_log_prob" in parts.algorithm.reads:
        stand = replace(state.params, policy=state.reference)
        found |= _read_with(parts, stand, state, transcripts, ("reference_log_prob",))
    return Reading(**found)


def _read_with(
    parts: _ShardedInputs, params: LearnerParams, state: LanguageState, transcripts: Transcript, names: tuple[str, ...]
) -> dict[str, Tensor]:
    """Return these fields of every transcript under these parameters, by name, on all processes."""
    space = parts.space
    load_parameters(space, params)
    mine, read = _own(parts, transcripts.length), []
    for part in mine:
        some, own = unread_piece(transcripts, part)

        def work(some: Transcript = some, own: SequenceLayout = own) -> Reading:
            return parts.algorithm.read(replace(state, params=inside(space)), some, own)

        with torch.no_grad():
            told = within(space, work)
        read.append({name: getattr(told, name) for name in names})
    number, width = transcripts.token.shape
    columns: dict[str, Tensor] = in_order(read, mine, number, width)
    return {name: summed(space.ranks, column) for name, column in columns.items()}


def _distance(
    parts: _ShardedInputs, params: LearnerParams, batch: TokenBatch, layout: SequenceLayout | Absent = ()
) -> Tensor:
    del layout
    space = parts.space
    load_parameters(space, params)
    found = []
    for part in _own(parts, batch.length):
        some, own = piece(batch, part)

        def work(some: TokenBatch = some, own: SequenceLayout = own) -> Tensor:
            return parts.algorithm.distance(inside(space), some, own)

        with torch.no_grad():
            found.append(within(space, work))
    return torch.stack(gather_tensor(space.ranks, torch.stack(found).amax())).amax()


def _apply(
    parts: _ShardedInputs, state: LanguageState, gradients: LearnerParams, sums: Sums
) -> tuple[LanguageState, Metrics]:
    after, figures = parts.algorithm.apply(state, gradients, sums)
    return after, gather_shards(dict(figures))


def _update(
    algorithm: LanguageAlgorithm, state: LanguageState, transcripts: Transcript
) -> tuple[LanguageState, Metrics]:
    reading = algorithm.read(state, transcripts) if algorithm.reads else Reading()
    batch, state, figures = algorithm.prepare(state, transcripts, reading)
    gradients, sums = algorithm.gradient(state.params, batch, algorithm.counts(batch))
    after, more = algorithm.apply(state, gradients, sums)
    return (after if bool(teaches(batch)) else state), {**figures, **more}
