"""How people get preparations wrong: edits of a TextTask that has one."""

import random
from collections.abc import Callable
from typing import Any

from attrs import evolve

from ...core.keys import Key
from ...core.language.preparation import Preparation, Prepared
from ...core.language.prompting import Prompting, Query, Response
from ...core.language.task import TextTask

Moved = tuple[Any, tuple[Query, ...]]


def _with(task: TextTask, change: Callable[[Preparation], Preparation]) -> TextTask:
    assert not isinstance(task.preparation, tuple)
    return evolve(task, preparation=change(task.preparation))


def _prompting(task: TextTask, change: Callable[[Prompting[Any, Any]], Prompting[Any, Any]]) -> TextTask:
    return _with(task, lambda one: evolve(one, prompting=change(one.prompting)))


def _result(task: TextTask, change: Callable[[Prepared], Prepared]) -> TextTask:
    return _prompting(task, lambda one: evolve(one, result=lambda state: change(one.result(state))))


def by_chance(task: TextTask) -> TextTask:
    """Draws its keys from Python's own random numbers."""
    drawn = random.Random(0)

    def changed(moved: Moved) -> Moved:
        state, queries = moved
        return state, tuple(evolve(one, sampling=(drawn.getrandbits(32), 0)) for one in queries)

    return _prompting(
        task,
        lambda one: evolve(
            one,
            begin=lambda *given: changed(one.begin(*given)),
            step=lambda state, responses: changed(one.step(state, responses)),
        ),
    )


def one_number(task: TextTask) -> TextTask:
    """Begins each preparation as the first."""

    def begin(one: Prompting[Any, Any]) -> Callable[[Key, int, int], Moved]:
        return lambda key, number, count: one.begin(key, 0, count)

    return _prompting(task, lambda one: evolve(one, begin=begin(one)))


def gives_up(task: TextTask) -> TextTask:
    """Ends without starts where a reply was empty."""

    def changed(one: Prompting[Any, Any]) -> Prompting[Any, Any]:
        def step(state: tuple[Any, bool], responses: tuple[Response, ...]) -> Moved:
            inner, queries = one.step(state[0], responses)
            return (inner, state[1] or any(not each.text for each in responses)), queries

        def begin(*given: Any) -> Moved:
            inner, queries = one.begin(*given)
            return (inner, False), queries

        def result(state: tuple[Any, bool]) -> Prepared:
            found: Prepared = one.result(state[0])
            return evolve(found, starts=(), otherwise=()) if state[1] else found

        return Prompting(begin=begin, step=step, result=result)

    return _prompting(task, changed)


def from_zero(task: TextTask) -> TextTask:
    """Numbers the records of each preparation from 0."""
    return _result(
        task,
        lambda one: evolve(one, records=tuple(evolve(each, number=place) for place, each in enumerate(one.records))),
    )


def other_figure(task: TextTask) -> TextTask:
    """Reports a figure that it does not name."""
    return _result(task, lambda one: evolve(one, figures={**one.figures, "unnamed": 1.0}))


def unnamed(task: TextTask) -> TextTask:
    """Does not name the classes that its states are made of."""
    return _with(task, lambda one: evolve(one, classes=()))
