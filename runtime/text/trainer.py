"""A learner of transcripts on a machine of limited memory: batches split by a budget of tokens, gradients accumulated.

    train = language_trainer(learner(model, adamw(1e-3), grpo()), budget=16_384)
    learned = train(state, transcripts)
    state, figures = learned.state, learned.figures

The result does not depend on the budget or on packing, up to rounding. Unused columns are cut off, sequences of similar
lengths go through the model together, or several of them in one row, and logits are computed for sampled tokens alone.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...algorithms.language.batch import Reading, teaches
from ...algorithms.language.learner import LanguageAlgorithm, LanguageState
from ...algorithms.language.loss import combined, farthest
from ...algorithms.language.packing import (
    SequenceBatch,
    SequenceLayout,
    packed_batches,
    padded_batches,
    trimmed,
    with_width,
)
from ...core import keys
from ...core.errors import ChoiceError, NonFiniteError, message
from ...core.keys import Key
from ...core.language.types import TokenBatch, Transcript
from ...core.record import replace, take
from ...core.transcript.log_probs import loss_mask
from ...core.tree import all_finite, tree_map

NOTHING = "no advantage differs from 0, so no update was made"


@frozen
class TrainStepResult:
    """Result of training on one batch."""

    state: LanguageState
    figures: dict[str, float]  # means over the updates made; the learner's names, updates, micro_batches and padding
    note: str = ""  # a notice for the user
    advantage: Tensor | tuple[()] = ()  # [N, L] of each token, 0 for those that are not in the loss


@frozen
class _BatchPlan:
    algorithm: LanguageAlgorithm
    budget: int
    packed: int | tuple[()] = ()
    epochs: int = 1
    minibatches: int = 1


Trainer = Callable[..., TrainStepResult]  # (state, transcripts [N], key=()) -> TrainStepResult


def language_trainer(
    algorithm: LanguageAlgorithm,
    *,
    budget: int = 16_384,
    packed: int | tuple[()] = (),
    epochs: int = 1,
    minibatches: int = 1,
) -> Trainer:
    """Return a function (state, transcripts [N], key) -> TrainStepResult that makes epochs x minibatches updates of a batch.

    `budget` is the most tokens, padding included, that go through the model at once. `packed` is the capacity of a row into
    which several sequences are packed (at least the longest of them is taken), for models that take positions and a mask.
    Advantages are those of the whole batch; `minibatches` split its rows at random, by the key, anew in each epoch, and each
    is divided by its own counts. Where all advantages are 0, and all values equal their targets, no update is made, and `note`
    reports it.
    The figure log_prob_difference covers all sampled tokens of the batch, whether they count or not, before any update.
    Raises: ChoiceError (also for a sequence longer than the budget); NonFiniteError, naming the update, before it is applied.

    >>> from ...algorithms.language.learner import learner
    >>> from ...algorithms.language.objectives import grpo
    >>> from ...core.bigram import bigram
    >>> from ...core.optim.optimizers import sgd
    >>> from ...core.transcript.record import empty
    >>> algorithm = learner(bigram(3), sgd(0.1), grpo())
    >>> language_trainer(algorithm, budget=8)(algorithm.init(torch.zeros(3, 3)), empty(4, 1, id=torch.arange(2))).note[:12]
    'no advantage'
    """
    for name, value in (("budget", budget), ("epochs", epochs), ("minibatches", minibatches)):
        if value < 1:
            where, remedy = f"language_trainer: {name}", "pass a positive number"
            raise ChoiceError(message(where, got=value, wanted="at least 1", remedy=remedy))
    if not isinstance(packed, tuple) and not 1 <= packed <= budget:
        where, remedy = "language_trainer: packed", "pack into rows within the budget"
        raise ChoiceError(message(where, got=packed, wanted=f"from 1 to {budget}", remedy=remedy))
    plan = _BatchPlan(algorithm, budget, packed, epochs, minibatches)
    return lambda state, transcripts, key=(): _train(plan, state, transcripts, key)


def language_reader(
    algorithm: LanguageAlgorithm, *, budget: int = 16_384
) -> Callable[[LanguageState, Transcript], Reading]:
    """Return a function (state, transcripts [N]) -> Reading, what an algorithm reads before an update, within a token budget.

    Columns are as wide as the transcripts'. Raises: ChoiceError for an algorithm that reads nothing.
    """
    if not algorithm.reads:
        where, remedy = "language_reader: algorithm", "make the learner with proximal='recomputed'"
        raise ChoiceError(message(where, got="one that reads nothing", wanted="one that does", remedy=remedy))
    plan = _BatchPlan(algorithm, budget)
    return lambda state, transcripts: _read(plan, state, transcripts)


def _train(plan: _BatchPlan, state: LanguageState, transcripts: Transcript, key: Key | tuple[()]) -> TrainStepResult:
    _check_support(plan, transcripts)
    transcripts = trimmed(transcripts, max(1, int(transcripts.length.max())))
    reading = _read(plan, state, transcripts) if plan.algorithm.reads else Reading()
    batch, state, figures = plan.algorithm.prepare(state, transcripts, reading)
    before = {name: float(value) for name, value in figures.items()}
    if not bool(teaches(batch)):
        return TrainStepResult(state, {**before, "updates": 0.0}, NOTHING, batch.advantage)
    made: list[dict[str, float]] = []
    unseen: list[float] = []
    for rows in _minibatches(plan, len(batch.length), key):
        part = take(batch, rows)
        if bool(teaches(part)):
            # Only before the first update: after it the policy differs by intention.
            unseen = unseen if made else _unseen(plan, state, batch, rows, reading)
            state, more = _update(plan, state, part)
            made.append(more)
    means = {name: sum(one[name] for one in made) / len(made) for name in made[0]}
    distances = torch.tensor([made[0]["log_prob_difference"], *unseen], dtype=torch.float64)
    means["log_prob_difference"] = float(distances.amax())  # NaN where one is
    return TrainStepResult(state, {**before, **means, "updates": float(len(made))}, advantage=batch.advantage)


def _check_support(plan: _BatchPlan, transcripts: Transcript) -> None:
    """Refuse samples of a nucleus for a learner that scores over all tokens. Raises: ChoiceError."""
    least = float(torch.where(transcripts.temperature > 0, transcripts.top_p, 1.0).amin())
    if plan.algorithm.support == "whole" and least < 1.0:
        remedy = "make the learner with support='sampled'"
        raise ChoiceError(message("language_trainer: top_p of a sample", got=least, wanted="1", remedy=remedy))


def _read(plan: _BatchPlan, state: LanguageState, transcripts: Transcript) -> Reading:
    """Return the reading before an update, computed part by part and concatenated in order."""
    number, width = transcripts.token.shape
    mask, found = loss_mask(transcripts), []
    order: list[int] = []
    for part in _parts(plan, transcripts.length.tolist(), list(range(number))):
        some = trimmed(take(transcripts, list(part.rows)), part.width)
        with torch.no_grad():
            read = plan.algorithm.read(state, some, part.layout(mask[list(part.rows), : part.width]))
        found.append(tree_map(lambda leaf: with_width(leaf, width), read))
        order += part.rows
    back = torch.tensor(order).argsort()
    return tree_map(lambda *leaves: torch.cat(leaves)[back], *found)


def _unseen(
    plan: _BatchPlan, state: LanguageState, batch: TokenBatch, rows: list[int], reading: Reading
) -> list[float]:
    """Return the largest distances from the sampler's log-probs at sampled tokens that an update on the rows does not use."""
    seen = torch.zeros_like(batch.mask)
    seen[rows] = batch.mask[rows]
    rest = replace(batch, mask=batch.sampled & ~seen)
    if not isinstance(reading.log_prob, tuple):
        return [float(farthest(reading.log_prob, rest))]
    others = rest.mask.any(-1).nonzero()[:, 0].tolist()
    found = []
    for part in _parts(plan, batch.length.tolist(), others) if others else []:
        with torch.no_grad():
            found.append(float(plan.algorithm.distance(state.params, *_laid_out(rest, part))))
    return found


def _update(plan: _BatchPlan, state: LanguageState, batch: TokenBatch) -> tuple[LanguageState, dict[str, float]]:
    """Run one optimiser step on all rows of a batch."""
    counts = plan.algorithm.counts(batch)
    lengths, rows = batch.length.tolist(), batch.mask.any(-1).nonzero()[:, 0].tolist()
    total: Any = ()
    parts = _parts(plan, lengths, rows)
    for part in parts:
        some, layout = _laid_out(batch, part)
        made = plan.algorithm.gradient(state.params, some, counts, layout)
        total = (tree_map(torch.add, total[0], made[0]), combined(total[1], made[1])) if total else made
    gradients, sums = total
    if not (bool(all_finite(gradients)) and bool(all_finite(sums.loss))):
        where, got = f"language_trainer: the loss of update {int(state.step) + 1}", float(sums.loss)
        remedy = "nothing was applied; look at the batch, or lower the learning rate"
        raise NonFiniteError(message(where, got=got, wanted="finite, with its gradient", remedy=remedy))
    state, figures = plan.algorithm.apply(state, gradients, sums)
    read, needed = sum(part.cost for part in parts), sum(lengths[row] for row in rows)
    more = {"micro_batches": float(len(parts)), "padding": 1 - needed / read}
    return state, {**{name: float(value) for name, value in figures.items()}, **more}


def _parts(plan: _BatchPlan, lengths: Sequence[int], rows: Sequence[int]) -> list[SequenceBatch]:
    """Return all the rows, in parts that fit into the budget."""
    if not isinstance(plan.packed, tuple):
        return packed_batches(lengths, rows, plan.budget, plan.packed)
    return padded_batches(lengths, rows, plan.budget)


def _laid_out(batch: TokenBatch, part: SequenceBatch) -> tuple[TokenBatch, SequenceLayout]:
    some = tree_map(lambda leaf: with_width(leaf, part.width), take(batch, list(part.rows)))
    return some, part.layout(some.mask)


def _minibatches(plan: _BatchPlan, number: int, key: Key | tuple[()]) -> list[list[int]]:
    """Return the rows of each update."""
    if plan.minibatches == 1:
        return [list(range(number))] * plan.epochs
    if isinstance(key, tuple):
        where, remedy = "language_trainer: key", "pass one where a batch is cut at random"
        raise ChoiceError(message(where, got="absent", wanted="a key", remedy=remedy))
    cuts = [number * i // plan.minibatches for i in range(plan.minibatches + 1)]
    orders = [keys.permutation(own, number).tolist() for own in keys.split(key, plan.epochs)]
    pieces = [order[a:b] for order in orders for a, b in pairwise(cuts)]
    return [piece for piece in pieces if piece]
