"""Trainers that lag as people get them wrong: each is an edit around a right one."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.core.record import replace
from purestep.core.tree import tree_map
from purestep.runtime.train import RunState, Trainer

Make = Callable[..., Trainer]  # (model, algorithm, staleness)


def never_late(make: Make) -> Make:
    """Plays with the newest weights, whatever was asked for."""
    return lambda model, algorithm, staleness: make(model, algorithm, 0)


def one_later(make: Make) -> Make:
    """Counts the update under way too."""
    return lambda model, algorithm, staleness: make(model, algorithm, staleness + 1)


def beside(make: Make) -> Make:
    """Keeps old weights in a variable of its own, which no checkpoint holds."""

    def made(model: Any, algorithm: Any, staleness: int) -> Trainer:
        one, kept = make(model, algorithm, staleness), list[Any]()

        def iterate(state: RunState) -> Any:
            after, metrics = one.iterate(replace(state, past=kept[-1]) if kept else state)
            kept.append(after.past)
            return replace(after, past=state.past), metrics

        return evolve(one, iterate=iterate)

    return made


def _around(change: Callable[[RunState, RunState], RunState]) -> Callable[[Make], Make]:
    def mutant(make: Make) -> Make:
        def made(model: Any, algorithm: Any, staleness: int) -> Trainer:
            one = make(model, algorithm, staleness)

            def iterate(state: RunState) -> Any:
                after, metrics = one.iterate(state)
                return change(state, after), metrics

            return evolve(one, iterate=iterate)

        return made

    return mutant


def _frozen(before: RunState, after: RunState) -> RunState:
    return replace(after, past=before.past)


def _rewritten(before: RunState, after: RunState) -> RunState:
    if isinstance(before.past, tuple) and not before.past:
        return after
    return replace(after, past=tree_map(lambda past, new: past * 0 + new, after.past, before.learner.params))


first_weights = _around(_frozen)  # never looks for newer ones
one_slot = _around(_rewritten)  # keeps the weights before the last update in every place

MUTANTS: dict[str, Callable[[Make], Make]] = {
    "plays with the newest weights": never_late,
    "keeps one set of old weights": one_slot,
}
