"""A run's folder, and the folder where compiled programs are kept between runs.

RUN/arguments.json        the recipe and its arguments; each checkpoint has its own copy
RUN/checkpoints/          see effects.checkpoint
RUN/metrics.jsonl         a row for each iteration
RUN/tensorboard/          the same rows
RUN/learning_curve.png
RUN/evaluation.json       what came of the last evaluation
RUN/proof.png             of runs that prove: the last proof drawn
RUN/tokenizer/  model/  before.json  evaluation.txt  diverged.safetensors  served/       of language models' runs
RUN/warm/  sync/  async/  comparison.json  comparison.txt  timeline.png  staleness.png   of runs with generators
RUN/rollouts.jsonl        of the reasoning cache's: the stream of finished rollouts
"""

import json
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointError, message
from .files import DISK, Files, write_whole
from .reading import MOST_JSON, parse_json, read_bounded, reason
from .step_folders import LATEST

ARGUMENTS, METRICS, TENSORBOARD = "arguments.json", "metrics.jsonl", "tensorboard"
PICTURE, EVALUATION, CHECKPOINTS = "learning_curve.png", "evaluation.json", "checkpoints"
PROOF = "proof.png"
LANGUAGE = ("tokenizer", "model", "before.json", "evaluation.txt", "diverged.safetensors", "served", "rollouts.jsonl")
PHASES = ("warm", "sync", "async")
GENERATORS = (*PHASES, "comparison.json", "comparison.txt", "timeline.png", "staleness.png")
OURS = (METRICS, TENSORBOARD, PICTURE, EVALUATION, CHECKPOINTS, ARGUMENTS)


def clear(run: Path, *, keep: Collection[str] = (), files: Files = DISK) -> None:
    """Removes what an earlier run has left in the folder, the arguments last; what `keep` names stays, and what is not ours.

    Raises: CheckpointError when no run of ours was here and yet one of its names is taken.
    """
    held = [name for name in (PROOF, *LANGUAGE, *GENERATORS, *OURS) if (run / name).exists()]
    taken = [name for name in held if name not in PHASES or (run / name / CHECKPOINTS).is_dir()]
    if taken and ARGUMENTS not in taken:
        got, remedy = f"a folder with {taken[0]!r}, which no run wrote", "choose another folder"
        raise CheckpointError(message(str(run), got=got, wanted="a new folder", remedy=remedy))
    for name in taken:
        if name not in keep:
            files.remove(run / name)


def begun(run: Path) -> bool:
    """Whether the folder, or a phase in it, holds checkpoints, good or not."""
    return any(any((home / CHECKPOINTS).glob("step_*")) for home in (run, *(run / name for name in PHASES)))


def unsaved(run: Path) -> bool:
    """Whether a run was begun in the folder and has never finished a checkpoint: it may be begun again, and nothing is lost.

    One whose checkpoints were taken away is none of these, as far as `latest` or an evaluation is left to tell.
    """
    saved = begun(run) or (run / CHECKPOINTS / LATEST).exists() or (run / EVALUATION).exists()
    return (run / ARGUMENTS).is_file() and not saved


def existing(run: Path) -> Path:
    """The folder, if it is one. Raises: CheckpointError."""
    if not run.is_dir():
        raise CheckpointError(message(str(run), got="no folder", wanted="that of a run", remedy="check the path"))
    return run


def write_json(path: Path, value: Mapping[str, Any], *, files: Files = DISK) -> None:
    """Writes a mapping that JSON has words for, indented; a crash leaves the old file or the new."""
    write_whole(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode(), files=files)


def write_text(path: Path, text: str, *, files: Files = DISK) -> None:
    """Writes a text; a crash leaves the old file or the new."""
    write_whole(path, text.encode(), files=files)


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a file. Raises: CheckpointError when it is absent or holds no mapping."""
    try:
        value = parse_json(read_bounded(path, MOST_JSON))
    except (OSError, ValueError) as cause:
        value = reason(cause)
    if not isinstance(value, dict):
        remedy = "name the folder of a run"
        raise CheckpointError(message(str(path), got=f"unreadable ({value})", wanted="a JSON object", remedy=remedy))
    return value


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
