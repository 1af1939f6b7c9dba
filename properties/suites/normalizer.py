"""Laws of running statistics: those of all data seen, in any batches; merging, normalising, freezing.

The subject is `NormalizerFunctions`, or a factory `make(shape=...)` of objects with `update(batch)`, `mean` and `var`, such as
RunningMeanStd of Gymnasium or Stable-Baselines3.

    test_theirs = check(normalizer_laws(arrays="numpy", prior=1e-4), RunningMeanStd)

>>> from purestep.properties import normalizer_laws, verify
>>> class Wrong:
...     def __init__(self, shape: tuple[int, ...]) -> None:
...         self.mean, self.var = torch.zeros(shape), torch.ones(shape)
...     def update(self, batch: Tensor) -> None:
...         self.mean, self.var = batch.mean(0), batch.var(0, correction=0)  # of the last batch only
>>> verify(normalizer_laws(), Wrong)["statistics_of_all_data"].outcome
'broken'
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...core.errors import ChoiceError, message
from ...core.normalize import merge, normalize, statistics, update
from ..framework.compare import Tolerance, same
from ..framework.law import Law, NotHere, Seen, Suite, law_constructor
from ..strategies.values import dyadic


@frozen
class NormalizerFunctions:
    """Functions of a state: `update(state, batch)` returns the state after a batch [N, *shape], or None if it changes in place.

    `normalize(state, x)` and `merge(a, b)` are optional.
    """

    init: Callable[[tuple[int, ...]], Any]
    update: Callable[[Any, Any], Any]
    mean: Callable[[Any], Any]
    variance: Callable[[Any], Any]
    normalize: Callable[[Any, Any], Any] | None = None
    merge: Callable[[Any, Any], Any] | None = None


def own_statistics(clip: float = math.inf) -> NormalizerFunctions:
    """Return the functions of `core.normalize`."""
    return NormalizerFunctions(
        init=statistics,
        update=update,
        mean=lambda state: state.mean,
        variance=lambda state: state.variance,
        normalize=lambda state, x: normalize(state, x, clip=clip),
        merge=merge,
    )


# --- mutants ---
# Common mistakes in running statistics: each wraps correct functions.

Edit = Callable[[NormalizerFunctions], NormalizerFunctions]


def _after(subject: NormalizerFunctions, state: Any, batch: Any) -> Any:
    after = subject.update(state, batch)
    return state if after is None else after


def weighs_batches(subject: NormalizerFunctions) -> NormalizerFunctions:
    """Weigh batches equally, whatever their size."""
    return evolve(
        subject, update=lambda state, batch: _after(subject, state, batch[:1].expand(4, *batch.shape[1:]).clone())
    )


def skips_single(subject: NormalizerFunctions) -> NormalizerFunctions:
    """Leave out batches of one: their variance is not defined with n - 1."""
    return evolve(subject, update=lambda state, batch: state if len(batch) < 2 else _after(subject, state, batch))


def one_for_all(subject: NormalizerFunctions) -> NormalizerFunctions:
    """Use one mean for all coordinates."""
    return evolve(subject, mean=lambda state: subject.mean(state).mean().expand_as(subject.mean(state)))


def sample_variance(subject: NormalizerFunctions) -> NormalizerFunctions:
    """Divide the variance by 3/4: another ddof."""
    return evolve(subject, variance=lambda state: subject.variance(state) * (4 / 3))


def difference_of_squares(subject: NormalizerFunctions) -> NormalizerFunctions:
    """Compute E[x^2] - E[x]^2 in float32."""

    def init(shape: tuple[int, ...]) -> Any:
        return torch.zeros(()), torch.zeros(shape), torch.zeros(shape)

    def step(state: Any, batch: Tensor) -> Any:
        return state[0] + len(batch), state[1] + batch.sum(0), state[2] + batch.square().sum(0)

    return NormalizerFunctions(
        init=init,
        update=step,
        mean=lambda s: s[1] / s[0].clamp_min(1),
        variance=lambda s: torch.where(s[0] > 0, s[2] / s[0].clamp_min(1) - (s[1] / s[0].clamp_min(1)).square(), 1.0),
    )


def forgets_distance(subject: NormalizerFunctions) -> NormalizerFunctions:
    """Merge without the distance of the means: the second is moved to the first."""

    def wrong(a: Any, b: Any) -> Any:
        return subject.merge(a, _moved(b, subject.mean(a))) if subject.merge else None

    return evolve(subject, merge=wrong)


def _moved(state: Any, mean: Any) -> Any:
    after = copy.deepcopy(state)
    object.__setattr__(after, "__dict__", {**after.__dict__, "mean": mean})
    return after


def unclipped(subject: NormalizerFunctions) -> NormalizerFunctions:
    """Divide by the variance, not by its root."""

    def wrong(state: Any, x: Any) -> Any:
        return (x - subject.mean(state)) / (subject.variance(state) + 1e-8)

    return evolve(subject, normalize=wrong)


def learns_in_use(subject: NormalizerFunctions) -> NormalizerFunctions:
    """Update the statistics whenever something is normalised."""
    seen_so_far: list[Any] = []

    def wrong(state: Any, x: Any) -> Any:
        seen_so_far.append(x)
        moved = state
        for one in seen_so_far[-3:]:
            moved = _after(subject, moved, one)
        return subject.normalize(moved, x) if subject.normalize else None

    return evolve(subject, normalize=wrong)


# --- laws ---

SOURCE = "Chan, Golub and LeVeque 1979; RunningMeanStd of OpenAI baselines"
ARRAYS = ("torch", "numpy")


@frozen
class NormalizerClaims:
    """Arguments of `normalizer_laws`."""

    prior: float
    ddof: int
    eps: float
    clip: float
    arrays: str
    tolerance: float

    def functions(self, subject: Any) -> NormalizerFunctions:
        """Return the subject as functions."""
        if isinstance(subject, NormalizerFunctions):
            return subject
        return NormalizerFunctions(
            init=lambda shape: subject(shape=shape),
            update=lambda state, batch: state.update(batch),
            mean=lambda state: state.mean,
            variance=lambda state: state.var,
            normalize=(lambda state, x: state.normalize(x)) if hasattr(subject, "normalize") else None,
            merge=_combined if hasattr(subject, "combine") else None,
        )

    def given(self, batch: Tensor) -> Any:
        """Return the batch as the subject takes it."""
        return batch.numpy() if self.arrays == "numpy" else batch

    def after(self, subject: NormalizerFunctions, batches: list[Tensor]) -> Any:
        """Return the state after these batches."""
        state = subject.init(tuple(batches[0].shape[1:]))
        for batch in batches:
            state = _after(subject, state, self.given(batch.clone()))
        return state

    def moments(self, subject: NormalizerFunctions, state: Any) -> tuple[Tensor, Tensor]:
        """Return mean and variance of a state in float64."""
        both = (torch.as_tensor(subject.mean(state)), torch.as_tensor(subject.variance(state)))
        return both[0].double(), both[1].double()

    def wanted(self, batches: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return mean and variance of all data and of `prior` more with mean 0 and variance 1, in float64."""
        data = torch.cat(batches).double()
        count = len(data) + self.prior
        mean = data.sum(0) / count
        squares = (data - mean).square().sum(0) + self.prior * (1.0 + mean.square())
        return mean, squares / max(count - self.ddof, 1e-12)


def _combined(a: Any, b: Any) -> Any:
    after = copy.deepcopy(a)
    after.combine(b)
    return after


def normalizer_laws(
    *,
    prior: float = 0.0,
    ddof: int = 0,
    eps: float = 1e-8,
    clip: float = math.inf,
    arrays: str = "torch",
    tolerance: float = 1e-5,
) -> Suite:
    """Return the laws of running statistics.

    They begin with `prior` observations of mean 0 and variance 1, and variances are divided by n - `ddof`. `normalize` gives
    (x - mean) / sqrt(variance + eps), clipped to [-clip, clip]. Batches [N, *shape] are "torch" tensors or "numpy" arrays.
    `tolerance` is relative. Raises: ChoiceError.
    """
    if arrays not in ARRAYS:
        wanted, remedy = f"one of {ARRAYS}", "say what it takes"
        raise ChoiceError(message("normalizer_laws: arrays", got=arrays, wanted=wanted, remedy=remedy))
    how = NormalizerClaims(prior, ddof, eps, clip, arrays, tolerance)
    laws = (_all_data(how), _own_coordinate(how), _singles(how), _offset(how), _merged(how), _scaled(how), _frozen(how))
    return Suite("normalizer_laws", laws)


@st.composite
def row_batches(draw: DrawFn) -> list[Tensor]:
    """One to four batches of one to four rows [N, 2], multiples of 1/4, at least two rows in all."""
    sizes = draw(st.lists(st.sampled_from((1, 2, 4, 3)), min_size=1, max_size=4))
    sizes = sizes if sum(sizes) > 1 else [2]
    return [draw(dyadic((size, 2), limit=4)) for size in sizes]


_law = law_constructor(row_batches, SOURCE)


def _tolerance(how: NormalizerClaims) -> Tolerance:
    return Tolerance("statistics", how.tolerance, how.tolerance)


def _all_data(how: NormalizerClaims) -> Law:
    def check(subject: Any, drawn: list[Tensor], seen: Seen) -> None:
        seen("batches of several sizes", len({len(batch) for batch in drawn}) > 1)
        functions = how.functions(subject)
        got = how.moments(functions, how.after(functions, drawn))
        same("(mean, variance)", got, how.wanted(drawn), _tolerance(how))

    claim = "After any batches the mean and variance are those of all data."
    mutant = ("weighs batches equally", weighs_batches)
    return _law("statistics_of_all_data", claim, mutant, check, "batches of several sizes")


def _own_coordinate(how: NormalizerClaims) -> Law:
    def check(subject: Any, drawn: list[Tensor], seen: Seen) -> None:
        far = [torch.stack([batch[:, 0], batch[:, 1] * 0 + 8.0], -1) for batch in drawn]
        seen("another mean", bool(torch.cat(drawn)[:, 0].mean() != 8.0))
        functions = how.functions(subject)
        got = how.moments(functions, how.after(functions, drawn))
        other = how.moments(functions, how.after(functions, far))
        same("mean and variance of the first coordinate", [x[0] for x in other], [x[0] for x in got], _tolerance(how))

    claim = "A coordinate's statistics are its own."
    return _law("own_coordinate", claim, ("uses one mean for all coordinates", one_for_all), check, "another mean")


def _singles(how: NormalizerClaims) -> Law:
    def check(subject: Any, drawn: list[Tensor], seen: Seen) -> None:
        rows = [row[None] for row in torch.cat(drawn)]
        seen("several rows", len(rows) > 2)
        functions = how.functions(subject)
        got = how.moments(functions, how.after(functions, rows))
        same("(mean, variance) after batches of one", got, how.wanted(rows), _tolerance(how))
        got = how.moments(functions, how.after(functions, rows[::-1]))
        same("(mean, variance) after the same in reverse", got, how.wanted(rows), _tolerance(how))

    claim = "Batches of one row, in any order, give the statistics of all rows."
    return _law("batches_of_one", claim, ("leaves out batches of one", skips_single), check, "several rows")


def _offset(how: NormalizerClaims) -> Law:
    def check(subject: Any, drawn: list[Tensor], seen: Seen) -> None:
        moved = [batch + 4096.0 for batch in drawn]
        functions = how.functions(subject)
        variance = how.moments(functions, how.after(functions, moved))[1]
        wanted = how.wanted(moved)[1]
        seen("a variance", bool((wanted > 0.1).all()))
        same("the variance of data around 4096", variance, wanted, Tolerance("offset", 0.02, 0.05))

    claim = "A large mean does not drown the variance."
    return _law("large_mean", claim, ("computes E[x^2] - E[x]^2", difference_of_squares), check, "a variance")


def _merged(how: NormalizerClaims) -> Law:
    def check(subject: Any, drawn: list[Tensor], seen: Seen) -> None:
        functions = how.functions(subject)
        merge: Any = functions.merge  # `prepare` refuses a subject without it
        cut = len(drawn) // 2
        seen("data on both sides", cut > 0)
        first, second = drawn[: max(cut, 1)], drawn[cut:]
        states = [how.after(functions, part) for part in (first, second)]
        got = how.moments(functions, merge(*states))
        both = how.wanted([*first, *second]) if how.prior < 1e-3 else None
        if both is not None:
            same(
                "(mean, variance) of both",
                got,
                both,
                Tolerance("merged", how.tolerance, max(how.tolerance, 8 * how.prior)),
            )

    def prepare(subject: Any) -> Any:
        if how.functions(subject).merge is None:
            raise NotHere("it does not merge")
        return subject

    claim = "Merged statistics are those of both data."
    mutant = ("leaves out the distance of the means", forgets_distance)
    return _law("merge_is_both", claim, mutant, check, "data on both sides", prepare=prepare)


def _needs_normalize(how: NormalizerClaims) -> Callable[[Any], Any]:
    def prepare(subject: Any) -> Any:
        if how.functions(subject).normalize is None:
            raise NotHere("it does not normalize")
        return subject

    return prepare


def _normalized(how: NormalizerClaims, functions: NormalizerFunctions, state: Any, x: Tensor) -> Tensor:
    assert functions.normalize is not None
    return torch.as_tensor(functions.normalize(state, how.given(x)))


def _scaled(how: NormalizerClaims) -> Law:
    def check(subject: Any, drawn: list[Tensor], seen: Seen) -> None:
        functions = how.functions(subject)
        state = how.after(functions, drawn)
        mean, variance = how.moments(functions, state)
        x = torch.cat([drawn[0], drawn[0] + 40.0])
        wanted = ((x.double() - mean) / (variance + how.eps).sqrt()).clamp(-how.clip, how.clip)
        seen("a variance other than 1", bool(((variance - 1).abs() > 0.1).any()))
        got = _normalized(how, functions, state, x).double()
        quiet = (variance < 1e-6).expand_as(got)
        same("normalised data", got[~quiet], wanted[~quiet], Tolerance("normalised", 1e-4, 1e-4))

    claim = "Normalised data are (x - mean) / sqrt(variance + eps), clipped."
    mutant = ("divides by the variance", unclipped)
    prepare = _needs_normalize(how)
    return _law("normalised", claim, mutant, check, "a variance other than 1", prepare=prepare)


def _frozen(how: NormalizerClaims) -> Law:
    def check(subject: Any, drawn: list[Tensor], seen: Seen) -> None:
        functions = how.functions(subject)
        state = how.after(functions, drawn)
        first = _normalized(how, functions, state, drawn[0]).clone()
        _normalized(how, functions, state, drawn[0] + 100.0)
        same("the same data, normalised again", _normalized(how, functions, state, drawn[0]), first)
        moments = how.moments(functions, state)
        same("(mean, variance) after use", moments, how.wanted(drawn), _tolerance(how))

    claim = "Normalising changes no statistics: in evaluation they stay."
    mutant = ("learns from whatever it normalises", learns_in_use)
    return _law("frozen_in_use", claim, mutant, check, prepare=_needs_normalize(how))


MUTANTS: dict[str, Edit] = {"has another ddof": sample_variance}
