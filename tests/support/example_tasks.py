"""The tasks in examples/, by FILE.py:NAME."""

from pathlib import Path

from purestep.core.language.task import TextTask
from purestep.runtime.effects.task_reference import load_task, trust

FOLDER = Path(__file__).parents[2] / "examples"
SAFE, MARKET = f"{FOLDER / 'text_task.py'}:SAFE", f"{FOLDER / 'text_market.py'}:MARKET"


def example(reference: str) -> TextTask:
    """The task; its file is trusted."""
    trust(reference)
    return load_task(reference)
