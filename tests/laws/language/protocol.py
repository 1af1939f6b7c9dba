"""Laws of the turn protocol of a text environment: the effects that a completion may have, and those that it may not.

The subject is a `Turns`: the two functions of a protocol. The laws use a ledger environment with the tools add and peek.
"""

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import attrs
from attrs import evolve, frozen
from hypothesis import strategies as st

from purestep.core import keys
from purestep.core.language.episode import Completion, Episode, Prompt, Step
from purestep.core.language.events import ABORT, FINISH_REASONS, LENGTH, Feedback, Sampled, System, ToolResult, User
from purestep.core.language.text_env import ENV, MAX_STEPS, Terminated, Truncated
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.properties.strategies.language import MOVES, LanguageLedger, texts
from purestep.runtime.machine.json_codec import decode, encode

from .protocol_model import expected
from .scripts import Options, Script, options, scripts, step_key

# --- mutants ---
# Common errors in turns: edits of a protocol's step.


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
    """Accept a completion after the end of the episode."""

    def step(rules: Any, episode: Episode[Any], completion: Completion, key: Any) -> tuple[Episode[Any], Any]:
        return turns.step(rules, evolve(episode, end=()), completion, key)

    return evolve(turns, step=step)


def counts_aborted(turns: Turns) -> Turns:
    """Count a model call that was aborted."""

    def step(rules: Any, episode: Episode[Any], completion: Completion, key: Any) -> tuple[Episode[Any], Any]:
        after, turn = turns.step(rules, episode, completion, key)
        given_up = completion.finish_reason == ABORT and isinstance(turn, Prompt)
        return (evolve(after, calls=after.calls + 1) if given_up else after), turn

    return evolve(turns, step=step)


def reads_what_was_cut(turns: Turns) -> Turns:
    """Parse a completion that was cut at its length limit like any other."""

    def step(rules: Any, episode: Episode[Any], completion: Completion, key: Any) -> tuple[Episode[Any], Any]:
        return turns.step(evolve(rules, incomplete="accept"), episode, completion, key)

    return evolve(turns, step=step)


MUTANTS: dict[str, Callable[[Turns], Turns]] = {
    "calls the world's own cut the limit of steps": _after(_limit_first),
    "ends an episode that could not be read": _after(_fails_end),
    "pays the parser nothing for an action": _after(_unpaid),
}


# --- laws ---


SOURCE = "core.language.protocol: why a call ended, why an episode did, and whether a text was read are three things"
CLASSES = (System, User, Sampled, ToolResult, Feedback, Terminated, Truncated, Episode, Step, LanguageLedger)
PARTS = (*MOVES.values(), "ADD[", "PEEK[x]ADD[1]", "add['12']")


def protocol_laws() -> Suite:
    """The laws of a turn protocol."""
    return Suite(
        "protocol_laws", (_table(), _valid(), _append_only(), _retry(), _incomplete(), _finish_reason(), _auxiliary())
    )


def _law(name: str, claim: str, mutant: Mutant, check: Callable[..., None], *needs: str, inputs: Any = None) -> Law:
    drawn = st.lists(scripts(), min_size=4, max_size=8) if inputs is None else inputs

    def each(turns: Turns, several: Iterable[Any], seen: Seen) -> None:
        for one in several:
            check(turns, one, seen)

    return Law(name=name, claim=claim, source=SOURCE, inputs=always(drawn), check=each, mutant=mutant, needs=needs)


def played(turns: Turns, how: Options, completions: Iterable[Completion]) -> list[tuple[Episode[Any], Any]]:
    """The episode before and after each completion, with the turn that is due."""
    rules = how.protocol()
    states = [turns.begin(rules, keys.key(1))]
    for number, completion in enumerate(completions):
        states.append(turns.step(rules, states[-1][0], completion, step_key(number)))
    return states


def completed(script: Script) -> list[Completion]:
    """The completions of a script."""
    return [Completion(MOVES[move], finish) for move, finish in script[1]]


def _rows(rows: Iterable[dict[str, Any]]) -> list[list[tuple[str, Any]]]:
    return [sorted(row.items()) for row in rows]


def _table() -> Law:
    def check(turns: Turns, script: Script, seen: Seen) -> None:
        how, moves = script
        wanted = expected(how, moves)
        episode, turn = played(turns, how, completed(script))[-1]
        for name in wanted.seen:
            seen(name)
        same("steps", _rows(map(attrs.asdict, episode.steps)), _rows(wanted.rows))
        ended = "terminated" if isinstance(episode.end, Terminated) else getattr(episode.end, "reason", "")
        same("the end", ended, wanted.end)
        same("the world", episode.world.numbers, wanted.numbers)
        same("calls and tools", (episode.calls, episode.tools_used), (wanted.calls, wanted.tools_used))
        if not ended:
            same("tools left", turn.tools_left, how.tool_budget - wanted.tools_used)

    needs = (
        *("end, terminated", "cut, env", "both, terminated", "add, max_steps", "babble, max_steps", "babble, goes on"),
        *("length, goes on", "length, max_steps", "no tools, goes on", "a text cut at its length and accepted"),
    )
    mutant = Mutant("clears the word to the model at the limit of steps", clears_feedback)
    claim = "Steps, endings, rewards and what is seen next are those of the table, row by row."
    return _law("table", claim, mutant, check, *needs)


def _valid() -> Law:
    def check(turns: Turns, inputs: tuple[Options, list[tuple[str, str]]], seen: Seen) -> None:
        how, said = inputs
        states = played(turns, how, [Completion(text, finish) for text, finish in said])
        for episode, turn in states:
            steps, ended = episode.steps, not isinstance(episode.end, tuple)
            flagged = [step.terminated or step.truncated for step in steps]
            calls = [event.call for event in episode.events if isinstance(event, Sampled)]
            seen("an end by the limit", episode.end == Truncated("max_steps"))
            seen("an action among other text", any(step.acted for step in steps))
            require(len(steps) <= how.max_steps, f"at most {how.max_steps} steps, got {len(steps)}")
            require(0 <= episode.tools_used <= how.tool_budget, "no more tools than the budget has")
            same("the numbers of the calls", calls, list(range(episode.calls)))
            same("the number of env steps", episode.turn, sum(step.acted for step in steps))
            same("the steps that end it", flagged, [False] * (len(steps) - ended) + [True] * ended)
            same("whose turn it is", isinstance(turn, Prompt), not ended)
            same("the episode as text", decode(json.loads(json.dumps(encode(episode))), CLASSES), episode)

    said = st.lists(st.tuples(texts(*PARTS, *PARTS), st.sampled_from(FINISH_REASONS)), max_size=8)
    mutant = Mutant("takes a completion after the end for one more", goes_on)
    claim = "Any completion whatever leaves a valid episode: counts agree, limits hold, its last step alone ends it."
    needs = ("an end by the limit", "an action among other text")
    return _law("any_completion", claim, mutant, check, *needs, inputs=st.lists(st.tuples(options(), said), max_size=4))


def _append_only() -> Law:
    def check(turns: Turns, script: Script, seen: Seen) -> None:
        states = played(turns, script[0], completed(script))
        for (before, _), (after, turn) in pairwise(states):
            same("what stood", after.events[: len(before.events)], before.events)
            added = after.events[len(before.events) :]
            seen("a text that was refused", any(isinstance(event, Sampled) and event.parse_error for event in added))
            seen("a tool's answer", any(isinstance(event, ToolResult) for event in added))
            if isinstance(turn, Prompt):
                same("what the model is shown", turn.added, added[1:])
            if added:
                require(isinstance(added[0], Sampled), "the model's text comes first")
            require(not any(isinstance(event, Sampled) for event in added[1:]), "one call adds one text")

    mutant = Mutant("forgets a text that was refused", forgets_refused)
    claim = "The transcript only grows: by the model's text, whatever it was, and by what the model is shown next."
    return _law("append_only", claim, mutant, check, "a text that was refused", "a tool's answer")


def _retry() -> Law:
    def check(turns: Turns, script: Script, seen: Seen) -> None:
        how, completions = script[0], completed(script)
        rules, states = how.protocol(), played(turns, how, completions)
        for number, completion in enumerate(completions):
            again = turns.step(rules, states[number][0], completion, step_key(number))
            same("the same turn again", again, states[number + 1])
        kept = [number for number, completion in enumerate(completions) if completion.finish_reason != ABORT]
        seen("a call given up", len(kept) < len(completions))
        episode, _ = turns.begin(rules, keys.key(1))
        for number in kept:
            episode, _ = turns.step(rules, episode, completions[number], step_key(number))
        same("the episode without the calls given up", episode, states[-1][0])

    mutant = Mutant("counts a model call that was given up", counts_aborted)
    claim = "A turn taken again from the same state is the same, and a call that was given up changes nothing."
    return _law("retry", claim, mutant, check, "a call given up")


def _incomplete() -> Law:
    def check(turns: Turns, script: Script, seen: Seen) -> None:
        how = evolve(script[0], incomplete="reject")
        states = played(turns, how, completed(script))
        for (_, finish), (before, _), (after, _) in zip(script[1], states, states[1:], strict=False):
            if finish == LENGTH and after != before:
                seen("a text cut at its length")
                same(
                    "the world",
                    (after.world, after.turn, after.tools_used),
                    (before.world, before.turn, before.tools_used),
                )
                step, said = after.steps[-1], after.events[len(before.events)]
                marks = (step.incomplete, step.acted, step.parse_error, step.finish_reason)
                same("its step", marks, (True, False, True, LENGTH))
                require(isinstance(said, Sampled) and said.incomplete, "its text is marked as incomplete")

    mutant = Mutant("reads a text that was cut at its length", reads_what_was_cut)
    claim = "An incomplete completion is no action: no env step and no tool, though its text stays in the transcript."
    return _law("no_action_from_half_a_text", claim, mutant, check, "a text cut at its length")


def _finish_reason() -> Law:
    def check(turns: Turns, script: Script, seen: Seen) -> None:
        how = evolve(script[0], incomplete="accept")
        completions = [completion for completion in completed(script) if completion.finish_reason != ABORT]
        plain = [evolve(completion, finish_reason="stop") for completion in completions]
        got, wanted = played(turns, how, completions)[-1][0], played(turns, how, plain)[-1][0]
        seen("a text cut at its length", any(step.finish_reason == LENGTH for step in got.steps))
        same("the end", got.end, wanted.end)
        same("the steps", [evolve(step, finish_reason="stop") for step in got.steps], list(wanted.steps))
        reasons = [event.finish_reason for event in got.events if isinstance(event, Sampled)]
        same("the reasons kept", reasons, [completion.finish_reason for completion in completions[: len(reasons)]])

    mutant = Mutant("takes a text cut at its length for a truncated episode", length_truncates)
    claim = "Where texts are read anyway, why a model call ended is kept, and decides nothing else."
    return _law("finish_reason_is_an_axis", claim, mutant, check, "a text cut at its length")


def _auxiliary() -> Law:
    def check(turns: Turns, script: Script, seen: Seen) -> None:
        states, since = played(turns, script[0], completed(script)), 0
        for (before, _), (after, turn) in pairwise(states):
            last, acted = after.events[-1], after.turn > before.turn
            seen("an env step behind an auxiliary tool", acted and since)
            since = 0 if acted else since
            if after != before and isinstance(last, ToolResult) and last.auxiliary:
                since += 1
                seen("two auxiliary tools in one turn", since > 1)
                same("the world", (after.world, after.steps, after.turn), (before.world, before.steps, before.turn))
            if isinstance(turn, Prompt):
                same("calls of tools that are left", turn.tools_left, script[0].tool_budget - since)

    looks = st.lists(st.tuples(st.sampled_from(("peek", "peek", "peek", "add", "babble")), st.just("stop")), max_size=8)
    mutant = Mutant("takes nothing from the budget of tools", tools_are_free)
    claim = "Auxiliary tools add to the context alone, each takes one from the budget, and an env step restores it."
    needs = ("two auxiliary tools in one turn", "an env step behind an auxiliary tool")
    inputs = st.lists(st.tuples(options(), looks), min_size=4, max_size=8)
    return _law("tools_are_context", claim, mutant, check, *needs, inputs=inputs)
