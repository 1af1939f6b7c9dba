"""Questions that take a look-up and a calculator, and a small model that knows the tools but skips the calculator.

    python examples/tools/problems.py shop                      # writes shop/problems.jsonl and shop/model
    purestep train text --model shop/model --prompts shop/problems.jsonl --tools examples/tools/shop.py \\
        --reward exact --run runs/shop --steps 40

The model writes calls as its chat template does: that of --template FILE.jinja, whose special tokens --special names. It is
warmed up on other questions, by conversations with the tools' own results, most of which answer without the second call.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import shop

from purestep.algorithms.supervised import supervised
from purestep.core import keys
from purestep.core.language.prompts import PromptRow, PromptState, prompt_env
from purestep.core.language.protocol import protocol
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.tool_calls import tool_call_parser
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.hugging_face.folder import save_model
from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer
from purestep.runtime.effects.hugging_face.tool_template import call_parser
from purestep.runtime.effects.tools.calls import in_threads
from purestep.runtime.effects.tools.functions import tool_set, tools_of
from purestep.runtime.text.components import codec_of
from purestep.runtime.text.supervised_warm_start import (
    WarmStartSettings,
    draw_demonstrations,
    draw_indices,
    taught,
    warm_optimizer,
)

SKILL, WARM, TURNS, WINDOW, BATCH = 0.15, 1 << 20, 3, 512, 32
TEMPLATE = (  # as Qwen's, in fewer words
    "{%- if tools -%}{{- '<|im_start|>system\\nTools:' -}}{%- for tool in tools -%}{{- '\\n' + tool | tojson -}}{%- endfor -%}"
    "{{- '<|im_end|>\\n' -}}{%- endif -%}"
    "{%- for m in messages -%}"
    "{%- if m.role == 'tool' -%}"
    "{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' -}}"
    "{%- elif m.tool_calls -%}{{- '<|im_start|>assistant' -}}{%- for call in m.tool_calls -%}"
    '{{- \'\\n<tool_call>\\n{"name": "\' + call.function.name + \'", "arguments": \' -}}'
    "{{- (call.function.arguments | tojson) + '}\\n</tool_call>' -}}{%- endfor -%}{{- '<|im_end|>\\n' -}}"
    "{%- else -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endif -%}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
SPECIAL = ("<|im_end|>", "<|im_start|>")


def question(seed: int) -> tuple[str, str, int]:
    """A question, the item, and how many of it."""
    draw = random.Random(seed)
    item, number = draw.choice(shop.NAMES), draw.randint(2, 9)
    return f"{number} {item}?", item, number


def row_of(seed: int) -> PromptRow:
    text, item, number = question(seed)
    return PromptRow(text, {"answer": str(number * shop.PRICES[item]), "seed": seed})


def message(number: int, name: str, arguments: dict[str, str]) -> dict[str, Any]:
    call = {"id": f"{number:09d}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def calls_of(tokenizer: Any, schemas: Sequence[Any], item: str, number: int) -> tuple[str, str]:
    """The two calls of a solution, as the template writes them after a question."""
    asked, how = [{"role": "user", "content": "?"}], {"tools": list(schemas), "tokenize": False}
    begun, texts = tokenizer.apply_chat_template(asked, add_generation_prompt=True, **how), []
    calls = (("price", {"item": item}), ("calculate", {"sum": f"{number}*{shop.PRICES[item]}"}))
    for place, (name, arguments) in enumerate(calls):
        whole = tokenizer.apply_chat_template([*asked, message(place, name, arguments)], **how)
        texts.append(whole.removeprefix(begun).partition(tokenizer.eos_token)[0])
    return texts[0], texts[1]


def tokenizer_of(template: str, special: Sequence[str], schemas: Sequence[Any]) -> Any:
    """A small tokenizer with a chat template, whose texts are tokens."""
    made = train_tokenizer(["?"], vocabulary=262)
    made.add_special_tokens({"eos_token": special[0], "extra_special_tokens": list(special[1:])})
    made.chat_template = template
    texts = []
    for seed in range(WARM, WARM + 200):
        text, item, _ = question(seed)
        chat = [{"role": "user", "content": text}, message(0, "price", {"item": item})]
        texts += [made.apply_chat_template(chat, tools=list(schemas), tokenize=False)]
    trained = train_tokenizer(texts, vocabulary=640, least=48)
    trained.add_special_tokens({"eos_token": special[0], "extra_special_tokens": list(special[1:])})
    trained.chat_template = template
    return trained


def write(folder: Path, template: str, special: Sequence[str], *, problems: int, steps: int, seed: int) -> float:
    """Write the questions, and the model after a warm start of so many steps; return its last loss."""
    folder.mkdir(parents=True, exist_ok=True)
    tools = tool_set(tools_of([str(Path(shop.__file__))]), perform=in_threads())
    every = {row.prompt: row.columns["answer"] for row in map(row_of, range(seed * WARM, seed * WARM + 40 * problems))}
    lines = [json.dumps({"prompt": text, "answer": answer}) for text, answer in [*every.items()][:problems]]
    (folder / "problems.jsonl").write_text("\n".join(lines) + "\n")
    tokenizer = tokenizer_of(template, special, tools.schemas)
    codec, has_system = codec_of(tokenizer, tools.schemas)
    parser = tool_call_parser(
        call_parser(tokenizer, codec, tools.schemas, opens_with="system" if has_system else "user")
    )
    rows = [row_of(number) for number in range(2 * WARM, 2 * WARM + 2000)]

    def script(params: Any, state: PromptState, key: keys.Key, skill: float) -> list[str]:
        _, item, number = question(rows[state.row].columns["seed"])
        calls, price = calls_of(tokenizer, tools.schemas, item, number), shop.PRICES[item]
        if float(keys.uniform(key, ())) < skill:
            return [*calls, str(number * price)]
        return [calls[0], str(number + price)]  # the sum in place of the product

    settings = WarmStartSettings(
        rules=protocol(prompt_env(rows, tools), parser, max_steps=TURNS, incomplete="truncate"),
        codec=codec,
        spell=lambda text: (*tokenizer.encode(text, add_special_tokens=False), codec.stop[0]),
        script=script,
        skill=SKILL,
        capacity=WINDOW,
        max_new_tokens=64,
    )
    key = keys.key(seed)
    attempts = draw_demonstrations(settings, key, 1600)
    given = transcripts(attempts, capacity=max(len(one.ids) for one in attempts), calls=TURNS)
    sizes = {"width": 96, "layers": 3, "heads": 4, "kv_heads": 2, "inner": 288, "window": WINDOW}
    config = tiny_llama(len(tokenizer), **sizes)
    model = from_config(config)
    params = model.init(key)
    learner = supervised(model, warm_optimizer(params, steps, muon_rate=0.02, adamw_rate=3e-3))
    places = draw_indices(key, len(attempts), steps * BATCH)
    batches = [places[step * BATCH : (step + 1) * BATCH] for step in range(steps)]
    state, _ = taught(learner, learner.init(params), given, batches[:-20])
    state, means = taught(learner, state, given, batches[-20:])
    save_model(folder / "model", state.params, config, tokenizer)
    print(f"{len(lines)} questions, {len(given.token[0])} tokens at most, loss {means['loss']:.3f}: {folder / 'model'}")
    return means["loss"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--template", type=Path, default=None, help="a chat template with tools, FILE.jinja")
    parser.add_argument("--special", nargs="+", default=SPECIAL, help="its special tokens, the end of a message first")
    parser.add_argument("--problems", type=int, default=120)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    template = TEMPLATE if asked.template is None else asked.template.read_text()
    write(asked.folder, template, asked.special, problems=asked.problems, steps=asked.steps, seed=asked.seed)


if __name__ == "__main__":
    main()
