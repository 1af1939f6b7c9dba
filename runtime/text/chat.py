"""One attempt at a task as lines of text for users."""

from typing import Any

from ...core.language.episode import total_reward
from ...core.language.events import Assistant, Event, Feedback, Sampled, System, ToolResult, User
from ...core.language.task import TextTask
from ...core.language.text_env import Raised, Truncated
from ...core.language.types import Rollout

WHO: dict[type[Event], str] = {
    System: "system",
    User: "user",
    Assistant: "model",
    Sampled: "model",
    ToolResult: "tool",
    Feedback: "told",
}


def chat_lines(task: TextTask, attempt: Rollout[Any], *, known: bool = True) -> tuple[str, ...]:
    """Return an attempt's messages with their roles, and its outcome; the label only where the right answer is known.

    >>> from types import SimpleNamespace
    >>> episode = SimpleNamespace(events=(User("2?"),), world=None, steps=())
    >>> chat_lines((), SimpleNamespace(episode=episode, end=()), known=False)
    ('  user    2?', '  (reward 0.00)')
    """
    said = []
    for event in attempt.episode.events:
        first, *more = event.text.split("\n") if event.text else ("",)
        said += [f"  {WHO[type(event)]:7} {first}", *(f"  {'':7} {line}" for line in more)]
    end = f"cut off: {attempt.end.reason}, " if isinstance(attempt.end, Truncated) else ""
    end = f"failed with {attempt.end.error}, " if isinstance(attempt.end, Raised) else end
    outcome = f"{task.label(attempt)}, " if known else ""
    return *said, f"  ({end}{outcome}reward {total_reward(attempt.episode):.2f})"
