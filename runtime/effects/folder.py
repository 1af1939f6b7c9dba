"""A run's folder, and the folder where compiled programs are kept between runs.

RUN/arguments.json        the recipe and its arguments, for people (each checkpoint has its own copy)
RUN/checkpoints/          see effects.checkpoint
RUN/metrics.jsonl         a row for each iteration
RUN/tensorboard/          the same rows
RUN/learning_curve.png
RUN/evaluation.json       what came of the last evaluation
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointError, message
from .files import DISK, Files, write_whole

ARGUMENTS, METRICS, TENSORBOARD = "arguments.json", "metrics.jsonl", "tensorboard"
PICTURE, EVALUATION, CHECKPOINTS = "learning_curve.png", "evaluation.json", "checkpoints"


def clear(run: Path, *, files: Files = DISK) -> None:
    """Removes what an earlier run has left in the folder, the arguments last; a file that is none of ours stays."""
    for name in (METRICS, TENSORBOARD, PICTURE, EVALUATION, CHECKPOINTS, ARGUMENTS):
        if (run / name).exists():
            files.remove(run / name)


def begun(run: Path) -> bool:
    """Whether the folder holds checkpoints, good or not."""
    return any((run / CHECKPOINTS).glob("step_*"))


def existing(run: Path) -> Path:
    """The folder, if it is one. Raises: CheckpointError."""
    if not run.is_dir():
        raise CheckpointError(message(str(run), got="no folder", wanted="that of a run", remedy="check the path"))
    return run


def write_json(path: Path, value: Mapping[str, Any], *, files: Files = DISK) -> None:
    """Writes a mapping that JSON has words for, indented; a crash leaves the old file or the new."""
    write_whole(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode(), files=files)


def cache_directory() -> Path | None:
    """Where compiled programs are kept: purestep in XDG_CACHE_HOME, or in ~/.cache; None where nothing can be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "purestep"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def install_seconds() -> float | None:
    """How long `make` took to install this environment, as it noted there; None in one made by other means."""
    try:
        return float((Path(sys.prefix) / ".installed").read_text())
    except (OSError, ValueError):
        return None
