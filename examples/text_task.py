"""A task for a language model in one file, trained, resumed, evaluated and talked to by commands.

    purestep train examples/text_task.py:SAFE --run runs/safe --capacity 96 --max-new-tokens 4 --max-turns 4
    purestep resume runs/safe --trust        # after Ctrl-C; --trust imports the task that the folder names
    purestep evaluate runs/safe --trust
    purestep chat runs/safe --trust --task 3

`train ... --mode async` samples beside training, `torchrun --nproc-per-node 2 --no-python -- purestep train ...` learns on two
ranks, `train ... --server http://127.0.0.1:8000/v1` samples from a vLLM server.

A safe hides a digit. TRY, the tool, takes the first digit that the model writes and says "low", "high" or opens the safe.
"""

from typing import Any

from attrs import frozen

from purestep.core import keys
from purestep.core.language.parsers import Call, Parsed
from purestep.core.language.task import TextTask
from purestep.core.language.text_env import Outcome, TextEnv
from purestep.core.language.types import Rollout


@frozen
class Safe:
    """What is hidden."""

    digit: int


def reset(params: tuple[()], key: keys.Key) -> tuple[Safe, str]:
    return Safe(int(keys.randint(key, (), 0, 10))), "0-9?"


def step(params: tuple[()], safe: Safe, action: Any, key: keys.Key) -> tuple[Safe, Outcome]:
    tried = int(action.argument)
    if tried == safe.digit:
        return safe, Outcome("open", reward=1.0, terminated=True)
    return safe, Outcome("low" if tried < safe.digit else "high", reward=0.1)


def parser(text: str) -> Parsed:
    digits = [letter for letter in text if letter in "0123456789"]
    return Parsed(Call("TRY", digits[0])) if digits else Parsed((), -0.1, "A digit, please.")


def demonstrated(params: tuple[()], safe: Safe, key: keys.Key, skill: float) -> list[str]:
    low, high, tried = 0, 9, ""
    halves = float(keys.uniform(key, ())) < skill  # what is left; who knows less counts
    while str(safe.digit) not in tried:
        digit = (low + high) // 2 if halves else low
        low, high = (digit + 1, high) if digit < safe.digit else (low, digit - 1)
        tried += str(digit)
    return list(tried)


def opened(attempt: Rollout[Safe]) -> float:
    return float(any(made.terminated for made in attempt.episode.steps))


SAFE = TextTask(
    name="safe",
    env=lambda stream: TextEnv((), reset, step),
    parser=parser,
    instructions="A safe hides a digit from 0 to 9. Write one digit at a time.",
    figures={"accuracy": opened},
    demonstrations=demonstrated,
    solution=lambda safe: str(safe.digit),
)
