"""Laws of numbers in the state: an update depends on those of its state alone, not on those its algorithm was made with."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.algorithms.algorithm import Algorithm, TrainState, with_numbers
from purestep.core import keys
from purestep.core.optim.optimizers import sgd
from purestep.core.tree import leaves
from purestep.properties.framework.compare import EXACT, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.suites.update import UpdateInputs, small_model, update_inputs

Make = Callable[..., Algorithm]  # makes an algorithm from its numbers, by keyword
SHARES = (0.25, 0.5, 0.75, 1.0)


@frozen
class Case:
    """Data of an update, the numbers that the algorithm is made with, and those that its state gets."""

    given: UpdateInputs
    made: dict[str, float]
    wanted: dict[str, float]


def numbers_laws(*names: str) -> Suite:
    """The laws of an algorithm with these numbers, each of which may be one of SHARES."""

    @st.composite
    def cases(draw: DrawFn) -> Case:
        made, wanted = ({name: draw(st.sampled_from(SHARES)) for name in names} for _ in range(2))
        return Case(draw(update_inputs()), made, wanted)

    law = law_constructor(cases, "the contract of TrainState.numbers")
    return Suite("numbers_laws", (_state_decides(law), _kept(law)))


def _state(algorithm: Algorithm, case: Case, numbers: dict[str, float]) -> TrainState:
    own = {name: torch.tensor(number, dtype=torch.float64) for name, number in numbers.items()}
    return with_numbers(algorithm.init(keys.key(case.given.seed)), own)


def _state_decides(law: Callable[..., Law]) -> Law:
    def check(make: Make, case: Case, seen: Seen) -> None:
        one, other = (make(small_model(), sgd(0.5), **numbers) for numbers in (case.made, case.wanted))
        key = keys.key(case.given.update_seed)
        got, figures = one.update(_state(one, case, case.wanted), case.given.trajectory, key)
        wanted, expected = other.update(other.init(keys.key(case.given.seed)), case.given.trajectory, key)
        seen("every number another", all(case.made[name] != case.wanted[name] for name in case.made))
        stale, _ = one.update(one.init(keys.key(case.given.seed)), case.given.trajectory, key)
        pairs = zip(leaves(stale.params), leaves(wanted.params), strict=True)
        seen("numbers that matter", any(not torch.equal(a, b) for a, b in pairs))
        same("the state and metrics", (got, dict(figures)), (wanted, dict(expected)), EXACT)

    claim = "An update with numbers in its state is, bit for bit, that of the algorithm made with these numbers."
    mutant = ("uses the gamma it was made with", partial(_closes_over, "gamma"))
    return law("state_decides", claim, mutant, check, "every number another", "numbers that matter", share=0.01)


def _kept(law: Callable[..., Law]) -> Law:
    def check(make: Make, case: Case, seen: Seen) -> None:
        algorithm = make(small_model(), sgd(0.5), **case.made)
        before = _state(algorithm, case, case.wanted)
        after, _ = algorithm.update(before, case.given.trajectory, keys.key(case.given.update_seed))
        seen("another number than it was made with", case.made != case.wanted)
        same("the numbers", after.numbers, before.numbers, EXACT)

    claim = "An update leaves the numbers as they are."
    mutant = ("writes back the numbers it was made with", _forgets)
    return law("numbers_stay", claim, mutant, check, "another number than it was made with")


# --- mutants ---


def _closes_over(name: str, right: Make) -> Make:
    def make(*given: Any, **numbers: float) -> Algorithm:
        algorithm = right(*given, **numbers)
        own = {name: torch.tensor(numbers[name], dtype=torch.float64)}

        def update(state: TrainState, trajectory: Any, key: Tensor) -> Any:
            after, metrics = algorithm.update(with_numbers(state, own), trajectory, key)
            return with_numbers(after, {name: state.numbers[name]}), metrics

        return evolve(algorithm, update=update)

    return make


def _forgets(right: Make) -> Make:
    def make(*given: Any, **numbers: float) -> Algorithm:
        algorithm = right(*given, **numbers)

        def update(state: TrainState, trajectory: Any, key: Tensor) -> Any:
            after, metrics = algorithm.update(state, trajectory, key)
            return with_numbers(after, algorithm.init(key).numbers), metrics

        return evolve(algorithm, update=update)

    return make


MUTANTS: dict[str, Callable[[Make], Make]] = {
    f"uses the {name} it was made with": partial(_closes_over, name)
    for name in ("gae_lambda", "value_coefficient", "entropy_coefficient")
}
