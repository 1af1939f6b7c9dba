"""Common errors in cycles of reasoning, most of them seen in real systems."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from purestep.core import keys
from purestep.core.keys import Key
from purestep.core.language.events import ABORT
from purestep.core.language.reasoning_cache.events import GroupResult
from purestep.core.language.reasoning_cache.machine import ReasoningCache
from purestep.core.language.reasoning_cache.state import (
    SUMMARIZATION,
    InferenceProblemState,
    ModelRequest,
    Reply,
    TrainingText,
)
from purestep.core.language.requests import Request, words_of
from purestep.core.language.text_env import TextEnv

State = InferenceProblemState


@frozen
class Thinking:
    """The functions of the reasoning cache, under their names in core.language."""

    fill: Callable[[str, Mapping[str, str]], str]
    due: Callable[[ReasoningCache, State], ModelRequest | tuple[()]]
    step: Callable[[ReasoningCache, State, Reply], State]
    at_turn: Callable[[State, int], State]
    starting_points: Callable[..., tuple[State, ...]]
    start_requests: Callable[..., tuple[Request, ...]]
    call_request: Callable[[Request, State, int], Request]
    step_world: Callable[[ReasoningCache, Sequence[State]], TextEnv[Any, Any]]
    accuracy_by_cycle: Callable[[Sequence[State]], tuple[float, ...]]
    published_rows: Callable[[GroupResult], tuple[dict[str, Any], ...]]


Step = Callable[[ReasoningCache, State, Reply], State]


def _stepping(change: Callable[[Step, ReasoningCache, State, Reply], State]) -> Callable[[Thinking], Thinking]:
    def make(thinking: Thinking) -> Thinking:
        return evolve(thinking, step=lambda cache, state, reply: change(thinking.step, cache, state, reply))

    return make


def _restarts_the_cycle(step: Step, cache: ReasoningCache, state: State, reply: Reply) -> State:
    """Restart a cycle whose summary was aborted, so that its reasoning is stored a second time."""
    number = state.overall_cycle_step
    if reply.finish_reason == ABORT and number % 2 == 1:
        text = state.reasoning_string_complete_store[-1]
        return step(cache, evolve(state, overall_cycle_step=number - 1), Reply(cycle_step=number - 1, text=text))
    return step(cache, state, reply)


def _takes_repeats(step: Step, cache: ReasoningCache, state: State, reply: Reply) -> State:
    return step(cache, state, evolve(reply, cycle_step=state.overall_cycle_step))


def _counts_before(step: Step, cache: ReasoningCache, state: State, reply: Reply) -> State:
    """Stamp a step with its number after the count was increased."""

    def later(text: TrainingText) -> TrainingText:
        metadata: Any = text.metadata
        return evolve(text, metadata=evolve(metadata, cycle_step=metadata.cycle_step + 1))

    after = step(cache, state, reply)
    if after is state or not after.summarization_rollout_store[len(state.summarization_rollout_store) :]:
        return after
    *before, last = after.summarization_rollout_store
    last = evolve(last, training_texts=tuple(map(later, last.training_texts)))
    return evolve(after, summarization_rollout_store=(*before, last))


def _version_of_the_start(step: Step, cache: ReasoningCache, state: State, reply: Reply) -> State:
    if not state.reasoning_rollout_store:
        return step(cache, state, reply)
    metadata: Any = state.reasoning_rollout_store[0].training_texts[0].metadata
    return step(cache, state, evolve(reply, model_version=metadata.model_version))


def _replaces_one_by_one(template: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    return template


def formats(thinking: Thinking) -> Thinking:
    """Fill templates with str.format."""
    return evolve(thinking, fill=lambda template, values: template.format(**values))


def replaces_one_by_one(thinking: Thinking) -> Thinking:
    """Replace names in inserted values as well."""
    return evolve(thinking, fill=_replaces_one_by_one)


def counts_beside(thinking: Thinking) -> Thinking:
    """Count the turns of a run in a list outside its state."""
    turns: list[int] = []

    def step(cache: ReasoningCache, state: State, reply: Reply) -> State:
        if state.overall_cycle_step == 0:
            turns.clear()
        after = thinking.step(cache, state, reply)
        if after.reasoning_turn_number > state.reasoning_turn_number:
            turns.append(1)
        return evolve(after, reasoning_turn_number=len(turns))

    return evolve(thinking, step=step)


def _sums_up_the_answer(step: Step, cache: ReasoningCache, state: State, reply: Reply) -> State:
    if cache.use_think_tags and state.overall_cycle_step % 2 == 0 and "</think>" in reply.text:
        after = step(cache, state, evolve(reply, text=reply.text.partition("</think>")[2]))
        return after
    return step(cache, state, reply)


def shows_the_first_summary(thinking: Thinking) -> Thinking:
    """Prompt every cycle with the summary of the first."""

    def due(cache: ReasoningCache, state: State) -> ModelRequest | tuple[()]:
        return thinking.due(cache, evolve(state, curr_summary="".join(state.summarization_string_store[:1])))

    return evolve(thinking, due=due)


def keeps_counters(thinking: Thinking) -> Thinking:
    """Return to an earlier state, but keep the turn number of the later one."""

    def at_turn(state: State, turn_number: int) -> State:
        return evolve(thinking.at_turn(state, turn_number), reasoning_turn_number=state.reasoning_turn_number)

    return evolve(thinking, at_turn=at_turn)


def never_from_nothing(thinking: Thinking) -> Thinking:
    """Leave out the state before the first summary."""

    def starting_points(states: Sequence[State], key: Key, *, number: int) -> tuple[State, ...]:
        found = thinking.starting_points(states, key, number=number)
        return tuple(state for state in found if state.overall_cycle_step) or found[:1]

    return evolve(thinking, starting_points=starting_points)


def repeats_groups(thinking: Thinking) -> Thinking:
    """Draw starting points from each run alone, so that a state may occur in two groups."""

    def starting_points(states: Sequence[State], key: Key, *, number: int) -> tuple[State, ...]:
        return tuple(point for state in states for point in thinking.starting_points([state], key, number=number))

    return evolve(thinking, starting_points=starting_points)


def one_key_for_all_cycles(thinking: Thinking) -> Thinking:
    """Sample every call of an attempt with the attempt's key."""

    def call_request(attempt: Request, state: State, place: int) -> Request:
        return evolve(thinking.call_request(attempt, state, place), sampling=attempt.sampling)

    return evolve(thinking, call_request=call_request)


def keys_by_place(thinking: Thinking) -> Thinking:
    """Sample with a key that depends on the other attempts in progress."""

    def call_request(attempt: Request, state: State, place: int) -> Request:
        made = thinking.call_request(attempt, state, place)
        return evolve(made, sampling=words_of(keys.fold_in(keys.key(made.sampling[0]), place)))

    return evolve(thinking, call_request=call_request)


def one_group(thinking: Thinking) -> Thinking:
    """Put attempts from different states into one group."""

    def start_requests(points: int, key: Key, *, attempts: int) -> tuple[Request, ...]:
        return tuple(evolve(request, group=0) for request in thinking.start_requests(points, key, attempts=attempts))

    return evolve(thinking, start_requests=start_requests)


def pays_summaries(thinking: Thinking) -> Thinking:
    """Reward summaries like reasoning."""

    def step_world(cache: ReasoningCache, states: Sequence[State]) -> TextEnv[Any, Any]:
        return thinking.step_world(evolve(cache, summarization_rollout_policy=cache.solution_rollout_policy), states)

    return evolve(thinking, step_world=step_world)


def once_right_always_right(thinking: Thinking) -> Thinking:
    """Count a run as right in all cycles after the first right answer."""

    def accuracy_by_cycle(states: Sequence[State]) -> tuple[float, ...]:
        found = thinking.accuracy_by_cycle(states)
        return tuple(max(found[: place + 1]) for place in range(len(found)))

    return evolve(thinking, accuracy_by_cycle=accuracy_by_cycle)


def rows_by_kind(thinking: Thinking) -> Thinking:
    """Publish all reasoning before all summaries."""

    def published_rows(result: GroupResult) -> tuple[dict[str, Any], ...]:
        def kind(text: dict[str, Any]) -> bool:
            return bool(text["metadata"]["turn_type"] == SUMMARIZATION)

        rows = thinking.published_rows(result)
        return tuple({**row, "training_texts": tuple(sorted(row["training_texts"], key=kind))} for row in rows)

    return evolve(thinking, published_rows=published_rows)


restarts_the_cycle = _stepping(_restarts_the_cycle)
takes_repeats = _stepping(_takes_repeats)
counts_before = _stepping(_counts_before)
version_of_the_start = _stepping(_version_of_the_start)
sums_up_the_answer = _stepping(_sums_up_the_answer)

MUTANTS: dict[str, Callable[[Any], Any]] = {
    "looks for names in what it has put in": replaces_one_by_one,
    "numbers a summary when it has been counted": counts_before,
    "samples by the place among others": keys_by_place,
    "has one state as several groups": repeats_groups,
}
