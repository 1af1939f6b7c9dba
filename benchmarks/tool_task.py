"""A task of several turns with tools, a look-up and a calculator, by the templates of three families: Qwen, Llama, Mistral.

examples/tools/problems.py makes the questions and, for each template, a small model that skips the calculator; `purestep train
text --tools` trains it. The templates of Qwen 2.5 and Llama 3.1 are those that TRL ships; Mistral's is written in its format in
tests/support/tool_templates.py. Prints, writes results/tool_task.json; 1 unless for each template the calls are parsed,
results of tools are context that is not trained on, prompts and results are what the template itself writes for the whole
conversation, and greedy accuracy on held-out questions rises by at least .3.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from examples.tools.shop import calculate, price
from tests.support.tool_templates import MISTRAL

from . import evidence
from .environments import environment

EXAMPLE = evidence.ROOT / "examples" / "tools"
RISE = 0.3
TOOLS = {"price": ("item", price), "calculate": ("sum", calculate)}
CALLS = {name: re.compile(rf'"{argument}": "([^"]*)"') for name, (argument, _) in TOOLS.items()}
QUESTION, ANSWER = re.compile(r"\d+ \w+\?"), re.compile(r"-?\d+")
SPECIAL = {
    "qwen": ("<|im_end|>", "<|im_start|>"),
    "llama": ("<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"),
    "mistral": (
        *("</s>", "<s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
        *("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ),
}


def templates(home: Path) -> dict[str, Path]:
    """The files of the templates."""
    shipped = (
        environment("trl").parents[1]
        / "lib"
        / f"python3.{sys.version_info[1]}"
        / "site-packages"
        / "trl"
        / "chat_templates"
    )
    (home / "mistral.jinja").write_text(MISTRAL)
    return {"qwen": shipped / "qwen2_5.jinja", "llama": shipped / "llama3_1.jinja", "mistral": home / "mistral.jinja"}


def called(words: Sequence[str], home: Path) -> tuple[float, str]:
    """Seconds of a command, and the last lines that it prints. Raises: RuntimeError if it fails."""
    start = time.perf_counter()
    usual = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run([sys.executable, *words], cwd=home, capture_output=True, text=True, env=usual, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(words[:4])}: {(ended.stdout + ended.stderr).strip().splitlines()[-3:]}")
    return round(time.perf_counter() - start, 1), ended.stdout


def accuracies(run: Path) -> dict[str, Any]:
    """Accuracy, its interval and the calls of tools, sampled and greedy, before and after."""
    found = json.loads((run / "evaluation.json").read_text())
    return {
        f"{kind} {when}": {
            "accuracy": found[when][kind]["accuracy"],
            "interval": [round(found[when][kind][f"accuracy_{end}"], 4) for end in ("low", "high")],
            "tool calls": round(found[when][kind]["tool_calls"], 3),
        }
        for when in ("before", "after")
        for kind in ("greedy", "sampled")
    }


def looked_at(run: Path) -> dict[str, Any]:
    """Faults of the conversations that were trained on, and one of them: who said what, and what was learned from."""
    from transformers import AutoTokenizer

    from purestep.runtime.effects.tools.functions import tools_of

    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    schemas = [dict(one.schema) for one in tools_of([str(EXAMPLE / "shop.py")])]
    rows = [json.loads(line) for line in (run / "conversations.jsonl").read_text().splitlines()]
    masked = [
        message["role"] == "assistant" or not message.get("log_probs") for row in rows for message in row["messages"]
    ]
    whole = [row for row in rows if row["reward"] >= 1 and sum(one["role"] == "tool" for one in row["messages"]) == 2]
    written = [rendered(tokenizer, schemas, row) for row in whole]
    context, own = ([differ(one) for one in written] for differ in (context_differs, own_differs))
    return {
        "conversations": len(rows),
        "messages besides the model's with log-probs": masked.count(False),
        "results of tools": sum(one["role"] == "tool" for row in rows for one in row["messages"]),
        "right ones with two calls": len(whole),
        "of these with prompts or results that the template writes otherwise": sum(context),
        "of these with calls that the template writes otherwise": sum(own),
        "a conversation": [[one["role"], one["text"]] for one in whole[-1]["messages"]] if whole else [],
    }


Written = tuple[
    list[tuple[str, str]], str
]  # roles and texts as tokens were trained on, and the template's text of the whole


def rendered(tokenizer: Any, schemas: list[Any], row: dict[str, Any]) -> Written:
    """A conversation as its tokens are, and as the template writes the same calls and results at once."""
    parts = [(message["role"], tokenizer.decode(message["ids"])) for message in row["messages"]]
    prompt = next(message["text"] for message in row["messages"] if message["role"] == "user")
    own = [message["text"] for message in row["messages"] if message["role"] == "assistant"]
    chat: list[dict[str, Any]] = [{"role": "user", "content": QUESTION.findall(prompt)[-1]}]
    for number, text in enumerate(own[:-1]):
        (name, word), *_ = ((name, found[1]) for name, form in CALLS.items() if (found := form.search(text)))
        argument, function = TOOLS[name]
        asked = {"name": name, "arguments": {argument: word}}
        call = {"id": f"{number:09d}", "type": "function", "function": asked}
        chat.append({"role": "assistant", "content": "", "tool_calls": [call]})
        chat.append({"role": "tool", "content": str(function(word)), "name": name, "tool_call_id": call["id"]})
    chat.append({"role": "assistant", "content": ANSWER.findall(own[-1])[-1]})
    return parts, tokenizer.apply_chat_template(chat, tools=schemas, tokenize=False)


def context_differs(written: Written) -> bool:
    """Whether a prompt or a result is written otherwise; between two of them stand the words of the model, as they are."""
    parts, text = written
    place = 0
    for number, (role, part) in enumerate(parts):
        if role != "assistant":
            place = text.find(part, place)
            if place < 0 or (number == 0 and place):
                return True
            place += len(part)
    return False


def own_differs(written: Written) -> bool:
    """Whether the whole is written otherwise, as where the model goes on after a call: its words are trained on as they are."""
    parts, text = written
    return not text.startswith("".join(part for _, part in parts))


def right(row: dict[str, Any]) -> bool:
    """Whether a template did what is asked."""
    accuracy, seen = row["accuracy"], row["conversations"]
    rise = accuracy["greedy after"]["accuracy"] - accuracy["greedy before"]["accuracy"]
    sound = not seen["messages besides the model's with log-probs"] and seen["right ones with two calls"] > 0
    return rise >= RISE and sound and not seen["of these with prompts or results that the template writes otherwise"]


def trained(name: str, file: Path, home: Path, steps: int, warm_steps: int) -> dict[str, Any]:
    """A model made and trained with a template: seconds, accuracies, conversations."""
    words = [str(EXAMPLE / "problems.py"), name, "--template", str(file), "--steps", str(warm_steps)]
    made, printed = called([*words, "--special", *SPECIAL[name]], home)
    words = ["-m", "purestep.runtime.cli.main", "train", "text", "--model", f"{name}/model", "--run", f"run-{name}"]
    words += ["--prompts", f"{name}/problems.jsonl", "--reward", "exact", "--tools", str(EXAMPLE / "shop.py")]
    words += ["--steps", str(steps), "--max-turns", "3", "--max-new-tokens", "48"]
    spent, _ = called(words, home)
    run = home / f"run-{name}"
    row = {
        "made": printed.strip().splitlines()[-1],
        "seconds": {"making": made, "training": spent},
        "accuracy": accuracies(run),
        "conversations": looked_at(run),
    }
    print(name, json.dumps(row), "as asked" if right(row) else "NOT as asked", flush=True)
    return row


def main() -> int:
    """Trains with each template, and writes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tool_task", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[*SPECIAL], default=[*SPECIAL], help="some of them")
    parser.add_argument("--steps", type=int, default=40, help="of reinforcement (default: 40)")
    parser.add_argument("--warm-steps", type=int, default=300, help="of the model that begins (default: 300)")
    parser.add_argument("--jobs", type=int, default=2, help="templates at a time (default: 2)")
    asked = parser.parse_args()
    start, load = time.perf_counter(), [round(each, 2) for each in os.getloadavg()]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        home = Path(folder)
        files = {name: file for name, file in templates(home).items() if name in asked.only}
        found = pool.map(lambda name: trained(name, files[name], home, asked.steps, asked.warm_steps), files)
        rows = dict(zip(files, found, strict=True))
        figures = {"load before": load, "templates": rows}
        evidence.write("tool_task", seconds=time.perf_counter() - start, figures=figures)
    return int(not all(map(right, rows.values())))


if __name__ == "__main__":
    sys.exit(main())
