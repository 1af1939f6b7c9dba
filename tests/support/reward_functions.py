"""Reward functions as users of TRL write them, and ones that fail: a worker process imports them, the tests do not."""

import asyncio
import os
import re
import time
from typing import Any

HERE = os.getpid()  # of the process that imported this module


def accuracy_reward(completions: Any, solution: Any, **kwargs: Any) -> list[float]:
    """A chat completion whose boxed answer is the solution."""
    found = [re.search(r"\\boxed\{(.*?)\}", completion[0]["content"]) for completion in completions]
    return [float(one is not None and one[1] == wanted) for one, wanted in zip(found, solution, strict=True)]


def format_reward(completions: Any, **kwargs: Any) -> list[float]:
    """A chat completion of a thought and an answer in their tags."""
    pattern = r"^<think>.*?</think><answer>.*?</answer>$"
    return [1.0 if re.match(pattern, completion[0]["content"]) else 0.0 for completion in completions]


def reward_len(completion_ids: Any, **kwargs: Any) -> list[float]:
    """The number of tokens, negative."""
    return [-float(len(ids)) for ids in completion_ids]


async def judged(prompts: Any, completions: Any, **kwargs: Any) -> list[float]:
    """A judge that is asked about each completion at the same time."""

    async def judge(prompt: str, completion: str) -> float:
        await asyncio.sleep(0.01)
        return float(completion.startswith(prompt))

    return await asyncio.gather(*(judge(*pair) for pair in zip(prompts, completions, strict=True)))


def math_only(prompts: Any, completions: Any, task: Any, **kwargs: Any) -> list[float | None]:
    """A reward of one of two tasks."""
    return [float(text == "5") if kind == "math" else None for kind, text in zip(task, completions, strict=True)]


def code_only(prompts: Any, completions: Any, task: Any, **kwargs: Any) -> list[float | None]:
    """A reward of the other task."""
    return [float("def" in text) if kind == "code" else None for kind, text in zip(task, completions, strict=True)]


_loops: list[Any] = []


async def one_loop(completions: Any) -> list[float]:
    """1 in the event loop of the first call, as clients of servers need it that are opened once."""
    _loops.append(asyncio.get_running_loop())
    return [float(_loops[0] is _loops[-1])] * len(completions)


def by_keywords(completions: Any, answer: Any, *, level: Any = None) -> list[float]:
    """A function without **kwargs."""
    return [10 * len(answer[0]) + (level is not None) for _ in completions]


def size_of_batch(completions: Any, **kwargs: Any) -> list[int]:
    """The number of completions of the call; 100 more if they are chat messages."""
    return [len(completions) + 100 * isinstance(completions[0], list)] * len(completions)


def process(completions: Any, **kwargs: Any) -> list[int]:
    """The process that calls this function, which is the one that has imported it."""
    assert os.getpid() == HERE
    print("called", flush=True)
    return [HERE] * len(completions)


def misbehaving(completions: Any, **kwargs: Any) -> Any:
    """A list of ones, unless a completion names another behaviour."""
    for text in completions:
        if text == "raises":
            raise ValueError("no number\nin two lines")
        if text == "exits":
            raise SystemExit(3)
        if text == "hangs":
            time.sleep(60.0)
        if text == "dies":
            os._exit(3)
        if text == "too few":
            return []
        if text == "no list":
            return {"reward": 1.0}
    values = {"too large": 10**400, "infinite": float("-inf"), "text": "1.0", "NaN": float("nan"), "none": None}
    return [values.get(text, 1.0) for text in completions]


def positional(completions: Any, answer: Any, /) -> list[float]:
    """A function that cannot be called by keyword."""
    return [1.0 for _ in completions]


def of_one(completion: str, answer: str) -> float:
    """A function of one completion."""
    return float(completion == answer)


NUMBER = 7
