"""The record of the run in a folder, as its arguments.json has it: read without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..effects import folder


def recorded(run: Path) -> Mapping[str, Any]:
    """The recipe and the arguments that stand in a run's folder; none without the file. Raises: CheckpointError."""
    path = run / folder.ARGUMENTS
    return folder.read_json(path) if path.is_file() else {}


def with_generators(run: Path) -> bool:
    """Return whether the folder holds a run of a language model whose samples come from generators."""
    held = recorded(run)
    return held.keys() >= {"mode", "generators"} and (held["mode"] == "async" or held["generators"] > 0)


def train_command(run: Path) -> str:
    """Return the command that trains anew in a folder what the run there trains.

    >>> train_command(Path("runs/safe"))
    'purestep train RECIPE --run runs/safe --overwrite'
    """
    held = recorded(run)
    return f"purestep train {held.get('reference') or held.get('recipe', 'RECIPE')} --run {run} --overwrite"
