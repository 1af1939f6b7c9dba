"""The record of the run in a folder, from its arguments.json: read without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..effects import folder


def recorded(run: Path) -> Mapping[str, Any]:
    """Return the recipe and the arguments in a run's folder; {} without the file. Raises: CheckpointError."""
    path = run / folder.ARGUMENTS
    return folder.read_json(path) if path.is_file() else {}


def with_generators(run: Path) -> bool:
    """Return whether the folder holds a run of a language model whose samples come from generators."""
    held = recorded(run)
    return held.keys() >= {"mode", "generators"} and (held["mode"] == "async" or held["generators"] > 0)


def train_command(run: Path) -> str:
    """Return the command that trains the run in a folder again.

    >>> train_command(Path("runs/safe"))
    'purestep train RECIPE --run runs/safe --overwrite'
    """
    held = recorded(run)
    return f"purestep train {held.get('reference') or held.get('recipe', 'RECIPE')} --run {run} --overwrite"
