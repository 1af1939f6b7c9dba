"""How people get turns wrong: edits of a protocol's step."""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from purestep.core.language.episode import Completion, Episode, Prompt
from purestep.core.language.events import ABORT, LENGTH, Sampled
from purestep.core.language.world import ENV, MAX_STEPS, Terminated, Truncated

Begin = Callable[..., tuple[Episode[Any], Any]]
AnyStep = Callable[..., tuple[Episode[Any], Any]]


@frozen
class Turns:
    """The two functions of a protocol: `begin(protocol, key)` and `step(protocol, episode, completion, key)`."""

    begin: Begin
    step: AnyStep


def _after(change: Callable[[Episode[Any], Episode[Any]], Episode[Any]]) -> Callable[[Turns], Turns]:
    """The edit that changes the episode behind each step: `change(before, after)`."""

    def make(turns: Turns) -> Turns:
        def step(rules: Any, episode: Episode[Any], completion: Completion, key: Any) -> tuple[Episode[Any], Any]:
            after, turn = turns.step(rules, episode, completion, key)
            changed = change(episode, after) if after != episode else after
            return changed, turn if isinstance(changed.end, tuple) else changed.end

        return evolve(turns, step=step)

    return make


def _last(after: Episode[Any], **changes: Any) -> Episode[Any]:
    return evolve(after, steps=(*after.steps[:-1], evolve(after.steps[-1], **changes)))


def _new(before: Episode[Any], after: Episode[Any]) -> bool:
    return len(after.steps) > len(before.steps)


def _clear(before: Episode[Any], after: Episode[Any]) -> Episode[Any]:
    step = after.steps[-1] if after.steps else None
    return _last(after, observation=()) if step and step.truncated and not step.acted else after


def _limit_first(before: Episode[Any], after: Episode[Any]) -> Episode[Any]:
    return evolve(_last(after, reason=MAX_STEPS), end=Truncated(MAX_STEPS)) if after.end == Truncated(ENV) else after


def _fails_end(before: Episode[Any], after: Episode[Any]) -> Episode[Any]:
    new = _new(before, after) and after.steps[-1].parse_error
    return evolve(_last(after, terminated=True), end=Terminated()) if new else after


def _unpaid(before: Episode[Any], after: Episode[Any]) -> Episode[Any]:
    if not _new(before, after) or not after.steps[-1].acted:
        return after
    said = [event for event in after.events if isinstance(event, Sampled)]
    return _last(after, reward=after.steps[-1].reward - said[-1].reward)


def _forget(before: Episode[Any], after: Episode[Any]) -> Episode[Any]:
    refused = [event for event in after.events if isinstance(event, Sampled) and event.parse_error]
    return evolve(after, events=tuple(event for event in after.events if event not in refused))


def _length_truncates(before: Episode[Any], after: Episode[Any]) -> Episode[Any]:
    if not _new(before, after) or after.steps[-1].finish_reason != LENGTH or not isinstance(after.end, tuple):
        return after
    return evolve(_last(after, truncated=True, reason=LENGTH), end=Truncated(LENGTH))


def _free_tools(before: Episode[Any], after: Episode[Any]) -> Episode[Any]:
    return evolve(after, tools_used=0)


clears_feedback = _after(_clear)
forgets_refused = _after(_forget)
length_truncates = _after(_length_truncates)
tools_are_free = _after(_free_tools)


def goes_on(turns: Turns) -> Turns:
    """Takes a completion after the end for one more."""

    def step(rules: Any, episode: Episode[Any], completion: Completion, key: Any) -> tuple[Episode[Any], Any]:
        return turns.step(rules, evolve(episode, end=()), completion, key)

    return evolve(turns, step=step)


def counts_aborted(turns: Turns) -> Turns:
    """Counts a model call that was given up."""

    def step(rules: Any, episode: Episode[Any], completion: Completion, key: Any) -> tuple[Episode[Any], Any]:
        after, turn = turns.step(rules, episode, completion, key)
        given_up = completion.finish_reason == ABORT and isinstance(turn, Prompt)
        return (evolve(after, calls=after.calls + 1) if given_up else after), turn

    return evolve(turns, step=step)


def reads_what_was_cut(turns: Turns) -> Turns:
    """Reads a completion that was cut at its length like any other."""

    def step(rules: Any, episode: Episode[Any], completion: Completion, key: Any) -> tuple[Episode[Any], Any]:
        return turns.step(evolve(rules, incomplete="accept"), episode, completion, key)

    return evolve(turns, step=step)


MUTANTS: dict[str, Callable[[Turns], Turns]] = {
    "calls the world's own cut the limit of steps": _after(_limit_first),
    "ends an episode that could not be read": _after(_fails_end),
    "pays the parser nothing for an action": _after(_unpaid),
}
