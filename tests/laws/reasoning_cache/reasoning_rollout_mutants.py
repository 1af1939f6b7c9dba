"""How people run problems through cycles wrong: keys by place, tokens of the other kind, places without end, runs lost."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen

from purestep.core.language.prompting import Prompting, Query
from purestep.core.language.reasoning_cycles import Cycles
from purestep.core.language.reasoning_evaluation import Standing
from purestep.core.language.reasoning_state import InferenceProblemState


@frozen
class Cycling:
    """The functions of core.language.reasoning_cycles and reasoning_evaluation, under their names there."""

    cycling: Callable[..., Prompting[Any, Any]]
    standing: Callable[[Sequence[InferenceProblemState]], Standing]


def _asking(one: Cycling, change: Callable[[int, Query], Query]) -> Cycling:
    """Every query is another one, by its place among those that are due."""

    def cycling(*given: Any, **named: Any) -> Prompting[Any, Any]:
        made = one.cycling(*given, **named)

        def changed(moved: tuple[Any, tuple[Query, ...]]) -> tuple[Any, tuple[Query, ...]]:
            state, queries = moved
            return state, tuple(change(place, query) for place, query in enumerate(queries))

        return Prompting(
            begin=lambda *given: changed(made.begin(*given)),
            step=lambda state, responses: changed(made.step(state, responses)),
            result=made.result,
        )

    return evolve(one, cycling=cycling)


def keys_by_place(one: Cycling) -> Cycling:
    """Samples each call with a key of its place in the batch."""
    return _asking(one, lambda place, query: evolve(query, sampling=(place, 0)))


def one_limit(one: Cycling) -> Cycling:
    """Gives summaries the tokens of steps of reasoning."""

    def cycling(*given: Any, limits: tuple[int, int], **named: Any) -> Prompting[Any, Any]:
        return one.cycling(*given, limits=(limits[0], limits[0]), **named)

    return evolve(one, cycling=cycling)


def without_places(one: Cycling) -> Cycling:
    """Has all runs under way at once."""

    def cycling(cache: Any, settings: Any, *given: Any, **named: Any) -> Prompting[Any, Any]:
        return one.cycling(cache, evolve(settings, llm_max_rollouts=999), *given, **named)

    return evolve(one, cycling=cycling)


def loses_the_last(one: Cycling) -> Cycling:
    """Finds all groups but the last."""

    def cycling(cache: Any, settings: Any, problems: Any, result: Any, **named: Any) -> Prompting[Any, Any]:
        def found(key: Any, cycles: Cycles) -> Any:
            return result(key, evolve(cycles, found=cycles.found[:-1]))

        return one.cycling(cache, settings, problems, found, **named)

    return evolve(one, cycling=cycling)


def hurries(one: Cycling) -> Cycling:
    """Makes calls that failed again at once."""
    return _asking(one, lambda place, query: evolve(query, delay=0.0))


def never_forgets(cycling: Cycling) -> Cycling:
    """Counts what a summary once carried for good."""

    def standing(states: Sequence[InferenceProblemState]) -> Standing:
        found = cycling.standing(states)
        best = tuple(max(found.carried[: turn + 1]) for turn in range(len(found.carried)))
        return evolve(found, carried=best)

    return evolve(cycling, standing=standing)


def newest_tokens(cycling: Cycling) -> Cycling:
    """Counts the tokens of each cycle alone."""

    def standing(states: Sequence[InferenceProblemState]) -> Standing:
        found = cycling.standing(states)
        before = (0.0, *found.tokens)
        return evolve(found, tokens=tuple(now - then for now, then in zip(found.tokens, before, strict=False)))

    return evolve(cycling, standing=standing)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "counts the tokens of each cycle alone": newest_tokens,
}
