"""Word problems with numeric answers, and a small model that knows the words and single sums but answers too early.

    python examples/arithmetic/problems.py arithmetic         # writes arithmetic/problems.jsonl and arithmetic/model

Each problem states a number and two or three changes. The model is warmed up on other problems, whose worked answers leave
the last change out three times of four, so that it has the format and not the skill; --reward alone has to bring that.
"""

import argparse
import json
import random
from pathlib import Path

from purestep.core import keys
from purestep.core.language.parsers import Parsed
from purestep.core.language.task import TextTask
from purestep.core.language.text_env import Outcome, TextEnv
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.hugging_face.folder import save_model
from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer
from purestep.runtime.runs.recipe import find
from purestep.runtime.runs.run import train

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ida", "Jon", "Kim", "Lea")
THINGS = ("apples", "books", "coins", "eggs", "marbles", "pears", "pens", "shells", "stamps", "toys")
GAINS, LOSSES = ("buys", "finds", "gets", "wins"), ("breaks", "gives away", "loses", "sells")
SKILL, WARM = 0.25, 1 << 32  # the share of worked answers that are complete; seeds of the warm start begin here


def problem(seed: int) -> tuple[str, list[str], int]:
    """A problem, the steps of its solution, and its answer."""
    draw = random.Random(seed)
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    now = draw.randint(2, 9)
    text, steps = f"{name} has {now} {thing}.", []
    for _ in range(draw.choice((2, 3))):
        change = draw.randint(1, 9)
        gains = change > now or (now + change < 20 and draw.random() < 0.5)
        after = now + change if gains else now - change
        text += f" {name} {draw.choice(GAINS if gains else LOSSES)} {change}."
        steps.append(f"{now} {'+' if gains else '-'} {change} = {after}.")
        now = after
    return f"{text} How many {thing} are left?", steps, now


def worked(seed: int, skill: float) -> tuple[str, str]:
    """A problem and a worked answer, which stops before the last change unless it is one of the share `skill`."""
    text, steps, _ = problem(seed)
    shown = steps if random.Random(f"{seed} {skill}").random() < skill else steps[:-1]
    result = shown[-1].split()[-1].rstrip(".")
    return text, " ".join([*shown, f"#### {result}"])


def conversations(key: keys.Key, number: int, skill: float) -> list[tuple[str, ...]]:
    first = WARM + int(keys.randint(key, (), 0, 1 << 20))
    return [worked(seed, skill) for seed in range(first, first + number)]


TASK = TextTask(
    name="arithmetic",
    env=lambda stream: TextEnv(
        (),
        lambda params, key: (0, problem(WARM + int(keys.randint(key, (), 0, 1 << 20)))[0]),
        lambda params, state, action, key: (state, Outcome(terminated=True)),
    ),
    parser=Parsed,
    conversations=conversations,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows, seed = dict[str, int](), asked.seed * (1 << 24)
    while len(rows) < asked.problems:
        text, _, answer = problem(seed)
        rows[text], seed = answer, seed + 1
    lines = [json.dumps({"prompt": text, "answer": str(answer)}) for text, answer in rows.items()]
    (asked.folder / "problems.jsonl").write_text("\n".join(lines) + "\n")
    new, run = asked.folder / "new", asked.folder / "warm"
    tokenizer = train_tokenizer([text for seed in range(WARM, WARM + 400) for text in worked(seed, 1.0)], least=48)
    sizes = {"width": 128, "layers": 3, "heads": 4, "kv_heads": 2, "inner": 384, "window": 160}
    config = tiny_llama(len(tokenizer), **sizes, tied=False)  # vLLM reloads no tied head
    save_model(new, from_config(config).init(keys.key(asked.seed)), config, tokenizer)
    settings = {"model": str(new), "warm_steps": 400, "skill": SKILL, "seed": asked.seed, "max_new_tokens": 48}
    settings |= {"capacity": 160, "budget": 4096, "steps": 1, "learning_rate": 0.0, "held_out": 1, "groups": 1}
    settings |= {"samples": 2, "max_turns": 1}
    recipe = find(f"{Path(__file__).absolute()}:TASK")
    train(recipe, run, overwrite=True, **settings)
    for line in recipe.report(run, (), print):
        print(line)
    print(f"model: {run / 'model'}")


if __name__ == "__main__":
    main()
