"""The recipe that the run in a folder follows, as its arguments.json says: read without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..effects import folder
from .registry import TEXT


def recorded(run: Path) -> Mapping[str, Any]:
    """The recipe and the arguments that stand in a run's folder; none without the file. Raises: CheckpointError."""
    path = run / folder.ARGUMENTS
    return folder.read_json(path) if path.is_file() else {}


def is_language(run: Path) -> bool:
    """Return whether the folder holds a run of a language model at a task."""
    return recorded(run).get("recipe") in tuple(TEXT)


def with_generators(run: Path) -> bool:
    """Return whether the folder holds such a run whose samples come from generators."""
    held = recorded(run)
    return held.get("recipe") in tuple(TEXT) and (held.get("mode") == "async" or held.get("generators", 0) > 0)
