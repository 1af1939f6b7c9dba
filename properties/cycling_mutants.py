"""How people run problems through cycles wrong: keys by place, tokens of the other kind, places without end, runs lost."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen

from ..core.language.reasoning_events import GroupResult
from ..core.language.reasoning_state import InferenceProblemState
from ..runtime.reasoning.cycles import Asked
from ..runtime.reasoning.standing import Standing


@frozen
class Cycling:
    """The functions of runtime.reasoning.cycles and standing, under their names there."""

    cycled: Callable[..., tuple[GroupResult, ...]]
    standing: Callable[[Sequence[InferenceProblemState]], Standing]


def _speaking(cycling: Cycling, change: Callable[[int, Asked], Asked]) -> Cycling:
    """Every call is put to the model otherwise, by its place in the batch."""

    def cycled(cache: Any, settings: Any, problems: Any, speak: Any, *given: Any, **named: Any) -> Any:
        def other(worker: int, asked: Sequence[Asked]) -> Any:
            return speak(worker, [change(place, one) for place, one in enumerate(asked)])

        return cycling.cycled(cache, settings, problems, other, *given, **named)

    return evolve(cycling, cycled=cycled)


def keys_by_place(cycling: Cycling) -> Cycling:
    """Samples each call with a key of its place in the batch."""
    return _speaking(cycling, lambda place, one: evolve(one, request=evolve(one.request, sampling=(place, 0))))


def one_stream(cycling: Cycling) -> Cycling:
    """Asks for calls of training whatever it is told."""
    return _speaking(cycling, lambda place, one: evolve(one, request=evolve(one.request, task=(0, 0))))


def one_limit(cycling: Cycling) -> Cycling:
    """Gives summaries the tokens of steps of reasoning."""

    def cycled(*given: Any, limits: tuple[int, int], **named: Any) -> Any:
        return cycling.cycled(*given, limits=(limits[0], limits[0]), **named)

    return evolve(cycling, cycled=cycled)


def without_places(cycling: Cycling) -> Cycling:
    """Has all runs under way at once."""

    def cycled(cache: Any, settings: Any, *given: Any, **named: Any) -> Any:
        return cycling.cycled(cache, evolve(settings, llm_max_rollouts=999), *given, **named)

    return evolve(cycling, cycled=cycled)


def loses_the_last(cycling: Cycling) -> Cycling:
    """Publishes all groups but the last."""

    def cycled(cache: Any, settings: Any, problems: Any, *given: Any, publish: Any, **named: Any) -> Any:
        last = len(problems) * settings.num_samples_per_problem - 1

        def told(result: GroupResult) -> None:
            if result.number != last:
                publish(result)

        return cycling.cycled(cache, settings, problems, *given, publish=told, **named)

    return evolve(cycling, cycled=cycled)


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
    "gives summaries the tokens of steps of reasoning": one_limit,
    "counts the tokens of each cycle alone": newest_tokens,
}
