"""Tasks from prompts whose rewards are known beforehand, for models that have learned nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from purestep.core.language.episode import Grade
from purestep.core.language.prompts import PromptRow, RepliedPrompt, prompt_task
from purestep.core.language.task import TextTask

HERE = Path(__file__)
TRAINING, HELD_OUT = 6, 4  # rows
TINY: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "groups": 2,
    "samples": 4,
    "held_out": 4,
    "minibatches": 1,
    "warm_steps": 0,
    "steps": 3,
    "max_new_tokens": 4,
    "max_turns": 1,
    "capacity": 48,
}


def of_letters(name: str, reward: Callable[[RepliedPrompt], float | str]) -> TextTask:
    """The task whose prompts are letters; a reward that is a text is an error."""

    def grade(reply: RepliedPrompt) -> Grade:
        found = reward(reply)
        return Grade(error=found) if isinstance(found, str) else Grade(found)

    def rewards(replies: Sequence[RepliedPrompt]) -> list[Grade]:
        return [grade(reply) for reply in replies]

    letters = [PromptRow(f"{letter} {letter}?", {"letter": letter}) for letter in "abcdefghij"]
    return prompt_task(name, letters[:TRAINING], letters[TRAINING:], rewards=rewards)


def even(reply: RepliedPrompt) -> float:
    return float(sum(reply.ids) % 2 == 0)


def half(reply: RepliedPrompt) -> float:
    """Equal rewards at the first half of the letters, others at the rest."""
    return 1.0 if str(reply.row.columns["letter"]) in "abc" else even(reply)


EVEN = of_letters("even", even)
HALF = of_letters("half", half)
NOTHING = of_letters("nothing", lambda reply: 0.0)
EVERYTHING = of_letters("everything", lambda reply: 1.0)
FAILING = of_letters("failing", lambda reply: "TimeoutError: the judge is silent")


def reference(name: str) -> str:
    """FILE.py:NAME."""
    return f"{HERE}:{name}"
