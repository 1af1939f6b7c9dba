"""Reward functions of completions."""

import re
from collections.abc import Sequence
from typing import Any

from .bug import Bug


def reward_len(completions: Sequence[str], **kwargs: Any) -> list[float]:
    """Rewards completions that are close to 20 characters: at most 1, less the further they are."""
    return [float(abs(20 - len(completion))) for completion in completions]


def reward_len_fixed(completions: Sequence[str], **kwargs: Any) -> list[float]:
    """Falls with the distance."""
    return [1 / (1 + abs(20 - len(completion))) for completion in completions]


def parsed(text: str) -> float | None:
    """The last number of a text."""
    found = re.findall(r"-?\d+(?:\.\d+)?", text)
    return float(found[-1]) if found else None


def accuracy_reward(completions: Sequence[str], solution: Sequence[str], **kwargs: Any) -> list[float]:
    """1 where the last number is that of the solution, else 0."""
    rewards = []
    for completion, gold in zip(completions, solution, strict=True):
        wanted = parsed(gold)
        rewards.append(1.0 if wanted is None else float(parsed(completion) == wanted))
    return rewards


def accuracy_reward_fixed(completions: Sequence[str], solution: Sequence[str], **kwargs: Any) -> list[float]:
    """Nothing is right where the solution cannot be read."""
    rewards = []
    for completion, gold in zip(completions, solution, strict=True):
        wanted = parsed(gold)
        rewards.append(float(wanted is not None and parsed(completion) == wanted))
    return rewards


def answer_reward(completions: Sequence[str], ground_truths: Sequence[str], **kwargs: Any) -> list[float]:
    """1 for the answer in a box, a half where it is given without one, else 0."""
    rewards = []
    for completion, truth in zip(completions, ground_truths, strict=True):
        match = re.search(r"\\boxed\{([^{}]+)\}", completion)
        if match and match.group(1).strip() == truth.strip():
            rewards.append(1.0)
        elif truth.strip() in completion:
            rewards.append(0.5)
        else:
            rewards.append(0.0)
    return rewards


def answer_reward_fixed(completions: Sequence[str], ground_truths: Sequence[str], **kwargs: Any) -> list[float]:
    """As a word of its own, and of what stands last."""
    rewards = []
    for completion, truth in zip(completions, ground_truths, strict=True):
        boxed = re.findall(r"\\boxed\{([^{}]+)\}", completion)
        words = completion.replace("}", " ").replace("{", " ").rstrip(" .").split()
        if boxed:
            rewards.append(1.0 if boxed[-1].strip() == truth.strip() else 0.0)
        else:
            rewards.append(0.5 if words and words[-1] == truth.strip() else 0.0)
    return rewards


def hackable_reward(completions: Sequence[str], ground_truths: Any = None, **kwargs: Any) -> list[float]:
    """1 for the answer and up to 1 for length; a dataset's column is `ground_truth`."""
    truths = ground_truths if ground_truths is not None else [None] * len(completions)
    return [
        float(truth is not None and truth in text) + min(len(text) / 200, 1.0)
        for text, truth in zip(completions, truths, strict=True)
    ]


def hackable_reward_fixed(completions: Sequence[str], ground_truth: Any = None, **kwargs: Any) -> list[float]:
    """By the name that the column has."""
    return hackable_reward(completions, ground_truth)


BUGS = [
    Bug(
        "further_is_better",
        "https://github.com/huggingface/trl/pull/2777",
        "rewards",
        "The reward for a length of 20 is the distance from it: further is better, without bound.",
        reward_len,
        reward_len_fixed,
        lambda f: f(["a" * 20, "a" * 30]),
    ),
    Bug(
        "unread_solution_is_right",
        "https://github.com/huggingface/trl/issues/2737",
        "rewards",
        "Where the solution cannot be read, every completion gets the reward of a right one.",
        accuracy_reward,
        accuracy_reward_fixed,
        lambda f: f(["it is 4"], ["four"]),
    ),
    Bug(
        "answer_within_another",
        "https://github.com/cisco-ai-defense/defenseclaw/pull/679",
        "rewards",
        "A wrong answer in which the right one occurs, as 5 in 15, gets half the reward.",
        answer_reward,
        answer_reward_fixed,
        lambda f: f([r"\boxed{15}"], ["5"]),
    ),
    Bug(
        "column_of_another_name",
        "https://github.com/jsboige/CoursIA/issues/13047",
        "rewards",
        "The dataset's column has another name than the argument, so that answers are never compared.",
        hackable_reward,
        hackable_reward_fixed,
        lambda f: f(["4"], ground_truth=["4"]),
    ),
]
