"""Laws of schedules: f(n) -> number, n the count of updates done; or `make(optimizer)` for a scheduler of torch.optim.

    test_mine = check(schedule_laws(start=0.0, peak=1.0, end=0.1, warmup=5, steps=20), my_schedule)
    test_torch = check(schedule_laws(start=1.0, end=0.0, steps=10, shape="cosine"),
                       lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10))

>>> from purestep.properties import schedule_laws, verify
>>> late = lambda n: 1.0 - min(n + 1, 10) / 10
>>> verify(schedule_laws(start=1.0, end=0.0, steps=10), late)["ends"].detail
'the value at 0: got 0.9, wanted 1.0'
"""

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st

from ...core.errors import ChoiceError, choose, message
from ..framework.compare import Tolerance, require, same
from ..framework.law import Law, NotHere, Seen, Suite, law_constructor

Schedule = Callable[[Any], Any]

# --- mutants ---
# Common mistakes in schedules: each wraps a correct one that takes a tensor or a number.


def one_late(schedule: Schedule) -> Schedule:
    """Count from 1: the first value is never used."""
    return _through(schedule, lambda n: n + 1)


def keeps_moving(schedule: Schedule) -> Schedule:
    """Follow the line or the wave past its end."""
    return lambda n: schedule(n) - 0.01 * _relu(n - 40)


def wiggles(schedule: Schedule) -> Schedule:
    """Go up and down on the way."""
    return lambda n: schedule(n) + 0.04 * ((n % 3) == 1)


def jumps(schedule: Schedule) -> Schedule:
    """Skip a part: the second half runs a fifth ahead."""
    return _through(schedule, lambda n: n + 4 * (n >= 8))


def remembers(schedule: Schedule) -> Schedule:
    """Count the calls instead of reading the argument."""
    calls: list[int] = []

    def wrong(n: Any) -> Any:
        calls.append(1)
        return schedule(n * 0 + len(calls) - 1)

    return wrong


def bent(schedule: Schedule) -> Schedule:
    """Run through a part slowly."""
    return _through(schedule, lambda n: n - 1 * ((n > 6) & (n < 9)))


def starts_low(schedule: Schedule) -> Schedule:
    """Warm up from a third further below."""
    return lambda n: schedule(n) - 0.05 * (n < 2)


def integer_steps(schedule: Schedule) -> Schedule:
    """Divide integers without a remainder where the count is a tensor."""
    return lambda n: schedule(n // 2 * 2) if isinstance(n, torch.Tensor) else schedule(n)


def _through(schedule: Schedule, change: Callable[[Any], Any]) -> Schedule:
    return lambda n: schedule(change(n))


def _relu(n: Any) -> Any:
    return n * (n > 0)


def straight(n: Any) -> Any:
    """Return 1 - 3 n / 80 up to n = 20, then 1/4."""
    return 1.0 - 0.0375 * (n if n < 20 else 20)


# --- laws ---

SOURCE = "the schedule's own settings; Loshchilov and Hutter 2016, arXiv:1608.03983, for the cosine"
NUMBERS = Tolerance("numbers", 1e-6, 1e-7)
ARGUMENTS = ("int", "tensor", "both")
SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda fraction: fraction,
    "cosine": lambda fraction: 0.5 * (1.0 - math.cos(math.pi * fraction)),
}


@frozen
class ScheduleClaims:
    """Arguments of `schedule_laws`."""

    start: float
    end: float
    peak: float
    steps: int
    warmup: int
    jump: float
    argument: str
    last: int  # the largest count that is asked for

    def table(self, schedule: Schedule) -> list[float]:
        """Return the values at all counts that are asked for."""
        return [self.at(schedule, n) for n in range(self.last + 1)]

    def at(self, schedule: Schedule, n: int) -> float:
        """Return the value at n."""
        return float(schedule(torch.tensor(n) if self.argument == "tensor" else n))


def schedule_laws(
    *,
    start: float,
    end: float,
    steps: int,
    peak: float | None = None,
    warmup: int = 0,
    monotone: bool = True,
    constant_after: bool = True,
    jump: float | None = None,
    shape: str = "",
    rise: str = "linear",
    argument: str = "both",
) -> Suite:
    """Return the laws of a schedule that is `start` at 0 and `end` at `steps`.

    With `warmup` it rises from `start` to `peak` at n = warmup, with the shape `rise` ("linear" or "cosine"), and then goes to
    `end`. `monotone`: after that it never turns.
    `constant_after`: it stays `end` after `steps`; without it, no count beyond `steps` is asked for. `jump` is the largest
    difference of two neighbours (default: twice that of a straight line). `shape`, "linear" or "cosine", is that after the
    warm-up. It takes a count that is an "int", an int64 "tensor", or "both". A scheduler of torch.optim is stepped once per
    count, from a learning rate of max(start, peak, end).
    Raises: ChoiceError.
    """
    if argument not in ARGUMENTS:
        wanted, remedy = f"one of {ARGUMENTS}", "say what it takes"
        raise ChoiceError(message("schedule_laws: argument", got=argument, wanted=wanted, remedy=remedy))
    if not 0 <= warmup < steps:
        wanted, remedy = f"0 to {steps - 1}", "`steps` includes the warm-up"
        raise ChoiceError(message("schedule_laws: warmup", got=warmup, wanted=wanted, remedy=remedy))
    top = start if peak is None or not warmup else peak
    slopes = [abs(end - top) / (steps - warmup), abs(top - start) / max(warmup, 1)]
    most = 2.0 * max(slopes) if jump is None else jump
    how = ScheduleClaims(start, end, top, steps, warmup, most, argument, 3 * steps - 1 if constant_after else steps)
    laws = [_ends(how), _smooth(how), _pure(how)]
    laws += [_monotone(how)] if monotone else []
    laws += [_rises(how, choose("schedule_laws: rise", rise, SHAPES))] if warmup else []
    laws += [_stays(how)] if constant_after else []
    laws += [_shaped(how, choose("schedule_laws: shape", shape, SHAPES))] if shape else []
    laws += [_tensor(how)] if argument == "both" else []
    return Suite("schedule_laws", tuple(laws))


def _prepared(how: ScheduleClaims) -> Callable[[Schedule], Schedule]:
    """Return a function that makes a function of n of a subject that takes an optimizer."""

    def prepare(subject: Schedule) -> Schedule:
        return _rates(subject, how) if _takes_optimizer(subject) else subject

    return prepare


def _takes_optimizer(subject: Schedule) -> bool:
    try:
        names = list(inspect.signature(subject).parameters)
    except (TypeError, ValueError):
        return False
    return names[:1] == ["optimizer"]


def _rates(make: Schedule, how: ScheduleClaims) -> Schedule:
    param = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([param], lr=max(how.start, how.peak, how.end))
    scheduler, rates = make(optimizer), list[float]()
    for n in range(how.last + 1):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        if n < how.last:
            optimizer.step()
            scheduler.step()
    return lambda n: rates[int(n)]


_law = law_constructor(lambda: st.just(()), SOURCE, most=1)


def _number(name: str, got: float, wanted: float) -> None:
    require(abs(got - wanted) <= 1e-7 + 1e-6 * abs(wanted), f"{name}: got {got!r}, wanted {wanted!r}")


def _ends(how: ScheduleClaims) -> Law:
    def check(schedule: Schedule, inputs: Any, seen: Seen) -> None:
        wanted = {0: how.start, how.warmup: how.peak, how.steps: how.end}
        for n, value in wanted.items():
            _number(f"the value at {n}", how.at(schedule, n), value)

    claim = "It starts, has its peak and ends at the declared values and counts."
    return _law("ends", claim, ("is one count ahead", one_late), check, prepare=_prepared(how))


def _smooth(how: ScheduleClaims) -> Law:
    def check(schedule: Schedule, inputs: Any, seen: Seen) -> None:
        values = how.table(schedule)[: how.steps + 2]
        require(all(math.isfinite(value) for value in values), f"a value is not finite: {values}")
        for n, (a, b) in enumerate(itertools.pairwise(values)):
            require(abs(b - a) <= how.jump * 1.0001 + 1e-9, f"from {n} to {n + 1} it jumps from {a} to {b}")

    claim = "Neighbouring values differ by no more than the declared jump."
    return _law("no_jump", claim, ("skips a part of the way", jumps), check, prepare=_prepared(how))


def _pure(how: ScheduleClaims) -> Law:
    def check(schedule: Schedule, inputs: list[int], seen: Seen) -> None:
        seen("an earlier count after a later one", any(b < a for a, b in itertools.pairwise(inputs)))
        first = {n: how.at(schedule, n) for n in sorted(set(inputs))}
        for n in inputs:
            _number(f"the value at {n}, asked for again", how.at(schedule, n), first[n])

    claim = "The value depends on the count alone, in any order of calls."
    mutant = ("counts its calls", remembers)
    counts = st.lists(st.integers(0, min(2 * how.steps, how.last)), min_size=2, max_size=6)
    need = "an earlier count after a later one"
    return _law("depends_on_count", claim, mutant, check, need, inputs=counts, most=20, prepare=_prepared(how))


def _monotone(how: ScheduleClaims) -> Law:
    def check(schedule: Schedule, inputs: Any, seen: Seen) -> None:
        values = how.table(schedule)[how.warmup : how.steps + 1]
        sign = 1.0 if how.end >= how.peak else -1.0
        for n, (a, b) in enumerate(itertools.pairwise(values), how.warmup):
            require(
                sign * (b - a) >= -1e-9, f"from {n} to {n + 1} it goes from {a} to {b}, away from the end {how.end}"
            )

    claim = "After the warm-up it never moves away from its end."
    return _law("monotone", claim, ("goes up and down", wiggles), check, prepare=_prepared(how))


def _rises(how: ScheduleClaims, shape: Callable[[float], float]) -> Law:
    def check(schedule: Schedule, inputs: Any, seen: Seen) -> None:
        values = how.table(schedule)[: how.warmup + 1]
        for n, value in enumerate(values):
            wanted = how.start + (how.peak - how.start) * shape(n / how.warmup)
            _number(f"the value at {n} of {how.warmup} counts of warm-up", value, wanted)

    claim = "In the warm-up it goes from the start to the peak in the declared shape: in equal steps, or as a cosine."
    return _law("warms_up", claim, ("starts lower", starts_low), check, prepare=_prepared(how))


def _stays(how: ScheduleClaims) -> Law:
    def check(schedule: Schedule, inputs: Any, seen: Seen) -> None:
        for n in range(how.steps, how.last + 1):
            _number(f"the value at {n}, after the end at {how.steps}", how.at(schedule, n), how.end)

    claim = "After its last count it stays at its end."
    return _law("constant_after_end", claim, ("keeps moving", keeps_moving), check, prepare=_prepared(how))


def _shaped(how: ScheduleClaims, shape: Callable[[float], float]) -> Law:
    def check(schedule: Schedule, inputs: Any, seen: Seen) -> None:
        for n in range(how.warmup, how.steps + 1):
            wanted = how.peak + (how.end - how.peak) * shape((n - how.warmup) / (how.steps - how.warmup))
            _number(f"the value at {n}", how.at(schedule, n), wanted)

    claim = "Between peak and end it has the declared shape."
    return _law("shape", claim, ("is slow in a part", bent), check, prepare=_prepared(how))


def _tensor(how: ScheduleClaims) -> Law:
    def check(schedule: Schedule, inputs: Any, seen: Seen) -> None:
        for n in range(min(2 * how.steps, how.last + 1)):
            got = torch.as_tensor(schedule(torch.tensor(n)), dtype=torch.float64)
            same(f"the value at tensor({n}) against {n}", got, torch.tensor(how.at(schedule, n)).double(), NUMBERS)

    def prepare(subject: Schedule) -> Schedule:
        if _takes_optimizer(subject):
            raise NotHere("a scheduler counts its own steps")
        return subject

    claim = "A count that is a tensor gives the value of the same integer."
    return _law("tensor_count", claim, ("drops remainders of tensors", integer_steps), check, prepare=prepare)
