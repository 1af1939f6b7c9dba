"""The record of the run in a folder, from its arguments.json, as one of today's schema: read without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointError, ChoiceError, StructureError, message
from ..effects import folder
from ..machine.json_codec import decode, short
from .migrations import upgrade


def record_of(run: Path) -> Mapping[str, Any]:
    """Return the record in a run's folder; {} without the file.

    Raises: CheckpointError, also for a run of a newer version, and for a file with values that no run has.
    """
    path = run / folder.ARGUMENTS
    return record_in_file(path) if path.is_file() else {}


def record_in_file(path: Path) -> dict[str, Any]:
    """Return the record in a file. Raises: as `record_of`."""
    try:
        held = decode(folder.read_json(path))
    except (ChoiceError, StructureError) as fault:
        remedy = "bring the file back from a copy, or train anew"
        raise CheckpointError(message(str(path), got=f"damaged ({fault})", wanted="a record", remedy=remedy)) from fault
    return upgrade(held, str(path))


def with_generators(run: Path) -> bool:
    """Return whether the folder holds a run of a language model whose samples come from generators."""
    held = record_of(run)
    if not held.keys() >= {"mode", "generators"}:
        return False
    number = held["generators"]
    if type(number) is not int:
        where, remedy = f"{run / folder.ARGUMENTS}: generators", "bring the file back from a copy, or train anew"
        raise CheckpointError(message(where, got=short(number), wanted="a whole number", remedy=remedy))
    return held["mode"] == "async" or number > 0


def train_command(run: Path) -> str:
    """Return the command that trains the run in a folder again.

    >>> train_command(Path("runs/safe"))
    'purestep train RECIPE --run runs/safe --overwrite'
    """
    held = record_of(run)
    return f"purestep train {held.get('reference') or held.get('recipe', 'RECIPE')} --run {run} --overwrite"
