"""Reward functions, parsers of tool calls and chat templates obey their laws."""

import json
from collections.abc import Sequence

from purestep.core.language.tool_calls import hermes_calls, llama_calls, mistral_args_calls, mistral_calls
from purestep.properties import chat_template_laws, check, reward_function_laws, tool_parser_laws
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


test_exact = check(reward_function_laws(ROWS, low=0.0, high=1.0), exact)
test_numeric = check(reward_function_laws(ROWS, low=0.0, high=1.0), numeric)
test_hermes = check(tool_parser_laws(), hermes_calls)
test_llama = check(tool_parser_laws(llama), llama_calls)
test_mistral = check(tool_parser_laws(mistral), mistral_calls)
test_mistral_args = check(tool_parser_laws(mistral_args), mistral_args_calls)
test_chat_template = check(chat_template_laws(end="<|im_end|>", trims=False), tool_tokenizer("hermes"))
test_chat_template_that_trims = check(chat_template_laws(end="<|eot_id|>"), tool_tokenizer("llama"))
