"""The recipe that the run in a folder follows, as its arguments.json says: read without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..effects import folder
from .registry import CACHE, TEXT


def recorded(run: Path) -> Mapping[str, Any]:
    """The recipe and the arguments that stand in a run's folder; none without the file. Raises: CheckpointError."""
    path = run / folder.ARGUMENTS
    return folder.read_json(path) if path.is_file() else {}


def is_language(run: Path) -> bool:
    """Return whether the folder holds a run of a language model at a task."""
    return recorded(run).get("recipe") in tuple(TEXT)


def is_cache(run: Path) -> bool:
    """Return whether the folder holds a run of the reasoning cache."""
    return recorded(run).get("recipe") == CACHE


def with_generators(run: Path) -> bool:
    """Return whether the folder holds such a run whose samples come from generators."""
    held = recorded(run)
    return held.get("recipe") in tuple(TEXT) and (held.get("mode") == "async" or held.get("generators", 0) > 0)


def train_command(run: Path) -> str:
    """Return the command that trains anew in a folder what the run there trains.

    >>> train_command(Path("runs/safe"))
    'purestep train RECIPE --run runs/safe --overwrite'
    """
    held = recorded(run)
    return f"purestep train {held.get('reference') or held.get('recipe', 'RECIPE')} --run {run} --overwrite"
