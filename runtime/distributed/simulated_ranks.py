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
from ...algorithms.language.scoring import LearnerParams, SequenceLayout
from ...algorithms.language.token_batch import Counts, TokenBatch
from ...core.record import select
from ...core.transcript.record import Transcript
from ...core.tree import tree_map
from ..text.batching import SequenceBatch
from .partition import Deal, piece, unread_piece
from .reduce import in_order, united

Absent = tuple[()]


def simulated_ranks(algorithm: LanguageAlgorithm, deal: Deal) -> LanguageAlgorithm:
    """Return the algorithm with gradients, readings and distances reduced from those of every part of a deal.

    The deal is computed for each batch, from the lengths of its sequences; layouts that are passed are ignored.

    >>> from ...algorithms.language.learner import learner
    >>> from ...algorithms.language.objectives import grpo
    >>> from ...core.bigram import bigram
    >>> from ...core.optim.optimizers import sgd
    >>> from .partition import by_tokens
    >>> simulated_ranks(learner(bigram(3), sgd(0.1), grpo()), by_tokens(8, ranks=2)).window
    1048576
    """
    own = evolve(
        algorithm,
        read=partial(_read, algorithm, deal),
        loss=partial(_loss, algorithm, deal),
        gradient=partial(_gradient, algorithm, deal),
        distance=partial(_distance, algorithm, deal),
    )
    return evolve(own, update=lambda state, transcripts: _composed(own, state, transcripts))


def _parts(deal: Deal, lengths: Tensor) -> list[SequenceBatch]:
    """Return the parts of all processes, one process after the other."""
    return [part for own in deal([int(length) for length in lengths]) for part in own]


def _read(
    algorithm: LanguageAlgorithm,
    deal: Deal,
    state: LanguageState,
    transcripts: Transcript,
    layout: SequenceLayout | Absent = (),
) -> Reading:
    del layout
    parts = _parts(deal, transcripts.length)
    found = [algorithm.read(state, *unread_piece(transcripts, part)) for part in parts]
    number, width = transcripts.token.shape
    whole: Reading = in_order(found, parts, number, width)
    return whole


def _loss(
    algorithm: LanguageAlgorithm,
    deal: Deal,
    params: LearnerParams,
    batch: TokenBatch,
    counts: Counts,
    layout: SequenceLayout | Absent = (),
) -> tuple[Tensor, Sums]:
    del layout
    pieces = (piece(batch, part) for part in _parts(deal, batch.length))
    found = [algorithm.loss(params, some, counts, own) for some, own in pieces]
    return reduce(torch.add, [loss for loss, _ in found]), united([sums for _, sums in found])


def _gradient(
    algorithm: LanguageAlgorithm,
    deal: Deal,
    params: LearnerParams,
    batch: TokenBatch,
    counts: Counts,
    layout: SequenceLayout | Absent = (),
) -> tuple[LearnerParams, Sums]:
    del layout
    pieces = (piece(batch, part) for part in _parts(deal, batch.length))
    found = [algorithm.gradient(params, some, counts, own) for some, own in pieces]
    gradients: LearnerParams = reduce(partial(tree_map, torch.add), [gradient for gradient, _ in found])
    return gradients, united([sums for _, sums in found])


def _distance(
    algorithm: LanguageAlgorithm,
    deal: Deal,
    params: LearnerParams,
    batch: TokenBatch,
    layout: SequenceLayout | Absent = (),
) -> Tensor:
    del layout
    pieces = (piece(batch, part) for part in _parts(deal, batch.length))
    return torch.stack([algorithm.distance(params, some, own) for some, own in pieces]).amax()


def _composed(
    algorithm: LanguageAlgorithm, state: LanguageState, transcripts: Transcript
) -> tuple[LanguageState, Metrics]:
    reading = algorithm.read(state, transcripts) if algorithm.reads else Reading()
    batch, state, figures = algorithm.prepare(state, transcripts, reading)
    gradients, sums = algorithm.gradient(state.params, batch, algorithm.counts(batch))
    after, more = algorithm.apply(state, gradients, sums)
    return select(teaches(batch), after, state), {**figures, **more}
