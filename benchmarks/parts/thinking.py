"""Word problems to be answered as <think>...</think>\\boxed{...}, and a small model that was shown the form and not the skill.

The problems are those of examples/arithmetic/problems.py; three of four answers that the model is shown leave the last change
out, and one of four the tags.
"""

import importlib.util
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import evolve

from purestep.core import keys
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.hugging_face.folder import save_model
from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer
from purestep.runtime.runs.recipe import find
from purestep.runtime.runs.run import train

from .. import evidence

SKILL, TAGGED, TOKENS = 0.25, 0.75, 64


def arithmetic() -> ModuleType:
    """The example's module."""
    path = evidence.ROOT / "examples" / "arithmetic" / "problems.py"
    spec = importlib.util.spec_from_file_location("arithmetic_problems", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROBLEMS = arithmetic()


def worked(seed: int, skill: float) -> tuple[str, str]:
    """A problem and an answer in the form, complete for the share `skill`."""
    text, _ = PROBLEMS.worked(seed, skill)
    _, given = PROBLEMS.worked(seed, skill)
    steps, _, result = given.rpartition(" #### ")
    tagged = skill >= 1.0 or random.Random(f"tags {seed}").random() < TAGGED
    thought = f"<think>\n{steps}\n</think>\n" if tagged else f"{steps}\n"
    return text, f"{thought}\\boxed{{{result}}}"


def conversations(key: keys.Key, number: int, skill: float) -> list[tuple[str, ...]]:
    first = PROBLEMS.WARM + int(keys.randint(key, (), 0, 1 << 20))
    return [worked(seed, skill) for seed in range(first, first + number)]


TASK = evolve(PROBLEMS.TASK, name="thinking", conversations=conversations)


def write(folder: Path, *, number: int, warm_steps: int, notice: Callable[[str], Any] = print) -> tuple[Path, Path]:
    """Write problems as chat messages, and train the model that begins; return the paths of both."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, seed = dict[str, int](), 0
    while len(rows) < number:
        text, _, answer = PROBLEMS.problem(seed)
        rows[text], seed = answer, seed + 1
    lines = [
        json.dumps({"prompt": [{"role": "user", "content": text}], "solution": str(answer)})
        for text, answer in rows.items()
    ]
    prompts = folder / "problems.jsonl"
    prompts.write_text("\n".join(lines) + "\n")
    texts = [text for seed in range(PROBLEMS.WARM, PROBLEMS.WARM + 400) for text in worked(seed, 1.0)]
    tokenizer = train_tokenizer(texts, least=48)
    sizes = {"width": 128, "layers": 3, "heads": 4, "kv_heads": 2, "inner": 384, "window": 160}
    config = tiny_llama(len(tokenizer), **sizes)
    save_model(folder / "new", from_config(config).init(keys.key(0)), config, tokenizer)
    settings = {"model": str(folder / "new"), "warm_steps": warm_steps, "skill": SKILL, "max_new_tokens": TOKENS}
    settings |= {"capacity": 160, "budget": 4096, "steps": 1, "learning_rate": 0.0, "held_out": 1, "groups": 1}
    settings |= {"samples": 2, "max_turns": 1, "keep_conversations": 0}
    recipe = find(f"{__name__}:TASK")
    train(recipe, folder / "warm", overwrite=True, **settings)
    for line in recipe.report(folder / "warm", (), notice):
        notice(line)
    return folder / "warm" / "model", prompts
