"""Tools in chat templates of several families: schemas, calls and results are those of the template, token by token."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("transformers")

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.language.codec import CLOSED, NOTHING, OPEN, Codec
from purestep.core.language.events import Feedback, System, ToolResult, User
from purestep.core.language.parsers import Parser
from purestep.core.language.prompts import PromptRow, PromptState, prompt_env
from purestep.core.language.protocol import protocol
from purestep.core.language.requests import Request, rollouts
from purestep.core.language.rollout import add_output, begin_rollout
from purestep.core.language.text_env import Terminated
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.tool_calls import ToolCall, tool_call_parser
from purestep.core.language.types import ContextTurn, ModelOutput, Rollout
from purestep.core.transcript.record import SAMPLED, TOOL
from purestep.properties import check, codec_laws
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.hugging_face.chat_template import chat_codec
from purestep.runtime.effects.hugging_face.folder import save_model
from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer
from purestep.runtime.effects.hugging_face.tool_template import call_parser
from purestep.runtime.effects.task_reference import trust
from purestep.runtime.effects.tools.calls import in_threads
from purestep.runtime.effects.tools.functions import tool_set, tools_of
from purestep.runtime.text.components import attempts_at, codec_of, text_components
from purestep.runtime.text.config import Model, Sampling, TaskRun

from ...laws.language.tool_calls import CallFormat, tool_call_laws
from ...support.tool_templates import HERMES, KINDS, MISTRAL, tool_tokenizer

FACTS = {"pi": 'about 3.14, says "Ω"\\π.', "e": "2.718\n\n# no heading", "end": "<|im_end|></s><|eot_id|> is a word"}
Chat = list[dict[str, Any]]
kinds = pytest.mark.parametrize("kind", KINDS)


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


def look_up(name: str) -> str:
    """Look up a fact.

    Args:
        name: of the fact
    """
    return FACTS[name]


TOOLS = tool_set(tools_of([add, look_up]), perform=in_threads())


def made(kind: str, schemas: Sequence[Mapping[str, Any]] = TOOLS.schemas) -> tuple[Any, Codec, Parser]:
    tokenizer = tool_tokenizer(kind)
    codec, has_system = codec_of(tokenizer, schemas)
    calls = call_parser(tokenizer, codec, schemas, opens_with="system" if has_system else "user")
    return tokenizer, codec, tool_call_parser(calls)


def text_of(tokenizer: Any, chat: Chat, prompt: bool) -> str:
    """The whole conversation as the template writes it at once."""
    text = tokenizer.apply_chat_template(chat, tools=list(TOOLS.schemas), tokenize=False, add_generation_prompt=prompt)
    assert isinstance(text, str)
    return text


def asked(*calls: tuple[str, Mapping[str, Any]], number: int = 0) -> dict[str, Any]:
    """A message of the model with calls, with ids as the environment gives them."""
    each = [
        {"id": f"{number + place:09d}", "type": "function", "function": {"name": name, "arguments": dict(arguments)}}
        for place, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": "", "tool_calls": each}


def answered(message: dict[str, Any], *texts: str) -> Chat:
    """The results of a message's calls."""
    return [
        {"role": "tool", "content": text, "name": call["function"]["name"], "tool_call_id": call["id"]}
        for call, text in zip(message["tool_calls"], texts, strict=True)
    ]


def begun(codec: Codec, parser: Parser, row: PromptRow) -> tuple[Any, Rollout[PromptState]]:
    rules = protocol(prompt_env([row], TOOLS), parser, max_steps=8, incomplete="truncate")
    one = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(0, 0)))[0]
    return rules, begin_rollout(rules, codec, one, capacity=4000, max_new_tokens=500)


def sampled(tokenizer: Any, codec: Codec, text: str) -> ModelOutput:
    ids = (*tokenizer.encode(text, add_special_tokens=False), codec.stop[0])
    return ModelOutput(ids=ids, log_probs=(-1.0,) * len(ids), versions=(0,) * len(ids))


def conversation(kind: str) -> tuple[Chat, list[Chat]]:
    """A prompt, and turns of the model: several calls at a time where the template can write them."""
    several = kind != "llama"
    first = asked(("look_up", {"name": "pi"}), *([("look_up", {"name": "e"})] if several else []))
    second = asked(("add", {"a": 2, "b": -3}), number=2 if several else 1)
    turns = [
        [first, *answered(first, FACTS["pi"], *([FACTS["e"]] if several else []))],
        [second, *answered(second, "-1")],
        [{"role": "assistant", "content": 'It is "-1".'}],
    ]
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is it?"}], turns


@kinds
def test_a_conversation_in_turns_has_the_ids_of_the_conversation_rendered_at_once(kind: str) -> None:
    tokenizer, codec, parser = made(kind)
    prompt, turns = conversation(kind)
    row = PromptRow(tuple((one["role"], one["content"]) for one in prompt))
    rules, attempt = begun(codec, parser, row)
    chat = prompt
    for turn in turns:
        before, after = text_of(tokenizer, chat, True), text_of(tokenizer, [*chat, turn[0]], False)
        if kind == "mistral":  # writes the system message again once the last message is the user's no more
            before, after = before.replace("Be brief.\n\n", ""), after.replace("Be brief.\n\n", "")
        assert after.startswith(before)
        reply, _, rest = after[len(before) :].rpartition(tokenizer.eos_token)
        assert not rest.strip()
        attempt = add_output(rules, codec, attempt, sampled(tokenizer, codec, reply))
        chat = [*chat, *turn]
    assert attempt.end == Terminated()
    whole = text_of(tokenizer, chat, False)
    if kind == "mistral":
        whole = whole.replace("[INST] ", "[INST] Be brief.\n\n")
    ids = tuple(tokenizer.encode(whole, add_special_tokens=False))
    assert ids[: len(attempt.ids)] == attempt.ids
    assert not tokenizer.decode(ids[len(attempt.ids) :]).strip()


@kinds
def test_schemas_are_in_the_prompt_and_results_are_context(kind: str) -> None:
    tokenizer, codec, parser = made(kind)
    rules, attempt = begun(codec, parser, PromptRow("What is pi?"))
    prompt = tokenizer.decode(attempt.ids)
    assert all(word in prompt for word in ("look_up", "Look up a fact.", "of the fact", '"integer"', "What is pi?"))
    assert attempt.ids == tuple(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": "What is pi?"}],
            tools=list(TOOLS.schemas),
            add_generation_prompt=True,
            return_dict=False,
        )
    )
    before = text_of(tokenizer, [{"role": "user", "content": "?"}], True)
    call = text_of(tokenizer, [{"role": "user", "content": "?"}, asked(("add", {"a": 2, "b": 3}))], False)
    said = sampled(tokenizer, codec, call[len(before) :].rpartition(tokenizer.eos_token)[0])
    attempt = add_output(rules, codec, attempt, said)
    assert [piece.source for piece in attempt.pieces if isinstance(piece, ContextTurn)][-1] == TOOL
    assert "5" in tokenizer.decode(attempt.pending)
    columns = transcripts((attempt,), capacity=4000, calls=8)
    assert (columns.is_action == (columns.source == SAMPLED)).all()
    assert columns.is_action.sum() == len(said.ids)


@kinds
def test_a_result_with_names_of_special_tokens_is_text(kind: str) -> None:
    tokenizer, codec, _ = made(kind)
    result = ToolResult("look_up", "{}", FACTS["end"], auxiliary=False, id="k3mWz81Qx")
    plain = ToolResult("look_up", "{}", "a word", auxiliary=False, id="k3mWz81Qx")
    special = set(tokenizer.all_special_ids)
    with_names, without = (
        [token for token in codec.encode([one], CLOSED)[0] if token in special] for one in (result, plain)
    )
    assert with_names == without
    assert FACTS["end"] in tokenizer.decode(codec.encode([result], CLOSED)[0])


@kinds
def test_a_completion_without_its_stop_token_is_ended_first(kind: str) -> None:
    _, codec, _ = made(kind)
    results = [ToolResult("add", "{}", text, auxiliary=False, id="000000000") for text in ("5", "", "7")]
    cut, closed = (sum(codec.encode(results, standing), ()) for standing in (OPEN, CLOSED))
    assert cut == (codec.stop[0], *closed)
    assert len(codec.encode(results, CLOSED)) == 3
    assert codec.encode((), CLOSED) == ()


test_laws_of_the_codec = check(codec_laws(), made("hermes")[1])


def written(kind: str) -> CallFormat:
    """The format of a kind, with calls as its template writes them."""
    tokenizer, codec, _ = made(kind)
    calls = call_parser(tokenizer, codec, TOOLS.schemas, opens_with="user")
    chat: Chat = [{"role": "user", "content": "?"}]
    before = text_of(tokenizer, chat, True)

    def write(several: Sequence[ToolCall]) -> str:
        text = text_of(tokenizer, [*chat, asked(*((one.name, one.arguments) for one in several))], False)
        return text[len(before) :].rpartition(tokenizer.eos_token)[0]

    return CallFormat(calls, write, most=1 if kind == "llama" else 3)


test_calls_in_hermes = check(tool_call_laws(), written("hermes"))
test_calls_in_llama = check(tool_call_laws(), written("llama"))
test_calls_in_mistral = check(tool_call_laws(), written("mistral"))
test_calls_in_mistral_args = check(tool_call_laws(), written("mistral_args"))


TASK = """
from purestep.core.language.prompts import PromptRow, prompt_task
from purestep.runtime.effects.tools.functions import tool_set, tools_of

def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.

    Args:
        a: the first
        b: the second
    \"\"\"
    return a + b

ROWS = [PromptRow("2 + 3?"), PromptRow("1 + 1?")]
SUMS = prompt_task("sums", ROWS, ROWS, rewards=lambda replies: [], tools=tool_set(tools_of([add])))
"""


@pytest.mark.slow  # imports the library's models
def test_a_run_has_the_codec_and_the_parser_of_its_model_s_template(tmp_path: Path) -> None:
    tokenizer = tool_tokenizer("mistral_args")
    config = tiny_llama(len(tokenizer), width=16, layers=1, heads=2, kv_heads=1, inner=32, window=2048)
    save_model(tmp_path / "model", from_config(config).init(keys.key(3)), config, tokenizer)
    (tmp_path / "sums.py").write_text(TASK)
    reference = f"{tmp_path / 'sums.py'}:SUMS"
    trust(reference)
    sampling = Sampling(capacity=1500, max_new_tokens=100)
    run = TaskRun(reference=reference, model=Model(model=str(tmp_path / "model")), sampling=sampling)
    parts = text_components(evolve(run, episodes=evolve(run.episodes, max_turns=3)))
    (attempt,) = attempts_at(parts, [Request(id=0, group=0, task=(0, 0), sampling=(0, 0))])
    assert '"name": "add"' in tokenizer.decode(attempt.ids)
    said = sampled(tokenizer, parts.codec, '[TOOL_CALLS]add[ARGS]{"a": 2, "b": 3}')
    attempt = add_output(parts.rules, parts.codec, attempt, said)
    assert tokenizer.decode(attempt.pending) == "[TOOL_RESULTS]5[/TOOL_RESULTS]"
    assert parts.task.parser is parts.rules.parser is parts.trial.parser


# --- other templates ---


def changed(template: str, *pairs: tuple[str, str]) -> Any:
    """A tokenizer with a template like the first, but for some pieces."""
    tokenizer = tool_tokenizer("hermes")
    for old, new in pairs:
        assert old in template
        template = template.replace(old, new)
    tokenizer.chat_template = template
    return tokenizer


def test_names_of_tools_and_results_in_json_are_those_of_the_template() -> None:
    result = '\'\\n<tool_response>\\n{"name": "\' + m.name + \'", "content": \' + (m.content | tojson)'
    tokenizer = changed(HERMES, ("'\\n<tool_response>\\n' + m.content", result))
    codec = chat_codec(tokenizer, tools=TOOLS.schemas)
    event = ToolResult("look_<|im_end|>up", "{}", 'a "b"\n', auxiliary=False)
    text = tokenizer.decode(codec.encode([event], CLOSED)[0])
    assert '{"name": "look_<|im_end|>up", "content": "a \\"b\\"\\n"' in text
    assert codec.encode([event], CLOSED)[0].count(codec.stop[0]) == 1


def test_results_that_a_template_strips_are_stripped() -> None:
    tokenizer = changed(HERMES, ("'\\n<tool_response>\\n' + m.content", "'\\n<tool_response>\\n' + (m.content | trim)"))
    codec = chat_codec(tokenizer, tools=TOOLS.schemas)
    event = ToolResult("add", "{}", " 5\n", auxiliary=False)
    assert "\n<tool_response>\n5\n</tool_response>" in tokenizer.decode(codec.encode([event], CLOSED)[0])


def test_a_template_that_ignores_tools_is_refused() -> None:
    with pytest.raises(
        ChoiceError, match=r"tools is ignored by the chat template, wanted written down .*; take a model"
    ):
        codec_of(train_tokenizer(["a"]), TOOLS.schemas)


@pytest.mark.parametrize(
    ("pairs", "refusal"),
    [
        ([("{%- if tools -%}", "{%- if tools -%}{{- raise_exception('no tools here') -}}")], "is 'no tools here', wanted"),
        ([("{%- if m.role == 'tool' -%}", "{%- if m.role == 'none' -%}"), ("m.role != 'system'", "m.role in 'assistant user'")],
         "messages of tool is left out, moved or written with earlier ones, wanted in their place"),
        ([("+ m.content + '\\n</tool_r", "+ m.content | upper + '\\n</tool_r")], "messages of tool is left out"),
        ([("+ m.content + '\\n</tool_r", "+ m.content | replace('\"', '') + '\\n</tool_r")],
         "results of tools is changed by the template"),
        ([("{%- elif m.tool_calls -%}", "{%- elif false -%}")], "a message of the model with tools is left out, wanted"),
        ([("'<|im_end|>\\n' -}}{%- endif -%}{%- elif", "'' -}}{%- endif -%}{%- elif"),
          ("{%- endfor -%}{{- '<|im_end|>\\n' -}}", "{%- endfor -%}")],
         "a message of the model with tools is not ended by <|im_end|>, wanted"),
    ],
)  # fmt: skip
def test_templates_that_leave_out_or_change_tools_are_refused(pairs: Any, refusal: str) -> None:
    with pytest.raises(ChoiceError, match="chat_codec: ") as refused:
        chat_codec(changed(HERMES, *pairs), tools=TOOLS.schemas)
    assert refusal in str(refused.value)
    assert "\n" not in str(refused.value)


def test_calls_in_an_unknown_format_are_refused_unless_the_tokenizer_has_a_response_template() -> None:
    call = '\\n<tool_call>\\n{"name": "\' + call.function.name + \'", "arguments": \' -}}'
    inner = "{{- (call.function.arguments | tojson) + '}\\n</tool_call>' -}}"
    own = "\\n<do>' + call.function.name -}}"
    each = (
        "{%- for key, value in call.function.arguments | dictsort -%}"
        "{{- '<' + key + '>' + value | string + '</>' -}}{%- endfor -%}"
    )
    tokenizer = changed(HERMES, (call, own), (inner, each + "{{- '</do>' -}}"))
    codec = chat_codec(tokenizer, tools=TOOLS.schemas)
    with pytest.raises(
        ChoiceError, match=r"a tool call is .*standin.*, wanted in a format of hermes, llama, mistral, mis"
    ):
        call_parser(tokenizer, codec, TOOLS.schemas, opens_with="system")
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "tool_calls": {
                "open_pattern": r"\s*<do>(?P<name>\w+)",
                "close": "</do>",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {"tag_pattern": r"<(?P<key>\w+)>(?P<value>.*?)</>"},
                "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
            },
            "content": {"close": "<|im_end|>", "content": "text"},
        },
    }
    calls = call_parser(tokenizer, codec, TOOLS.schemas, opens_with="system")
    assert calls("I add.\n<do>add<a>2</><b>3</></do>") == (ToolCall("add", {"a": 2, "b": 3}),)
    assert calls("It is 5.") == ()


def test_a_message_of_the_user_that_would_move_the_tools_is_refused() -> None:
    codec = chat_codec(tool_tokenizer("mistral"), opens_with="user", tools=TOOLS.schemas)
    assert codec.encode([System("Be brief."), User("?")], NOTHING)
    moved = MISTRAL.replace("loop.last and messages[0].role", "messages[0].role")
    assert moved != MISTRAL
    tokenizer = tool_tokenizer("mistral")
    tokenizer.chat_template = moved
    codec = chat_codec(tokenizer, opens_with="system", tools=TOOLS.schemas)
    with pytest.raises(ChoiceError, match="messages of user is left out, moved or written with earlier ones"):
        codec.encode([Feedback("Again.")], CLOSED)


# --- a foreign trial: scripted models of three families with a calculator and a look-up ---


SCRIPTS = {
    "hermes": (
        '<tool_call>\n{"name": "look_up", "arguments": {"name": "e"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "look_up", "arguments": {"name": "tau"}}\n</tool_call>',
        '<tool_call>\n{"name": "add", "arguments": {"a": 40, "b": "2"}}\n</tool_call>',
        'Numbers then.\n<tool_call>\n{"name": "add", "arguments": {"a": 40, "b": 2}}\n</tool_call>',
        "42",
    ),
    "llama": (
        '{"name": "look_up", "parameters": {"name": "e"}}; {"name": "look_up", "parameters": {"name": "tau"}}',
        '<|python_tag|>{"name": "add", "parameters": {"a": 40, "b": "2"}}',
        '{"name": "add", "parameters": {"a": 40, "b": 2}}',
        "42",
    ),
    "mistral": (
        '[TOOL_CALLS] [{"name": "look_up", "arguments": {"name": "e"}, "id": "k3mWz81Qx"},'
        ' {"name": "look_up", "arguments": {"name": "tau"}}]',
        '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 40, "b": "2"}}]',
        '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 40, "b": 2}}]',
        "42",
    ),
    "mistral_args": (
        '[TOOL_CALLS]look_up[ARGS]{"name": "e"}[TOOL_CALLS]look_up[ARGS]{"name": "tau"}',
        '[TOOL_CALLS]add[ARGS]{"a": 40, "b": "2"}',
        '[TOOL_CALLS]add[ARGS]{"a": 40, "b": 2}',
        "42",
    ),
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_scripted_model_uses_a_calculator_and_a_look_up(kind: str) -> None:
    tokenizer, codec, parser = made(kind)
    rules, attempt = begun(codec, parser, PromptRow("What is 40 + 2?"))
    for text in SCRIPTS[kind]:
        attempt = add_output(rules, codec, attempt, sampled(tokenizer, codec, text))
    results = [event for event in attempt.episode.events if isinstance(event, ToolResult)]
    assert [one.text for one in results] == [
        FACTS["e"],
        "Error: KeyError: 'tau'.",
        "Error: add has a wrong argument: b is '2', wanted integer.",
        "42",
    ]
    assert (attempt.end, attempt.episode.world.calls, attempt.episode.turn) == (Terminated(), 4, 4)
    assert [one.id for one in results[1:]] == ["000000001", "000000002", "000000003"]
    text = tokenizer.decode(attempt.ids)
    shown = [json.dumps(one.text)[1:-1] if kind == "llama" else one.text for one in results]
    places = [text.index(one) for one in shown]
    assert places == sorted(places)
    columns = transcripts((attempt,), capacity=4000, calls=8)
    assert bool(columns.terminated)
    assert columns.is_action.sum() == sum(len(sampled(tokenizer, codec, one).ids) for one in SCRIPTS[kind])
    assert not (columns.is_action & (columns.source == TOOL)).any()
