"""Laws of learning on several ranks: however the work is split, the gradient is that of one process, and no rank hangs."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.algorithms.importance import truncated_weights
from purestep.algorithms.language import objectives
from purestep.algorithms.language.learner import LanguageAlgorithm, LanguageState, learner
from purestep.algorithms.language.scoring import LearnerParams
from purestep.core.language.types import TokenBatch
from purestep.core.optim.optimizers import chain, clip_by_global_norm, global_norm, sgd
from purestep.core.record import replace, take
from purestep.core.transcript.log_probs import loss_mask
from purestep.core.tree import leaves, tree_map
from purestep.properties.framework.compare import DOUBLE, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.learner import MODEL, Talks, params_of, talks
from purestep.properties.suites.learner import prepared, with_functions
from purestep.runtime.distributed.partition import Deal, deal_sequences

# --- mutants ---
# Common errors in learning on several ranks: each an edit of a right function.


NORM = 0.05  # that gradients of the laws are shortened to
Ranking = Callable[[LanguageAlgorithm, Deal], LanguageAlgorithm]
Each = list[tuple[TokenBatch, Any, Any]]  # of each rank with sequences: its part of the batch, gradient, sums


def _edited_gradient(
    change: Callable[[LanguageAlgorithm, Callable[..., Each], LearnerParams, TokenBatch, Any], tuple[Any, Any]],
) -> Callable[[Ranking], Ranking]:
    """An edit of the reduction of the ranks' gradients: `change(algorithm, each(counts), params, batch, counts)`."""

    def edit(subject: Ranking) -> Ranking:
        def ranking(algorithm: LanguageAlgorithm, deal: Deal) -> LanguageAlgorithm:
            def gradient(params: LearnerParams, batch: TokenBatch, counts: Any, layout: Any = ()) -> tuple[Any, Any]:
                own = [[row for part in parts for row in part.rows] for parts in deal(batch.length.tolist())]

                def each(counts: Any = ()) -> Each:
                    given = [take(batch, rows) for rows in own if rows]
                    chosen = [counts or algorithm.counts(some) for some in given]
                    return [(a, *algorithm.gradient(params, a, b)) for a, b in zip(given, chosen, strict=True)]

                return change(algorithm, each, params, batch, counts)

            return with_functions(subject(algorithm, deal), gradient=gradient)

        return ranking

    return edit


def _added(trees: Sequence[Any]) -> Any:
    return reduce(lambda one, other: tree_map(torch.add, one, other), trees)


def _local(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    whole = algorithm.gradient(params, batch, counts)
    return _added([gradient for _, gradient, _ in each()]), whole[1]


def _mean_of_means(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    found = each()
    total = _added([gradient for _, gradient, _ in found])
    return tree_map(lambda leaf: leaf / len(found), total), algorithm.gradient(params, batch, counts)[1]


def _averaged(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    found = each(counts)
    total = _added([gradient for _, gradient, _ in found])
    return tree_map(lambda leaf: leaf / len(found), total), algorithm.gradient(params, batch, counts)[1]


def _clipped_apart(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    def short(gradient: Any) -> Any:
        factor = (NORM / (global_norm(gradient) + 1e-6)).clamp(max=1.0)
        return tree_map(lambda leaf: leaf * factor, gradient)

    return _added([short(gradient) for _, gradient, _ in each(counts)]), algorithm.gradient(params, batch, counts)[1]


local_denominators = _edited_gradient(_local)
mean_of_means = _edited_gradient(_mean_of_means)
averages_over_ranks = _edited_gradient(_averaged)
clips_on_each_rank = _edited_gradient(_clipped_apart)


def _evolved(
    change: Callable[[LanguageAlgorithm, Deal, LanguageAlgorithm], dict[str, Any]],
) -> Callable[[Ranking], Ranking]:
    """An edit of the algorithm on ranks: `change(algorithm, deal, made)` returns functions that replace its own."""

    def edit(subject: Ranking) -> Ranking:
        def ranking(algorithm: LanguageAlgorithm, deal: Deal) -> LanguageAlgorithm:
            made = subject(algorithm, deal)
            return with_functions(made, **change(algorithm, deal, made))

        return ranking

    return edit


def _rows(deal: Deal, lengths: Tensor) -> list[list[int]]:
    return [[row for part in parts for row in part.rows] for parts in deal(lengths.tolist())]


def _unsorted(algorithm: LanguageAlgorithm, deal: Deal, made: LanguageAlgorithm) -> dict[str, Any]:
    def read(state: Any, transcripts: Any, layout: Any = ()) -> Any:
        order = [row for rows in _rows(deal, transcripts.length) for row in rows]
        return tree_map(lambda leaf: leaf[order], made.read(state, transcripts))

    return {"read": read}


def _first_alone(algorithm: LanguageAlgorithm, deal: Deal, made: LanguageAlgorithm) -> dict[str, Any]:
    def distance(params: Any, batch: TokenBatch, layout: Any = ()) -> Tensor:
        rows = next(rows for rows in _rows(deal, batch.length) if rows)
        return algorithm.distance(params, take(batch, rows))

    return {"distance": distance}


def _own_loss(algorithm: LanguageAlgorithm, deal: Deal, made: LanguageAlgorithm) -> dict[str, Any]:
    def gradient(params: Any, batch: TokenBatch, counts: Any, layout: Any = ()) -> tuple[Any, Any]:
        slopes, _ = made.gradient(params, batch, counts)
        rows = next(rows for rows in _rows(deal, batch.length) if rows)
        return slopes, algorithm.gradient(params, take(batch, rows), counts)[1]

    return {"gradient": gradient}


leaves_readings_as_dealt = _evolved(_unsorted)
looks_at_its_own_distance = _evolved(_first_alone)
tells_its_own_loss = _evolved(_own_loss)

MUTANTS: dict[str, Callable[[Ranking], Ranking]] = {
    "averages over ranks what was divided by the counts of all": averages_over_ranks,
    "averages over ranks what each divides by its own counts": mean_of_means,
}


# --- laws ---


SPLIT = "TRL 3021, NeMo-RL 84, verl 5712: the loss depends on how a batch is split, over ranks as over micro-batches"
LEARNERS: dict[str, tuple[objectives.Objective, dict[str, Any]]] = {
    "grpo": (
        objectives.grpo(clip=0.25),
        {"kl_in_loss": 0.5, "proximal": "recomputed", "correction": partial(truncated_weights, high=2.0)},
    ),
    "dapo": (objectives.dapo(zero_spread="keep"), {"denominators": "sampled"}),
    "ppo": (objectives.ppo(lambda_=0.5), {"truncated": "bootstrap"}),
}


@attrs.frozen
class Split:
    """Conversations, the learner, and the assignment of conversations to ranks and micro-batches."""

    talk: Talks
    learner: str
    places: tuple[tuple[tuple[int, ...], ...], ...]  # of each rank, of each micro-batch

    @property
    def deal(self) -> Deal:
        """The split as a deal."""
        return lambda lengths: deal_sequences(lengths, self.places)

    def algorithm(self) -> LanguageAlgorithm:
        """The learner of one process."""
        objective, choices = LEARNERS[self.learner]
        return learner(MODEL, chain(clip_by_global_norm(NORM), sgd(0.5)), objective, **choices)

    def begun(self) -> LanguageState:
        """Its initial state, with a critic's head that does not return 0."""
        state = self.algorithm().init(params_of(self.talk))
        moved = tree_map(lambda leaf: leaf + 0.3, state.params.critic)
        return replace(state, params=replace(state.params, critic=moved))


@st.composite
def splits(draw: DrawFn) -> Split:
    """Draw any partition of up to three conversations into up to two micro-batches of one or three ranks; many stay empty."""
    talk = draw(talks((2, 3)))
    ranks, rounds = draw(st.sampled_from((1, 3))), draw(st.integers(1, 2))
    number = len(talk.transcripts.length)
    cells = [draw(st.integers(0, ranks * rounds - 1)) for _ in range(number)]
    each = [tuple(row for row in range(number) if cells[row] == cell) for cell in range(ranks * rounds)]
    places = tuple(tuple(each[rank * rounds : (rank + 1) * rounds]) for rank in range(ranks))
    return Split(talk, draw(st.sampled_from(sorted(LEARNERS))), places)


def ranks_laws() -> Suite:
    """The laws of `simulated_ranks`, and of other functions from an algorithm and a deal to an algorithm on ranks."""
    return Suite("ranks_laws", (_gradient(), _means(), _clipped(), _sums(), _read(), _distance(), _update()))


_law = law_constructor(splits, SPLIT, most=10)


def _batch(split: Split) -> tuple[TokenBatch, LanguageState]:
    return prepared(split.algorithm(), split.begun(), split.talk.transcripts)


def _counts_of_ranks(split: Split, batch: TokenBatch) -> list[int]:
    """The number of tokens that count on each rank that has a sequence."""
    own = [[row for batch in rank for row in batch] for rank in split.places]
    return [int(batch.mask[rows].sum()) for rows in own if rows]


def _both(ranking: Ranking, split: Split) -> tuple[Any, Any, TokenBatch, LanguageState]:
    """(gradient, sums) of the ranks and of one process, on one batch."""
    batch, state = _batch(split)
    one = split.algorithm()
    counts = one.counts(batch)
    got = ranking(one, split.deal).gradient(state.params, batch, counts)
    return got, one.gradient(state.params, batch, counts), batch, state


def _gradient() -> Law:
    def check(ranking: Ranking, split: Split, seen: Seen) -> None:
        got, wanted, batch, _ = _both(ranking, split)
        tokens = _counts_of_ranks(split, batch)
        seen("ranks of different token counts", len(set(tokens)) > 1 and min(tokens))
        seen("a rank without a sequence", len(tokens) < len(split.places))
        seen("several micro-batches of a rank", any(len(rank) > 1 and all(rank) for rank in split.places))
        same("the gradient on ranks", got[0], wanted[0], DOUBLE)

    mutant = ("divides on each rank by what counts there", local_denominators)
    claim = "Whatever the partition into ranks and micro-batches, with ranks that have nothing, the gradient is the whole's."
    needs = ("ranks of different token counts", "a rank without a sequence", "several micro-batches of a rank")
    return _law("gradient_of_the_whole", claim, mutant, check, *needs, most=100)


def _means() -> Law:
    def check(ranking: Ranking, split: Split, seen: Seen) -> None:
        number = len(split.talk.transcripts.length)
        alone = attrs.evolve(split, places=((tuple(range(number)),),))
        apart = attrs.evolve(split, places=tuple(((row,),) for row in range(number)))
        one, other = (_both(ranking, each)[0] for each in (alone, apart))
        seen("something to learn", any(bool(leaf.any()) for leaf in leaves(one[0])))
        same("the gradient on one rank for each sequence", other[0], one[0], DOUBLE)

    mutant = ("averages over ranks what each divides by its own counts", mean_of_means)
    claim = "As many ranks as sequences find the gradient that one finds."
    return _law("number_of_ranks", claim, mutant, check, "something to learn")


def _clipped() -> Law:
    def check(ranking: Ranking, split: Split, seen: Seen) -> None:
        got, wanted, _, state = _both(ranking, split)
        one = split.algorithm()
        after, figures = one.apply(state, *wanted)
        seen("a gradient that is shortened", figures["gradient_norm"] > NORM)
        seen("several ranks with sequences", sum(any(rank) for rank in split.places) > 1)
        found, same_figures = ranking(one, split.deal).apply(state, *got)
        same("the parameters after a shortened step", found.params, after.params, DOUBLE)
        same("the gradient's norm", same_figures["gradient_norm"], figures["gradient_norm"], DOUBLE)

    mutant = ("shortens the gradient of each rank", clips_on_each_rank)
    claim = "A gradient is shortened by the norm of the whole."
    needs = ("a gradient that is shortened", "several ranks with sequences")
    return _law("clipped_as_a_whole", claim, mutant, check, *needs, source="torch.nn.utils.clip_grad_norm_ of shards")


def _sums() -> Law:
    def check(ranking: Ranking, split: Split, seen: Seen) -> None:
        got, wanted, batch, state = _both(ranking, split)
        seen("several ranks with tokens that count", sum(count > 0 for count in _counts_of_ranks(split, batch)) > 1)
        same("the sums on ranks", got[1], wanted[1], DOUBLE)
        one = split.algorithm()
        loss, _ = ranking(one, split.deal).loss(state.params, batch, one.counts(batch))
        same("the loss on ranks", loss, wanted[1].loss, DOUBLE)

    mutant = ("tells the loss of the first rank", tells_its_own_loss)
    claim = "Losses and figures are those of the whole batch."
    return _law("sums_of_the_whole", claim, mutant, check, "several ranks with tokens that count")


def _read() -> Law:
    def check(ranking: Ranking, split: Split, seen: Seen) -> None:
        one, state, said = split.algorithm(), split.begun(), split.talk.transcripts
        if not one.reads:
            return
        mask = loss_mask(said)

        def told(reading: Any) -> dict[str, Tensor]:
            each = {name: getattr(reading, name) for name in one.reads}
            return {name: torch.where(mask, leaf, 0.0) if leaf.ndim > 1 else leaf for name, leaf in each.items()}

        got, wanted = (told(each.read(state, said)) for each in (ranking(one, split.deal), one))
        order = [row for rank in split.places for batch in rank for row in batch]
        seen("sequences out of order", order != sorted(order) and mask.any())
        same("readings on ranks", got, wanted, DOUBLE)

    mutant = ("leaves readings in the order of the deal", leaves_readings_as_dealt)
    claim = "What is read before an update stands at its own sequence, whoever read it."
    return _law("readings_come_back", claim, mutant, check, "sequences out of order")


def _distance() -> Law:
    def check(ranking: Ranking, split: Split, seen: Seen) -> None:
        batch, state = _batch(split)
        one = split.algorithm()
        seen("several ranks with tokens that count", sum(count > 0 for count in _counts_of_ranks(split, batch)) > 1)
        got, wanted = (each.distance(state.params, batch) for each in (ranking(one, split.deal), one))
        same("the distance on ranks", got, wanted, DOUBLE)

    mutant = ("looks at the sequences of the first rank", looks_at_its_own_distance)
    claim = "The largest distance from the sampler is that of all ranks."
    return _law("distance_of_all", claim, mutant, check, "several ranks with tokens that count")


def _update() -> Law:
    def check(ranking: Ranking, split: Split, seen: Seen) -> None:
        one, state, said = split.algorithm(), split.begun(), split.talk.transcripts
        got, wanted = (each.update(state, said) for each in (ranking(one, split.deal), one))
        seen("an update", wanted[0].step > state.step)
        seen("no update", wanted[0].step == state.step)
        same("(state, figures) after an update on ranks", got, wanted, DOUBLE)

    mutant = ("updates on the first rank alone", _first_rank_alone)
    claim = (
        "An update on ranks is that of one process, figures included; where there is nothing to learn there is none."
    )
    return _law("update", claim, mutant, check, "an update", "no update")


def _first_rank_alone(subject: Ranking) -> Ranking:
    """Update on the sequences of the first rank that has any."""

    def ranking(algorithm: LanguageAlgorithm, deal: Deal) -> LanguageAlgorithm:
        def update(state: LanguageState, said: Any) -> Any:
            dealt = deal(said.length.tolist())
            rows = next(own for own in ([row for part in parts for row in part.rows] for parts in dealt) if own)
            return algorithm.update(state, take(said, rows))

        return with_functions(subject(algorithm, deal), update=update)

    return ranking
