"""Tool calls: texts that are odd, arguments by their schema, and an episode with tools worked out by hand."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from purestep.core import keys
from purestep.core.language.codec import END, byte_codec
from purestep.core.language.episode import Completion, Episode, Grade
from purestep.core.language.events import LENGTH, Sampled, ToolResult
from purestep.core.language.grading import graded
from purestep.core.language.prompts import PromptRow, PromptState, RepliedPrompt, prompt_env, prompt_task
from purestep.core.language.protocol import Protocol, begin_episode, protocol, turn_after
from purestep.core.language.requests import Request, rollouts
from purestep.core.language.rollout import add_output, begin_rollout
from purestep.core.language.text_env import MAX_STEPS, Terminated, Truncated
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.tool_calls import (
    CALL_PARSERS,
    DEEPEST,
    BadCall,
    Calls,
    ToolCall,
    hermes_calls,
    llama_calls,
    mistral_args_calls,
    mistral_calls,
    tool_call_parser,
)
from purestep.core.language.tools import MOST, ToolSet, argument_fault, results_of
from purestep.core.language.types import ModelOutput, Rollout
from purestep.core.transcript.record import SAMPLED, TOOL, USER

ADD = ToolCall("add", {"a": 2, "b": 3})
PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


def schema(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


def calculate(name: str, arguments: Mapping[str, Any]) -> str:
    assert name == "add"
    return str(arguments["a"] + arguments["b"])


TOOLS = ToolSet((schema("add", PARAMETERS),), calculate)


def call(a: int, b: int) -> str:
    return f'<tool_call>\n{{"name": "add", "arguments": {{"a": {a}, "b": {b}}}}}\n</tool_call>'


# --- texts ---


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("5", ()),
        (f"I add.\n{call(2, 3)}\nThen I see.", (ADD,)),
        (f"{call(2, 3)}{call(2, 3)}", (ADD, ADD)),
        (f"<think>I could write {call(7, 7)} or <tool_call>.</think>{call(2, 3)}", (ADD,)),
        (call(2, 3).removesuffix("</tool_call>"), (BadCall("</tool_call> is missing after a call"),)),
        ("<tool_call>add(2, 3)</tool_call>", (BadCall("the call is no JSON (Expecting value at character 0)"),)),
        ('<tool_call>{"name": "add"}</tool_call>', (BadCall('a call is {"name": ..., "arguments": {...}}'),)),
        (
            '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>',
            (BadCall("the call is no JSON (NaN is no JSON number)"),),
        ),
        (f"<tool_call>{call(2, 3)}", (BadCall("the call is no JSON (Expecting value at character 0)"), ADD)),
    ],
)
def test_calls_in_tags(text: str, found: Calls) -> None:
    assert hermes_calls(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"name": "add", "parameters": {"a": 2, "b": 3}}', (ADD,)),
        (' <|python_tag|>{"name": "add", "parameters": {"a": 2, "b": 3}}', (ADD,)),
        ('I add. <|python_tag|> {"name": "add", "parameters": {"a": 2, "b": 3}}', (ADD,)),
        (
            '{"type": "function", "name": "add", "parameters": {"a": 2, "b": 3}}; {"name": "x", "parameters": {}}',
            (ADD, ToolCall("x", {})),
        ),
        ('{"name": "Ada", "age": 36}', ()),
        ('{"answer": {"name": "add", "parameters": {}}}', ()),
        ('It is {"name": "add", "parameters": {}}', ()),
        ("<|python_tag|>add(2, 3)", (BadCall("the call is no JSON (Expecting value at character 0)"),)),
        (
            '{"name": "add", "parameters": {"a": 2',
            (BadCall("the call is no JSON (Expecting ',' delimiter at character 37)"),),
        ),
        ('{"name": "add", "parameters": "2"}', (BadCall('a call is {"name": ..., "parameters": {...}}'),)),
    ],
)
def test_calls_as_whole_texts(text: str, found: Calls) -> None:
    assert llama_calls(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("5", ()),
        ('[TOOL_CALLS] [{"name": "add", "arguments": {"a": 2, "b": 3}}]', (ADD,)),
        ('I add.[TOOL_CALLS][{"arguments": {"a": 2, "b": 3}, "name": "add"}, 7]', (ADD, 'a call is {"name": ')),
        ('[TOOL_CALLS]{"name": "add", "arguments": {}}', ('calls are [{"name": ..., "arguments": {...}}, ...]',)),
        ("[TOOL_CALLS] [", ("the call is no JSON (Expecting value",)),
        ('[THINK]maybe [TOOL_CALLS] here[/THINK]It is "5".', ()),
    ],
)
def test_calls_in_a_list(text: str, found: Any) -> None:
    for one, wanted in zip(mistral_calls(text), found, strict=True):
        assert one.error.startswith(wanted) if isinstance(one, BadCall) else one == wanted


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[TOOL_CALLS]add[ARGS]{"a": 2, "b": 3}[TOOL_CALLS] add [ARGS] {"a": 2, "b": 3}', (ADD, ADD)),
        (
            '[TOOL_CALLS]add[CALL_ID]k3mWz81Qx[ARGS]{"a": 2, "b": 3}',
            (ToolCall("add", {"a": 2, "b": 3}, "k3mWz81Qx"),),
        ),
        ('[TOOL_CALLS]add{"a": 2}', (BadCall("a call is [TOOL_CALLS]name[ARGS]{...}"),)),
        ("[TOOL_CALLS]add[ARGS][2, 3]", (BadCall('a call is {"name": ..., "arguments": {...}}'),)),
        ("[TOOL_CALLS]add[ARGS]{", (BadCall,)),
    ],
)
def test_calls_behind_tags(text: str, found: Any) -> None:
    for one, wanted in zip(mistral_args_calls(text), found, strict=True):
        assert isinstance(one, BadCall) if wanted is BadCall else one == wanted


@pytest.mark.parametrize("parse", CALL_PARSERS.values(), ids=CALL_PARSERS)
@pytest.mark.parametrize("levels", [DEEPEST + 1, 5000])
def test_a_call_that_is_too_deep_or_too_long_a_number_is_an_error(parse: Any, levels: int) -> None:
    for value in ("[" * levels + "]" * levels, "9" * (10 * levels if levels > DEEPEST + 1 else 5000)):
        one = f'{{"name": "add", "arguments": {{"a": {value}}}, "parameters": {{"a": {value}}}}}'
        forms = f"<tool_call>{one}</tool_call>", one, f"[TOOL_CALLS][{one}]", f'[TOOL_CALLS]add[ARGS]{{"a": {value}}}'
        found = [call for text in forms for call in parse(text)]
        assert len(found) >= 1
        assert all(isinstance(call, BadCall) for call in found)


# --- arguments ---


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ({"type": "integer"}, [0, -(1 << 80)], [True, 2.0, "2", None]),
        ({"type": "number"}, [0, 2.5], [False, "2.5"]),
        ({"type": ["integer", "string"]}, [2, "2"], [2.5, None]),
        ({"type": "boolean"}, [True], [1, "true"]),
        ({"type": "string", "nullable": True}, ["", None], [0]),
        ({"type": "string", "enum": ["tea", "coffee"]}, ["tea"], ["milk", 1]),
        ({"type": "integer", "enum": [1, 2]}, [1], [3, 1.0]),
        ({"type": "array", "items": {"type": "integer"}}, [[], [1, 2]], [[1, "2"], "12", {"a": 1}]),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, [[1, "a"]], [[1], ["a", 1]]),
        ({"type": "object", "additionalProperties": {"type": "array"}}, [{}, {"a": [1]}], [{"a": 1}, []]),
        ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}, [1, [1]], [["a"], "a"]),
        ({}, [None, {"a": [1]}], []),
    ],
)
def test_values_by_their_schema(kind: Mapping[str, Any], good: list[Any], bad: list[Any]) -> None:
    parameters = {"properties": {"x": kind}}
    assert [argument_fault(parameters, {"x": value}) for value in good] == [""] * len(good)
    faults = [argument_fault(parameters, {"x": value}) for value in bad]
    assert all(fault.startswith("has a wrong argument: x") for fault in faults)


def test_the_faults_of_arguments_are_named() -> None:
    assert argument_fault(PARAMETERS, {"a": 1}) == "lacks the argument 'b'"
    assert argument_fault(PARAMETERS, {"a": 1, "b": 2, "c": 3}) == "has no argument 'c', only a, b"
    assert argument_fault({"properties": {}}, {"c": 3}) == "takes no arguments"
    deep = {
        "properties": {"x": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "null"}}}}
    }
    assert argument_fault(deep, {"x": [{}, {"k": 3}]}) == "has a wrong argument: x[1]['k'] is 3, wanted null"
    long = argument_fault(PARAMETERS, {"a": "1" * 999, "b": 2})
    assert len(long) < 120


def test_errors_are_results_and_the_tool_is_not_called() -> None:
    wrong: Calls = (BadCall("no JSON"), ToolCall("sub", {}), ToolCall("add", {"a": 1}), ToolCall("add\ud800" * 99, {}))
    results = results_of(TOOLS, wrong)
    assert [one.text for one in results[:3]] == [
        "Error: no JSON.",
        "Error: there is no tool 'sub'; the tools are add.",
        "Error: add lacks the argument 'b'.",
    ]
    assert len(results[3].name) <= 60
    texts = [text for one in results for text in (one.name, one.text, one.argument)]
    assert [text.encode().decode() for text in texts] == texts


def test_calls_beyond_the_limit_are_not_made_and_ids_are_numbers_unless_given() -> None:
    results = results_of(TOOLS, [ToolCall("add", {"a": 1, "b": 2}, "k3mWz81Qx"), *[ADD] * MOST], before=7)
    assert [one.text for one in results] == ["3", *["5"] * (MOST - 1), f"Error: more than {MOST} calls at a time."]
    assert [one.id for one in results[:3]] == ["k3mWz81Qx", "000000008", "000000009"]
    assert json.loads(results[1].argument) == ADD.arguments


# --- episodes ---

ROWS = (PromptRow("2 + 3 + 4?", {"answer": "9"}),)


def rules(max_steps: int = 4) -> Protocol[Any, PromptState]:
    return protocol(prompt_env(ROWS, TOOLS), tool_call_parser(hermes_calls), max_steps=max_steps, incomplete="truncate")


def said(*texts: str) -> list[ModelOutput]:
    ids = [(*text.encode(), END) for text in texts]
    return [ModelOutput(ids=one, log_probs=(-1.0,) * len(one), versions=(0,) * len(one)) for one in ids]


def played(*texts: str, max_steps: int = 4) -> Rollout[PromptState]:
    rollout = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(0, 0)))[0]
    attempt = begin_rollout(rules(max_steps), byte_codec(), rollout, capacity=2000, max_new_tokens=500)
    for one in said(*texts):
        attempt = add_output(rules(max_steps), byte_codec(), attempt, one)
    return attempt


def test_calls_are_answered_and_the_first_text_without_one_ends_the_episode() -> None:
    attempt = played(f"{call(2, 3)}\n{call(4, 4)}", call(5, 4), "9")
    results = [event for event in attempt.episode.events if isinstance(event, ToolResult)]
    assert [(one.name, one.text, one.id) for one in results] == [
        ("add", "5", "000000000"),
        ("add", "8", "000000001"),
        ("add", "9", "000000002"),
    ]
    assert attempt.end == Terminated()
    assert [made.observation for made in attempt.episode.steps] == ["5\n8", "9", ""]
    assert (attempt.episode.world, attempt.episode.turn) == (PromptState(0, 3), 3)
    columns = transcripts((attempt,), capacity=2000, calls=4)
    assert set(columns.source[0, : len(attempt.ids)].tolist()) == {USER, TOOL, SAMPLED}
    assert not (columns.is_action & (columns.source != SAMPLED)).any()
    assert columns.is_action.sum() == sum(len(one.ids) for one in said(f"{call(2, 3)}\n{call(4, 4)}", call(5, 4), "9"))
    assert bool(columns.terminated)
    assert int(columns.turns) == 3


def test_the_number_of_turns_is_bounded() -> None:
    attempt = played(call(2, 3), call(2, 3), max_steps=2)
    assert attempt.end == Truncated(MAX_STEPS)
    assert sum(isinstance(event, ToolResult) for event in attempt.episode.events) == 1


def test_a_completion_that_is_cut_is_answered_if_it_has_a_call_and_else_ends_truncated() -> None:
    key = keys.key(0)
    episode: Episode[PromptState] = begin_episode(rules(), key)[0]
    again, prompt = turn_after(rules(), episode, Completion(call(2, 3) + "\n<tool_ca", LENGTH), key)
    assert [event.text for event in again.events if isinstance(event, ToolResult)] == ["5"]
    assert again.end == ()
    _, end = turn_after(rules(), again, Completion("It is", LENGTH), key)
    assert end == Truncated("max_seq_len")
    assert prompt != end


def test_rewards_see_the_whole_conversation_and_figures_count_calls() -> None:
    seen: list[RepliedPrompt] = []

    def rewards(replies: tuple[RepliedPrompt, ...]) -> list[Grade]:
        seen.extend(replies)
        return [Grade(float(one.text == one.row.columns["answer"])) for one in replies]

    task = prompt_task("sums", ROWS, ROWS, rewards=rewards, tools=TOOLS)
    (attempt,) = graded(task.grader, (played(call(2, 3), call(5, 4), "9"),))
    assert [role for role, _ in seen[0].messages] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert (seen[0].text, seen[0].cut_off) == ("9", False)
    sampled = [event for event in attempt.episode.events if isinstance(event, Sampled)]
    assert len(seen[0].ids) == sum(len(event.text) + 1 for event in sampled)
    assert {name: figure(attempt) for name, figure in task.figures.items()} == {
        "accuracy": 1.0,
        "cut_off": 0.0,
        "tool_calls": 2.0,
    }
    bounded = played(call(2, 3), max_steps=1)
    assert task.figures["cut_off"](bounded) == 0.0
    plain = prompt_task("sums", ROWS, ROWS, rewards=rewards)
    named = prompt_task("sums", ROWS, ROWS, rewards=rewards, digest="abc", tools=evolve(TOOLS, digest="def"))
    assert (plain.digest, named.digest) == ("", "abc def")
    assert plain.figures.keys() == {"accuracy", "cut_off"}
