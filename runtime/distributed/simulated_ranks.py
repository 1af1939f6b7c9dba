"""A learner on several simulated ranks in one process: their parts are computed one after the other, and reduced.

    algorithm = simulated_ranks(learner(model, adamw(1e-3), grpo()), by_tokens(2048, ranks=4))

Its updates are those of the learner itself, up to the order of sums, which is the law of every deal. For tests of a custom
deal or objective without starting processes.
"""

from functools import partial, reduce
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...algorithms.algorithm import Metrics
from ...algorithms.language.batch import Reading, teaches
from ...algorithms.language.learner import LanguageAlgorithm, LanguageState
from ...algorithms.language.loss import Sums
from ...algorithms.language.packing import Layout, SequenceBatch, SequenceLayout
from ...algorithms.language.scoring import LearnerParams
from ...core.language.types import Counts, TokenBatch, Transcript
from ...core.record import select
from ...core.tree import tree_map
from .partition import Deal, piece, unread_piece
from .reduce import in_order, united


def simulated_ranks(algorithm: LanguageAlgorithm, deal: Deal) -> LanguageAlgorithm:
    """Return the algorithm with gradients, readings and distances reduced from those of every part of a deal.

    The deal is computed for each batch, from the lengths of its sequences; layouts that are passed are ignored.

    >>> from ...algorithms.language.learner import learner
    >>> from ...algorithms.language.objectives import grpo
    >>> from ...core.bigram import bigram
    >>> from ...core.optim.optimizers import sgd
    >>> from .partition import by_tokens
    >>> simulated_ranks(learner(bigram(3), sgd(0.1), grpo()), by_tokens(8, ranks=2)).reads
    ()
    """
    own = {"reads": algorithm.reads, "support": algorithm.support, "metrics": algorithm.metrics}
    return SimulatedRanks(algorithm=algorithm, deal=deal, **own)  # type: ignore[arg-type]


@frozen(kw_only=True)
class SimulatedRanks:
    """A `LanguageAlgorithm` whose work on the model is that of the parts of a deal, one after the other."""

    algorithm: LanguageAlgorithm
    deal: Deal
    reads: tuple[str, ...]
    support: str
    metrics: tuple[str, ...]

    def init(self, policy: Any) -> LanguageState:
        """Return the algorithm's own state."""
        return self.algorithm.init(policy)

    def read(self, state: LanguageState, transcript: Transcript, layout: Layout = ()) -> Reading:
        """Return the readings of all parts, in the order of the rows."""
        parts = self._parts(transcript.length)
        found = [self.algorithm.read(state, *unread_piece(transcript, part)) for part in parts]
        whole: Reading = in_order(found, parts, *transcript.token.shape)
        return whole

    def prepare(
        self, state: LanguageState, transcript: Transcript, reading: Reading
    ) -> tuple[TokenBatch, LanguageState, Metrics]:
        """Return the algorithm's own batch: groups are compared whole."""
        return self.algorithm.prepare(state, transcript, reading)

    def counts(self, batch: TokenBatch) -> Counts:
        """Return the algorithm's own denominators."""
        return self.algorithm.counts(batch)

    def loss(self, params: LearnerParams, part: TokenBatch, whole: Counts, layout: Layout = ()) -> tuple[Tensor, Sums]:
        """Return the sum of the losses of all parts."""
        found = [self.algorithm.loss(params, some, whole, own) for some, own in self._pieces(part)]
        return reduce(torch.add, [loss for loss, _ in found]), united([sums for _, sums in found])

    def gradient(
        self, params: LearnerParams, part: TokenBatch, whole: Counts, layout: Layout = ()
    ) -> tuple[LearnerParams, Sums]:
        """Return the sum of the gradients of all parts."""
        found = [self.algorithm.gradient(params, some, whole, own) for some, own in self._pieces(part)]
        gradients: LearnerParams = reduce(partial(tree_map, torch.add), [gradient for gradient, _ in found])
        return gradients, united([sums for _, sums in found])

    def distance(self, params: LearnerParams, part: TokenBatch, layout: Layout = ()) -> Tensor:
        """Return the largest distance of all parts."""
        return torch.stack([self.algorithm.distance(params, some, own) for some, own in self._pieces(part)]).amax()

    def apply(self, state: LanguageState, gradients: LearnerParams, sums: Sums) -> tuple[LanguageState, Metrics]:
        """Return the algorithm's own step."""
        return self.algorithm.apply(state, gradients, sums)

    def update(self, state: LanguageState, transcript: Transcript) -> tuple[LanguageState, Metrics]:
        """Return the state after one update, and the metrics."""
        reading = self.read(state, transcript) if self.reads else Reading()
        batch, state, figures = self.prepare(state, transcript, reading)
        gradients, sums = self.gradient(state.params, batch, self.counts(batch))
        after, more = self.apply(state, gradients, sums)
        return select(teaches(batch), after, state), {**figures, **more}

    def _parts(self, lengths: Tensor) -> list[SequenceBatch]:
        """Return the parts of all processes, one process after the other."""
        return [part for own in self.deal([int(length) for length in lengths]) for part in own]

    def _pieces(self, batch: TokenBatch) -> list[tuple[TokenBatch, SequenceLayout]]:
        return [piece(batch, part) for part in self._parts(batch.length)]
