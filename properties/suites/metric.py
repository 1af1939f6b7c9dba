"""Laws of metrics: pass@k, explained variance, clip fractions, means over tokens, returns of episodes. Plain functions.

    "pass_at_k"           f(attempts, solved, k) -> number
    "explained_variance"  f(prediction [N], target [N]) -> number
    "clip_fraction"       f(ratio [N], advantage [N], mask [N], clip) -> number
    "token_mean"          f(value [N, L], mask [N, L]) -> number
    "episode_returns"     f(rewards [T], terminated [T], truncated [T]) -> the returns of episodes that ended, in order

    test_mine = check(metric_laws("pass_at_k"), my_pass_at_k)

>>> from purestep.properties import metric_laws, verify
>>> verify(metric_laws("pass_at_k"), lambda n, c, k: 1 - (1 - c / n) ** k)["unbiased"].detail[:41]
'pass@2 of 2 attempts, 1 solved: got 0.75,'
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...core.errors import choose
from ..framework.compare import Tolerance, require, same
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.streams import Stream, episodes, over, streams
from ..strategies.values import dyadic, masks

Metric = Callable[..., Any]

# --- mutants ---
# Common mistakes in metrics: each wraps a correct one.


def plug_in(metric: Metric) -> Metric:
    """Put the share of solved attempts into 1 - (1 - p)^k."""
    return lambda n, c, k: 1.0 - (1.0 - c / n) ** k


def any_of_all(metric: Metric) -> Metric:
    """Give 1 if any attempt was right, whatever k is."""
    return lambda n, c, k: metric(n, c, k) if k > 1 else metric(n, c, min(2, n))


def wrong_way(metric: Metric) -> Metric:
    """Divide by the variance of the prediction."""
    return lambda prediction, target: metric(target, prediction)


def squared_error_only(metric: Metric) -> Metric:
    """Give the explained share of a prediction with twice the error."""
    return lambda prediction, target: metric(2 * prediction - target, target)


def clamped_at_zero(metric: Metric) -> Metric:
    """Never go below 0."""
    return lambda prediction, target: max(float(metric(prediction, target)), 0.0)


def mean_of_means(metric: Metric) -> Metric:
    """Average the means of sequences, so that short ones weigh more."""
    return lambda value, mask: (
        sum(float(metric(value[i : i + 1], mask[i : i + 1])) for i in range(len(mask)) if bool(mask[i].any()))
        / max(int(mask.any(-1).sum()), 1)
    )


def counts_padding(metric: Metric) -> Metric:
    """Count zeros at padding as tokens."""
    return lambda value, mask: metric(torch.where(mask, value, 0.0), torch.ones_like(mask))


def multiplies_mask(metric: Metric) -> Metric:
    """Add a little of what stands at padding."""
    return lambda value, mask: float(metric(value, mask)) + 1e-3 * float((value * ~mask).sum())


def counts_unfinished(metric: Metric) -> Metric:
    """Count the episode that is cut off by the end of the stream."""

    def wrong(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Any:
        return metric(rewards, terminated, torch.cat([truncated[:-1], torch.ones_like(truncated[-1:])]))

    return wrong


def forgets_truncated(metric: Metric) -> Metric:
    """End episodes at terminations only."""
    return lambda rewards, terminated, truncated: metric(rewards, terminated, torch.zeros_like(truncated))


def late_reset(metric: Metric) -> Metric:
    """Add the last reward of an episode to the next one."""

    def wrong(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Any:
        ends = terminated | truncated
        moved = torch.where(ends, 0.0, rewards) + torch.cat([rewards[:1] * 0, torch.where(ends, rewards, 0.0)[:-1]])
        return metric(moved, terminated, truncated)

    return wrong


def absolute_units(metric: Metric) -> Metric:
    """Clamp targets and predictions to [-8, 8]."""
    return lambda prediction, target: metric(prediction.clamp(-8, 8), target.clamp(-8, 8))


def clamped_tokens(metric: Metric) -> Metric:
    """Clamp values to [-2, 2]."""
    return lambda value, mask: metric(value.clamp(-2.0, 2.0), mask)


def clipped_rewards(metric: Metric) -> Metric:
    """Sum the rewards that were clipped for training."""
    return lambda rewards, *ends: metric(rewards.clamp(-1.0, 1.0), *ends)


def one_beyond(metric: Metric) -> Metric:
    """Give 1 where k is more than the attempts."""
    return lambda n, c, k: 1.0 if k > n else metric(n, c, k)


def other_side(metric: Metric) -> Metric:
    """Count the steps that the clip spares."""
    return lambda ratio, advantage, mask, clip: metric(2.0 - ratio, advantage, mask, clip)


def mask_ignored(metric: Metric) -> Metric:
    """Count steps outside the mask."""
    return lambda ratio, advantage, mask, clip: metric(ratio, advantage, torch.ones_like(mask), clip)


# --- references ---


def clip_fraction(ratio: Tensor, advantage: Tensor, mask: Tensor, clip: float) -> float:
    """Return the share of masked steps whose objective the clip cuts off."""
    cut = (advantage > 0) & (ratio > 1 + clip) | (advantage < 0) & (ratio < 1 - clip)
    return float((cut & (mask > 0)).sum() / (mask > 0).sum())


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """Return 1 - Var(target - prediction) / Var(target)."""
    return 1.0 - (target - prediction).var(correction=0) / target.var(correction=0)


def finished_returns(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> list[float]:
    """Return the sums of rewards of the episodes that ended."""
    ends = (terminated | truncated).nonzero()[:, 0].tolist()
    starts = [0, *(end + 1 for end in ends)]
    return [float(rewards[start : end + 1].sum()) for start, end in zip(starts, ends, strict=False)]


# --- laws ---

NUMBERS = Tolerance("numbers", 1e-5, 1e-6)
SOURCE = "Chen et al. 2021, arXiv:2107.03374, section 2.1; definitions"


@frozen
class AttemptCounts:
    """Numbers of attempts, of solved ones, and k."""

    attempts: int
    solved: int
    k: int


@st.composite
def attempt_counts(draw: DrawFn) -> AttemptCounts:
    """Up to six attempts."""
    attempts = draw(st.integers(1, 6))
    return AttemptCounts(attempts, draw(st.integers(0, attempts)), draw(st.integers(1, attempts)))


@st.composite
def pairs(draw: DrawFn) -> tuple[Tensor, Tensor]:
    """Predictions and targets of three to five samples; the targets are not all equal."""
    size = draw(st.sampled_from((4, 3, 5)))
    prediction, target = draw(dyadic((size,), limit=4)), draw(dyadic((size,), limit=4))
    return prediction, torch.cat([target[:-1], target[:1] + 2.0])


@st.composite
def tokens(draw: DrawFn) -> tuple[Tensor, Tensor]:
    """Values of up to three sequences of up to five tokens, padded on the right; at least one token."""
    rows = draw(st.sampled_from((3, 2, 1)))
    value = draw(dyadic((rows, 5)))
    mask = draw(masks(rows, 5))
    mask[0, 0] = True
    return value, mask


@st.composite
def clipped_steps(draw: DrawFn) -> tuple[Tensor, Tensor, Tensor, float]:
    """Ratios that are off the edges of the clip, advantages, and a mask with at least one step."""
    size = draw(st.sampled_from((4, 6, 3)))
    ratio = torch.tensor(draw(st.lists(st.sampled_from((1.0, 2.0, 0.4, 1.1)), min_size=size, max_size=size)))
    mask = torch.tensor(draw(st.lists(st.sampled_from((1.0, 0.0)), min_size=size - 1, max_size=size - 1)))
    clip = draw(st.sampled_from((0.2, 0.5)))
    return ratio, draw(dyadic((size,), limit=2)), torch.cat([mask, torch.ones(1)]), clip


def metric_laws(kind: str, *, shift_counts: bool = False, k_above_n: bool = False, signed: bool = True) -> Suite:
    """Return the laws of a metric of one kind, such as pass_at_k or token_mean (see the module).

    Explained variance ignores a constant error; `shift_counts`: it does not (the coefficient of determination). `k_above_n`:
    pass@k of fewer attempts than k is that of all of them. A clip fraction counts steps whose objective is clipped;
    `signed=False`: all whose ratio is outside, whatever the advantage. Raises: ChoiceError.
    """
    kinds: dict[str, tuple[Law, ...]] = {
        "clip_fraction": (_clipped_share(signed), _masked_share()),
        "pass_at_k": (_unbiased(), _share(), *([_few()] if k_above_n else [])),
        "explained_variance": (_explained(shift_counts), _perfect(), _below_zero(), _units()),
        "token_mean": (_over_tokens(), _no_padding(), _equal_lengths(), _linear_mean()),
        "episode_returns": (_returns(), _finished(), _truncated_too(), _unclipped()),
    }
    return Suite("metric_laws", choose("metric_laws: kind", kind, kinds))


_law = law_constructor(st.nothing, SOURCE, numeric=True)


def _near(name: str, got: Any, wanted: float) -> None:
    value = float(got)
    require(abs(value - wanted) <= 1e-6 + 1e-5 * abs(wanted), f"{name}: got {value!r}, wanted {wanted!r}")


def _unbiased() -> Law:
    def check(metric: Metric, drawn: AttemptCounts, seen: Seen) -> None:
        n, c, k = drawn.attempts, drawn.solved, drawn.k
        seen("several choices", 0 < c < n and 1 < k < n)
        right = [True] * c + [False] * (n - c)
        choices = [any(chosen) for chosen in itertools.combinations(right, k)]
        name = f"pass@{k} of {n} attempts, {c} solved"
        _near(name, metric(n, c, k), sum(choices) / len(choices))

    claim = "pass@k is the share of choices of k attempts, by enumeration, that hold a right one."
    mutant = ("puts the share of solved attempts into 1 - (1 - p)^k", plug_in)
    return _law("unbiased", claim, mutant, check, "several choices", inputs=attempt_counts())


def _share() -> Law:
    def check(metric: Metric, drawn: AttemptCounts, seen: Seen) -> None:
        seen("a part solved", 0 < drawn.solved < drawn.attempts)
        _near("pass@1", metric(drawn.attempts, drawn.solved, 1), drawn.solved / drawn.attempts)

    claim = "pass@1 is the share of solved attempts."
    mutant = ("counts two attempts where k is 1", any_of_all)
    return _law("one_is_the_share", claim, mutant, check, "a part solved", inputs=attempt_counts())


def _few() -> Law:
    def check(metric: Metric, drawn: AttemptCounts, seen: Seen) -> None:
        n, c, k = drawn.attempts, drawn.solved, drawn.attempts + drawn.k
        seen("none solved", c == 0)
        seen("some solved", c > 0)
        _near(f"pass@{k} of {n} attempts, {c} solved", metric(n, c, k), float(c > 0))

    claim = "With fewer attempts than k, pass@k is 1 if any is solved and 0 if none is."
    mutant = ("gives 1 where k is more than the attempts", one_beyond)
    return _law("fewer_than_k", claim, mutant, check, "none solved", "some solved", inputs=attempt_counts())


def _clipped_share(signed: bool) -> Law:
    def check(metric: Metric, drawn: tuple[Tensor, Tensor, Tensor, float], seen: Seen) -> None:
        ratio, advantage, mask, clip = drawn
        above, below = ratio > 1 + clip, ratio < 1 - clip
        seen("a good action below the clip", ((advantage > 0) & below & (mask > 0)).any())
        seen("a bad action below the clip", ((advantage < 0) & below & (mask > 0)).any())
        unsigned = float(((above | below) & (mask > 0)).sum() / (mask > 0).sum())
        wanted = clip_fraction(ratio, advantage, mask, clip) if signed else unsigned
        _near(f"the clip fraction of ratios {ratio.tolist()}", metric(ratio, advantage, mask, clip), wanted)

    said = "whose objective has no gradient" if signed else "with a ratio outside the clip"
    needs = ("a good action below the clip", "a bad action below the clip")
    mutant = ("counts the steps that the clip spares", other_side)
    claim = f"It is the share of steps {said}."
    return _law("share_of_clipped", claim, mutant, check, *needs, inputs=clipped_steps())


def _masked_share() -> Law:
    def check(metric: Metric, drawn: tuple[Tensor, Tensor, Tensor, float], seen: Seen) -> None:
        ratio, advantage, mask, clip = drawn
        outside = mask == 0
        seen("a step outside the mask", outside.any())
        other = torch.where(outside, 2.0, ratio), torch.where(outside, 1.0, advantage)
        wanted = float(metric(ratio, advantage, mask, clip))
        _near("the clip fraction with other steps outside the mask", metric(*other, mask, clip), wanted)

    claim = "Steps outside the mask do not matter."
    mutant = ("counts steps outside the mask", mask_ignored)
    return _law("outside_the_mask", claim, mutant, check, "a step outside the mask", inputs=clipped_steps())


def _explained(shift_counts: bool) -> Law:
    def check(metric: Metric, drawn: tuple[Tensor, Tensor], seen: Seen) -> None:
        prediction, target = (x.double() for x in drawn)
        error = target - prediction
        left = error.square().mean() if shift_counts else error.var(correction=0)
        seen("an error", bool(left > 0.1))
        _near("explained variance", metric(*drawn), float(1 - left / target.var(correction=0)))

    claim = "It is 1 - Var(target - prediction) / Var(target)."
    mutant = ("divides by the variance of the prediction", wrong_way)
    return _law("definition", claim, mutant, check, "an error", inputs=pairs())


def _perfect() -> Law:
    def check(metric: Metric, drawn: tuple[Tensor, Tensor], seen: Seen) -> None:
        _, target = drawn
        _near("of the target itself", metric(target.clone(), target), 1.0)
        mean = target.mean().expand_as(target).clone()
        _near("of the mean target", metric(mean, target), 0.0)

    claim = "The target itself explains all, its mean nothing."
    mutant = ("doubles the error", squared_error_only)
    return _law("ends", claim, mutant, check, inputs=pairs())


def _below_zero() -> Law:
    def check(metric: Metric, drawn: tuple[Tensor, Tensor], seen: Seen) -> None:
        _, target = drawn
        opposed = 2 * target.mean() - target
        _near("of targets mirrored at their mean", metric(opposed, target), -3.0)

    claim = "A prediction worse than the mean has a negative value."
    return _law("below_zero", claim, ("never goes below 0", clamped_at_zero), check, inputs=pairs())


def _units() -> Law:
    def check(metric: Metric, drawn: tuple[Tensor, Tensor], seen: Seen) -> None:
        prediction, target = drawn
        seen("an error", bool((prediction - target).var() > 0.1))
        _near("of values in other units", metric(4 * prediction, 4 * target), float(metric(prediction, target)))

    claim = "Other units of values change nothing."
    return _law("units", claim, ("clamps values to [-8, 8]", absolute_units), check, "an error", inputs=pairs())


def _over_tokens() -> Law:
    def check(metric: Metric, drawn: tuple[Tensor, Tensor], seen: Seen) -> None:
        value, mask = drawn
        seen("several lengths", len(set(mask.sum(-1).tolist())) > 1)
        _near("the mean", metric(value, mask), float(value[mask].mean()))

    claim = "Every token weighs the same, in sequences of any length."
    mutant = ("averages the means of sequences", mean_of_means)
    return _law("tokens_weigh_the_same", claim, mutant, check, "several lengths", inputs=tokens())


def _no_padding() -> Law:
    def check(metric: Metric, drawn: tuple[Tensor, Tensor], seen: Seen) -> None:
        value, mask = drawn
        seen("padding", bool((~mask).any()))
        other = torch.where(mask, value, 1000.0)
        _near("the mean beside 1000 at padding", metric(other, mask), float(metric(value, mask)))

    claim = "What stands at padding has no effect."
    return _law("padding", claim, ("adds a little of the padding", multiplies_mask), check, "padding", inputs=tokens())


def _equal_lengths() -> Law:
    def check(metric: Metric, drawn: tuple[Tensor, Tensor], seen: Seen) -> None:
        value, mask = drawn
        seen("padding", bool((~mask).any()))
        ones = torch.ones_like(value)
        _near("the mean of ones", metric(ones, mask), 1.0)

    claim = "The mean of ones is 1: it is divided by the number of tokens."
    return _law("mean_of_ones", claim, ("counts padding as tokens", counts_padding), check, "padding", inputs=tokens())


def _linear_mean() -> Law:
    def check(metric: Metric, drawn: tuple[Tensor, Tensor], seen: Seen) -> None:
        value, mask = drawn
        seen("a large value", bool((value[mask].abs() > 2).any()))
        _near("the mean of doubled values", metric(2 * value, mask), 2 * float(metric(value, mask)))

    claim = "Twice the values give twice the mean."
    return _law("linear", claim, ("clamps values", clamped_tokens), check, "a large value", inputs=tokens())


def _numbers(found: Any) -> list[float]:
    return [float(one) for one in (found.tolist() if isinstance(found, Tensor) else found)]


def _of(stream: Stream) -> list[float]:
    ended = [piece for piece in episodes(stream) if bool(over(piece)[-1])]
    return [float(piece.rewards.sum()) for piece in ended]


def _asked(metric: Metric, stream: Stream) -> list[float]:
    return _numbers(metric(stream.rewards, stream.terminated, stream.truncated))


def _returns() -> Law:
    def check(metric: Metric, stream: Stream, seen: Seen) -> None:
        seen("two episodes", len(_of(stream)) > 1)
        got, wanted = _asked(metric, stream), _of(stream)
        require(len(got) == len(wanted), f"got {len(got)} episodes, wanted {len(wanted)}")
        same("returns", torch.tensor(got), torch.tensor(wanted), NUMBERS)

    claim = "An episode's return is the sum of its own rewards, the last one included."
    mutant = ("adds the last reward to the next episode", late_reset)
    return _law("sum_of_own_rewards", claim, mutant, check, "two episodes", inputs=streams())


def _finished() -> Law:
    def check(metric: Metric, stream: Stream, seen: Seen) -> None:
        seen("an unfinished episode", not bool(over(stream)[-1]))
        got = _asked(metric, stream)
        require(len(got) == int(over(stream).sum()), f"got {len(got)} episodes, {int(over(stream).sum())} ended")
        require(all(math.isfinite(one) for one in got), f"returns {got}")

    claim = "An episode that has not ended is not counted."
    mutant = ("counts the unfinished episode", counts_unfinished)
    return _law("only_finished", claim, mutant, check, "an unfinished episode", inputs=streams())


def _truncated_too() -> Law:
    def check(metric: Metric, stream: Stream, seen: Seen) -> None:
        seen("a truncation", bool((stream.truncated & ~stream.terminated).any()))
        got, wanted = _asked(metric, stream), _of(stream)
        require(len(got) == len(wanted), f"got {len(got)} episodes, {len(wanted)} were terminated or truncated")

    claim = "A truncated episode counts as one that ended."
    mutant = ("counts terminated episodes only", forgets_truncated)
    return _law("truncated_counts", claim, mutant, check, "a truncation", inputs=streams())


def _unclipped() -> Law:
    def check(metric: Metric, stream: Stream, seen: Seen) -> None:
        seen("a large reward in an episode that ended", bool((stream.rewards[over(stream)].abs() > 1).any()))
        got = _asked(metric, stream)
        doubled = _numbers(metric(2 * stream.rewards, stream.terminated, stream.truncated))
        same("returns of doubled rewards", torch.tensor(doubled), 2 * torch.tensor(got), NUMBERS)

    claim = "Rewards count in full: twice the rewards give twice the returns."
    mutant = ("sums clipped rewards", clipped_rewards)
    return _law("linear", claim, mutant, check, "a large reward in an episode that ended", inputs=streams())
