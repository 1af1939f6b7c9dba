"""A run's folder as purestep begins one: the marker, then the arguments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from purestep.runtime.effects import folder


def begun(run: Path, described: Mapping[str, Any]) -> Path:
    """Leaves what a run that has begun leaves; `described` are its recipe and arguments."""
    run.mkdir(parents=True, exist_ok=True)
    folder.mark(run, str(described["recipe"]))
    folder.write_json(run / folder.ARGUMENTS, described)
    return run
