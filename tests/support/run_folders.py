"""A run's folder as purestep begins one: the marker, then the arguments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from purestep.runtime.effects import folder
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.trusting import NOTHING, Trust


def begun(run: Path, described: Mapping[str, Any]) -> Path:
    """Leaves what a run that has begun leaves; `described` are its recipe and arguments."""
    run.mkdir(parents=True, exist_ok=True)
    folder.mark(run, str(described["recipe"]))
    folder.write_json(run / folder.ARGUMENTS, described)
    return run


def restored(run: Path, trust: Trust = NOTHING) -> tuple[Any, Any, Any]:
    """The parts of a run of a language model, its state and its loop, as the newest checkpoint holds them and no older one."""
    found = runs.restore_run(run, where=runs.newest_checkpoint(run), trust=trust)
    return found.components.opened, found.state, found.loop
