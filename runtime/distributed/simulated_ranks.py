"""A learner on several simulated ranks in one process: their parts are computed one after the other, and reduced.

    algorithm = simulated_ranks(learner(model, adamw(1e-3), grpo()), by_tokens(2048, ranks=4))

Its updates are those of the learner itself, up to the order of sums, which is the law of every deal. For tests of a custom
deal or objective without starting processes.
"""

from functools import partial, reduce

import torch
from attrs import evolve
from torch import Tensor

from ...algorithms.algorithm import Metrics
from ...algorithms.language.batch import Reading, teaches
from ...algorithms.language.learner import LanguageAlgorithm, LanguageState
from ...algorithms.language.loss import Sums
from ...algorithms.language.packing import SequenceBatch, SequenceLayout
from ...algorithms.language.scoring import LearnerParams
from ...core.language.types import Counts, TokenBatch, Transcript
from ...core.record import select
from ...core.tree import tree_map
from .partition import Deal, piece, unread_piece
from .reduce import in_order, united

Layout = SequenceLayout | tuple[()]


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

    def dealt(lengths: Tensor) -> list[SequenceBatch]:
        """Return the parts of all processes, one process after the other."""
        return [part for own in deal([int(length) for length in lengths]) for part in own]

    def pieces(batch: TokenBatch) -> list[tuple[TokenBatch, SequenceLayout]]:
        return [piece(batch, part) for part in dealt(batch.length)]

    def read(state: LanguageState, transcripts: Transcript, layout: Layout = ()) -> Reading:
        parts = dealt(transcripts.length)
        found = [algorithm.read(state, *unread_piece(transcripts, part)) for part in parts]
        whole: Reading = in_order(found, parts, *transcripts.token.shape)
        return whole

    def loss(params: LearnerParams, batch: TokenBatch, counts: Counts, layout: Layout = ()) -> tuple[Tensor, Sums]:
        found = [algorithm.loss(params, some, counts, own) for some, own in pieces(batch)]
        return reduce(torch.add, [loss for loss, _ in found]), united([sums for _, sums in found])

    def gradient(
        params: LearnerParams, batch: TokenBatch, counts: Counts, layout: Layout = ()
    ) -> tuple[LearnerParams, Sums]:
        found = [algorithm.gradient(params, some, counts, own) for some, own in pieces(batch)]
        gradients: LearnerParams = reduce(partial(tree_map, torch.add), [gradient for gradient, _ in found])
        return gradients, united([sums for _, sums in found])

    def distance(params: LearnerParams, batch: TokenBatch, layout: Layout = ()) -> Tensor:
        return torch.stack([algorithm.distance(params, some, own) for some, own in pieces(batch)]).amax()

    def update(state: LanguageState, transcripts: Transcript) -> tuple[LanguageState, Metrics]:
        reading = read(state, transcripts) if algorithm.reads else Reading()
        batch, state, figures = algorithm.prepare(state, transcripts, reading)
        gradients, sums = gradient(state.params, batch, algorithm.counts(batch))
        after, more = algorithm.apply(state, gradients, sums)
        return select(teaches(batch), after, state), {**figures, **more}

    return evolve(algorithm, read=read, loss=loss, gradient=gradient, distance=distance, update=update)
