"""Laws of preparations, for any task: queries are a function of key, number and replies, and each result has starts.

from purestep.properties import check, preparation_laws
test_my_preparation = check(preparation_laws("a text that means something"), my_task())
"""

import math
import random
from collections.abc import Callable
from typing import Any

from attrs import evolve
from hypothesis import strategies as st

from ....core import keys
from ....core.keys import Key
from ....core.language.events import LENGTH, STOP
from ....core.language.preparation import Preparation, Prepared
from ....core.language.prompting import Prompting, Query, Response
from ....core.language.task import TRAINING, TextTask
from ....core.language.types import ModelOutput
from ....runtime.async_rl.preparation import kept_starts, starts_from
from ...framework.compare import require, same
from ...framework.law import Law, Mutant, Seen, Suite, always
from ...strategies.language import texts
from ...strategies.values import seeds

# --- mutants ---
# Common errors in preparations: edits of a TextTask that has one.


Moved = tuple[Any, tuple[Query, ...]]


def _with(task: TextTask, change: Callable[[Preparation], Preparation]) -> TextTask:
    assert not isinstance(task.preparation, tuple)
    return evolve(task, preparation=change(task.preparation))


def _prompting(task: TextTask, change: Callable[[Prompting[Any, Any]], Prompting[Any, Any]]) -> TextTask:
    return _with(task, lambda one: evolve(one, prompting=change(one.prompting)))


def _result(task: TextTask, change: Callable[[Prepared], Prepared]) -> TextTask:
    return _prompting(task, lambda one: evolve(one, result=lambda state: change(one.result(state))))


def by_chance(task: TextTask) -> TextTask:
    """Draw the sampling keys from Python's random generator."""
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
    """Begin each preparation with number 0."""

    def begin(one: Prompting[Any, Any]) -> Callable[[Key, int, int], Moved]:
        return lambda key, number, count: one.begin(key, 0, count)

    return _prompting(task, lambda one: evolve(one, begin=begin(one)))


def gives_up(task: TextTask) -> TextTask:
    """Return no starts if a reply was empty."""

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
    """Number the records of each preparation from 0."""
    return _result(
        task,
        lambda one: evolve(one, records=tuple(evolve(each, number=place) for place, each in enumerate(one.records))),
    )


def other_figure(task: TextTask) -> TextTask:
    """Report a figure that is not in the preparation's `figures`."""
    return _result(task, lambda one: evolve(one, figures={**one.figures, "unnamed": 1.0}))


def unnamed(task: TextTask) -> TextTask:
    """Leave out the classes of the states, which a checkpoint needs."""
    return _with(task, lambda one: evolve(one, classes=()))


# --- laws ---


SOURCE = "core.language.preparation: queries follow from key, number and replies"
ROUNDS = 200  # maximum for a preparation of a few tasks
Script = tuple[int, int, int, list[str]]  # a seed, a number, the number of tasks, replies that are used in turn


def preparation_laws(*replies: str) -> Suite:
    """The laws of a TextTask with a preparation. `replies` are completions that it can parse; other texts are tried as well."""
    scripts = st.tuples(
        seeds(), st.integers(0, 3), st.integers(1, 2), st.lists(texts(*replies, *replies), min_size=1, max_size=8)
    )
    laws = (_repeated(), _own_keys(), _starts(), _numbered(), _figures(), _kept())
    return Suite("preparation_laws", tuple(law(scripts) for law in laws))


class Played:
    """A finished preparation whose queries were answered by the texts of `said` in turn: all queries, and the result."""

    def __init__(self, task: TextTask, seed: int, number: int, count: int, said: list[str]) -> None:
        self.queries: list[Query] = []
        self.rounds: list[int] = []
        preparation = of(task)
        state, due = preparation.prompting.begin(keys.key(seed), number, count)
        while due:
            require(len(self.rounds) < ROUNDS, f"a preparation ends within {ROUNDS} rounds")
            responses = [_response(said[(len(self.queries) + place) % len(said)]) for place in range(len(due))]
            self.queries.extend(due)
            self.rounds.append(len(due))
            state, due = preparation.prompting.step(state, tuple(responses))
        self.prepared: Prepared = preparation.prompting.result(state)


def of(task: TextTask) -> Preparation:
    """The preparation of a task. Raises: Broken if the task has none."""
    require(not isinstance(task.preparation, tuple), "the task has a preparation")
    return task.preparation  # type: ignore[return-value]


def _response(text: str) -> Response:
    if not text:  # as if the prompt leaves no room for an answer
        return Response(finish_reason=LENGTH)
    said = ModelOutput(ids=tuple(map(ord, text)), log_probs=(0.0,) * len(text), versions=(0,) * len(text))
    return Response(text=text, finish_reason=STOP, said=said)


def _law(name: str, claim: str, mutant: Mutant, check: Callable[..., None], *needs: str) -> Callable[[Any], Law]:
    return lambda scripts: Law(
        name=name, claim=claim, source=SOURCE, inputs=always(scripts), check=check, mutant=mutant, needs=needs, most=60
    )


def _repeated() -> Callable[[Any], Law]:
    def check(task: TextTask, script: Script, seen: Seen) -> None:
        one, other = Played(task, *script), Played(task, *script)
        seen("several rounds", len(one.rounds) > 1)
        same("queries", other.queries, one.queries)
        same("starts", other.prepared.starts, one.prepared.starts)
        same("otherwise", other.prepared.otherwise, one.prepared.otherwise)
        same("records", other.prepared.records, one.prepared.records)

    mutant = Mutant("draws by chance", by_chance)
    return _law(
        "repeated",
        "The same key, number and replies give the same queries and starts.",
        mutant,
        check,
        "several rounds",
    )


def _own_keys() -> Callable[[Any], Law]:
    def check(task: TextTask, script: Script, seen: Seen) -> None:
        seed, number, _, said = script
        asked = [one for n in (number, number + 1) for one in Played(task, seed, n, 1, said).queries]
        seen("several queries", len(asked) > 2)
        same("sampling keys, each once", len({one.sampling for one in asked}), len(asked))

    mutant = Mutant("forgets its number", one_number)
    return _law("own_keys", "No two queries of a run share a sampling key.", mutant, check, "several queries")


def _starts() -> Callable[[Any], Law]:
    def check(task: TextTask, script: Script, seen: Seen) -> None:
        prepared, world = Played(task, *script).prepared, task.env(TRAINING)
        starts = (*prepared.starts, *prepared.otherwise)
        require(bool(starts), "something is prepared: starts, or others in their place")
        seen("a start", bool(prepared.starts))
        for start in starts:
            require(bool(start.observation), "a start shows something")
            for text in script[3]:
                action = task.parser(text)
                if not action.failed:
                    _, outcome = world.step(world.params, start.state, action.action, keys.key(0))
                    require(math.isfinite(outcome.reward), "a step from a start has a reward that is a number")

    mutant = Mutant("gives up where a reply is empty", gives_up)
    claim = "Whatever was replied, a preparation ends with starts from which the world goes on."
    return _law("starts", claim, mutant, check, "a start")


def _numbered() -> Callable[[Any], Law]:
    def check(task: TextTask, script: Script, seen: Seen) -> None:
        seed, number, _, said = script
        together = [one.number for one in Played(task, seed, number, 2, said).prepared.records]
        apart = [
            one.number for n in (2 * number, 2 * number + 1) for one in Played(task, seed, n, 1, said).prepared.records
        ]
        seen("records", bool(apart))
        seen("not the first", number > 0)
        same("numbers of two tasks at once, and one by one", sorted(together), sorted(apart))
        same("numbers, each once", len(set(apart)), len(apart))

    mutant = Mutant("numbers the records of each preparation from 0", from_zero)
    claim = "Records have numbers of their own, the same ones however many tasks are prepared at once."
    return _law("numbered", claim, mutant, check, "records", "not the first")


def _figures() -> Callable[[Any], Law]:
    def check(task: TextTask, script: Script, seen: Seen) -> None:
        prepared = Played(task, *script).prepared
        seen("figures", bool(prepared.figures))
        same("names of figures", set(prepared.figures), set(of(task).figures))
        require(all(isinstance(one, float) for one in prepared.figures.values()), "figures are floats")
        require(prepared.texts >= 0, "published texts are counted")

    mutant = Mutant("reports a figure that it does not name", other_figure)
    return _law("figures", "A preparation reports the figures that it names.", mutant, check, "figures")


def _kept() -> Callable[[Any], Law]:
    def check(task: TextTask, script: Script, seen: Seen) -> None:
        preparation, prepared = of(task), Played(task, *script).prepared
        starts = dict(enumerate((*prepared.starts, *prepared.otherwise)))
        seen("a start", bool(starts))
        same("starts from a checkpoint", starts_from(kept_starts(starts), preparation, "here"), starts)

    mutant = Mutant("does not name the classes of its states", unnamed)
    return _law("kept", "A start in a checkpoint is the same start.", mutant, check, "a start")
