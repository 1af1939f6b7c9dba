"""Reward functions, parsers of tool calls and chat templates obey their laws."""

import json
from collections.abc import Sequence
from typing import Any

from purestep.core.language.tool_calls import ToolCall, hermes_calls, llama_calls, mistral_args_calls, mistral_calls
from purestep.properties import chat_template_laws, check, reward_function_laws, run, tool_parser_laws
from purestep.properties.framework.report import BROKEN, PASSED
from purestep.properties.suites.language.tool_parser import Called
from purestep.runtime.effects.rewards.built_in import exact, numeric

from ..support.tool_templates import tool_tokenizer

ROWS = (
    {"completion": "5", "answer": "5"},
    {"completion": "1/2", "answer": "0.5"},
    {"completion": "", "answer": "5"},
)


def mistral(calls: Sequence[Called]) -> str:
    texts = [{"name": name, "arguments": arguments, "id": "abcdefghi"} for name, arguments in calls]
    return f"[TOOL_CALLS]{json.dumps(texts)}"


def mistral_args(calls: Sequence[Called]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(arguments)}" for name, arguments in calls)


def llama(calls: Sequence[Called]) -> str:
    texts = [json.dumps({"name": name, "parameters": arguments}) for name, arguments in calls]
    return "<|python_tag|>" + "; ".join(texts)


def pairs_of_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Calls as pairs of a name and its arguments."""
    return [(one.name, dict(one.arguments)) for one in hermes_calls(text) if isinstance(one, ToolCall)]


def texts_of_calls(text: str) -> list[dict[str, str]]:
    """Calls whose arguments are a text of JSON."""
    return [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in pairs_of_calls(text)]


def cut_calls(text: str) -> list[dict[str, str]]:
    """Calls whose text of arguments lacks its end."""
    return [{**one, "arguments": one["arguments"][:-1]} for one in texts_of_calls(text)]


test_pairs = check(tool_parser_laws(), pairs_of_calls)
test_texts = check(tool_parser_laws(), texts_of_calls)
test_exact = check(reward_function_laws(ROWS, low=0.0, high=1.0), exact)
test_numeric = check(reward_function_laws(ROWS, low=0.0, high=1.0), numeric)
test_hermes = check(tool_parser_laws(), hermes_calls)
test_llama = check(tool_parser_laws(llama), llama_calls)
test_mistral = check(tool_parser_laws(mistral), mistral_calls)
test_mistral_args = check(tool_parser_laws(mistral_args), mistral_args_calls)
test_chat_template = check(chat_template_laws(end="<|im_end|>", trims=False), tool_tokenizer("hermes"))
test_chat_template_that_trims = check(chat_template_laws(end="<|eot_id|>"), tool_tokenizer("llama"))


def test_arguments_that_are_no_json_are_no_call() -> None:
    assert run(tool_parser_laws()["round_trip"], cut_calls, shrink=False).outcome == BROKEN


def test_contents_are_looked_for_in_texts_alone() -> None:
    """A template that returns tokens has no place of a content; one that returns texts must keep each content."""
    law = chat_template_laws()["contents_stay"]

    def shouts(messages: list[dict[str, str]], prompt: bool) -> str:
        return "".join(one["content"].upper() for one in messages)

    def tokens(messages: list[dict[str, str]], prompt: bool) -> list[int]:
        return [ord(mark) for mark in shouts(messages, prompt)]

    assert run(law, shouts, shrink=False).outcome == BROKEN
    assert run(law, tokens, shrink=False).outcome == PASSED
