"""A run's folder.

A folder is a run's if it has the marker RUN/.purestep.json: {"purestep": version, "recipe": name, "marker": 1, "names": [...]},
where `names` are the entries at its top that purestep wrote or may write. The marker is written before anything else. All other
content of the folder is never written to or removed, and a folder with content that is not a run's never becomes one. For the
content of each file see `layout`.
"""

import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from attrs import frozen

from ...core.errors import CheckpointError, message
from ..files.reading import MOST_JSON, parse_json, read_bounded, reason
from .checkpoint.atomic_files import (
    ABSENT,
    DISK,
    FILE,
    LOCK,
    Files,
    beside,
    check_lock,
    kind,
    lock,
    open_regular,
    write_whole,
)
from .checkpoint.directory import LATEST, remove_remains, step_folders
from .checkpoint.replace_folder import finish_replacement, in_progress, replace_folder
from .layout import ARGUMENTS as ARGUMENTS
from .layout import CHECKPOINTS as CHECKPOINTS
from .layout import EVALUATION as EVALUATION
from .layout import LANGUAGE as LANGUAGE
from .layout import METRICS as METRICS
from .layout import MODEL as MODEL
from .layout import PHASES as PHASES
from .layout import PICTURE as PICTURE
from .layout import PROOF as PROOF
from .layout import REPLACED, names_of, own_entries, removals
from .layout import TENSORBOARD as TENSORBOARD
from .layout import TOKENIZER as TOKENIZER
from .layout import TOTALS as TOTALS
from .layout import holds_others as holds_others
from .module_reference import is_reference

MARKER = ".purestep.json"
FORM = 1  # format version of the marker
MOST = 1 << 16  # largest size of a marker in bytes


@frozen
class Marker:
    """The content of the file that marks a folder as a run's."""

    version: str  # of the purestep that wrote it
    recipe: str
    names: tuple[str, ...]


def version() -> str:
    """Return the version of this purestep; "unknown" if it was not installed."""
    try:
        return metadata.version("purestep")
    except metadata.PackageNotFoundError:
        return "unknown"


def marker_of(run: Path) -> Marker | tuple[()]:
    """Return the marker of a folder; () if it has none. Raises: CheckpointError for one that no purestep wrote.

    >>> marker_of(Path("/"))
    ()
    """
    path = run / MARKER
    if kind(path) == ABSENT:
        return ()
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        text = file.read(MOST + 1)
    held: Any
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        held = ()
    fields = {"purestep": str, "recipe": str, "marker": int, "names": list}
    known = isinstance(held, dict) and all(type(held.get(name)) is wanted for name, wanted in fields.items())
    if not known or len(text) > MOST or not all(map(_plain, held["names"])):
        wanted, remedy = "the marker of a run", "choose another folder"
        raise CheckpointError(message(str(path), got="none that purestep wrote", wanted=wanted, remedy=remedy))
    if held["marker"] != FORM:
        got, remedy = f"of form {held['marker']}, by purestep {held['purestep'][:40]!r}", "use that version"
        raise CheckpointError(message(str(path), got=got, wanted=f"form {FORM}", remedy=remedy))
    return Marker(held["purestep"], held["recipe"], tuple(held["names"]))


def _plain(name: object) -> bool:
    """Return whether this can be the name of a run's file or folder."""
    return isinstance(name, str) and bool(name) and name not in (".", "..", MARKER, LOCK) and Path(name).name == name


def mark(run: Path, recipe: str, *, files: Files = DISK) -> None:
    """Mark a folder as that of a run of the recipe.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as run:
    ...     mark(Path(run), "ppo")
    ...     marker_of(Path(run)).recipe
    'ppo'
    """
    names = sorted(names_of(recipe))
    write_json(run / MARKER, {"purestep": version(), "recipe": recipe, "marker": FORM, "names": names}, files=files)


def check_free(run: Path, recipe: str) -> None:
    """Refuse a folder in which no run of the recipe may start: it holds anything but a run, or other files with a run's names.

    Allowed are a new or empty folder, one with only what a start that was killed leaves (the lock, an unfinished marker, the
    copy of the model that it checked), and a run's.
    Raises: CheckpointError.
    """
    remedy = "choose another folder: this one is left as it is"
    if kind(run) == ABSENT:
        return
    if not run.is_dir():
        raise CheckpointError(message(str(run), got=kind(run), wanted="a new folder", remedy="choose another folder"))
    check_lock(run)
    marker, there = marker_of(run), {path.name for path in run.iterdir()}
    if isinstance(marker, tuple):
        partial, (copy, _) = beside(run / MARKER), in_progress(run / MODEL)
        left = {partial.name} if kind(partial) == FILE else set()
        left |= {copy.name} if not holds_others(copy, MODEL) else set()
        others = sorted(there - {LOCK} - left)
        if others:
            got = _older(run) or f"a folder with {others[0]!r}, and no run of purestep"
            raise CheckpointError(message(str(run), got=got, wanted="a new folder", remedy=remedy))
        return
    if taken := sorted(there.intersection(names_of(recipe)) - {*marker.names}):
        got = f"a folder with {taken[0]!r}, which no run wrote"
        raise CheckpointError(message(str(run), got=got, wanted="a new folder", remedy=remedy))
    for name in marker.names:
        removals(run / name)


def _older(run: Path) -> str:
    """Return the description of a folder whose run has no marker; "" of any other."""
    try:
        recipe = read_json(run / ARGUMENTS).get("recipe")
    except CheckpointError:
        return ""
    return f"a run of an older purestep, without {MARKER}" if isinstance(recipe, str) else ""


@contextmanager
def starting(run: Path, recipe: str, *, overwrite: bool) -> Iterator[None]:
    """Lock a folder for a new run, which must hold no run unless that may be overwritten; nothing is removed yet.

    If the block raises, a folder that is new and in which nothing was written is removed again. Raises: CheckpointError,
    before anything is written.
    """

    def check() -> None:
        check_free(run, recipe)
        if not overwrite and saved(run):
            whole = (run / ARGUMENTS).is_file() and has_checkpoints(run)
            first = f"go on with it: {resume_command(run)}; or " if whole else ""
            got = "a run with checkpoints" if whole else "what is left of a run"
            remedy = f"{first}pass --overwrite, or another --run"
            raise CheckpointError(message(str(run), got=got, wanted="a new folder", remedy=remedy))

    check()
    absent = kind(run) == ABSENT
    with lock(run):
        check()
        try:
            yield
        except BaseException:
            if absent and [path.name for path in run.iterdir()] == [LOCK]:
                (run / LOCK).unlink()
                run.rmdir()
            raise


@contextmanager
def resuming(run: Path) -> Iterator[None]:
    """Lock the folder of a run that is resumed, and remove the remains of a save that was killed. Raises: CheckpointError."""
    with lock(existing(run)):
        for place in (run, *(run / phase for phase in PHASES)):
            remove_remains(place / CHECKPOINTS, DISK)
        finish_replacements(run)
        yield


def finish_replacements(run: Path, *, files: Files = DISK) -> None:
    """Complete the replacement of the run's model or tokenizer if a process was killed in it. Raises: CheckpointError."""
    marker = marker_of(run)
    for name in REPLACED if isinstance(marker, tuple) else sorted({*REPLACED}.intersection(marker.names)):
        finish_replacement(run / name, own_entries(name), files=files)


def replace_own(path: Path, write: Callable[[Path], object], *, files: Files = DISK) -> Path:
    """Replace RUN/model or RUN/tokenizer by the folder that `write` fills: it is complete or absent at any moment.

    Files in it that no run writes stay. Raises: CheckpointError; errors of `write`, after which the old one is as it was.
    """
    return replace_folder(path, write, own_entries(path.name), files=files)


def clear(run: Path, recipe: str, *, keep: Collection[str] = (), files: Files = DISK) -> None:
    """Remove the files of an earlier run from the folder, its arguments first, and mark it as one of the recipe.

    Names in `keep` stay, and everything that the marker does not name or no run writes. A folder without a marker holds no run.
    Raises: CheckpointError as `check_free` does, before anything is removed.
    """
    check_free(run, recipe)
    marker = marker_of(run)
    names = () if isinstance(marker, tuple) else marker.names
    finish_replacements(run, files=files)
    first = sorted(names, key=lambda name: (name != ARGUMENTS, name))
    going = [each for name in first if name not in keep for each in removals(run / name)]
    for path, if_empty in going:
        (files.remove_empty if if_empty else files.remove)(path)
        if path == run / ARGUMENTS:
            files.sync(run)
    mark(run, recipe, files=files)


def has_checkpoints(run: Path) -> bool:
    """Return whether the folder, or a phase in it, holds checkpoints, good or not."""
    return bool(step_folders(run / CHECKPOINTS)) or in_phases(run)


def in_phases(run: Path) -> bool:
    """Return whether a phase in the folder holds checkpoints, good or not."""
    return any(step_folders(run / name / CHECKPOINTS) for name in PHASES)


def saved(run: Path) -> bool:
    """Return whether the folder, or a phase in it, holds checkpoints or the rest of a run that had some.

    `latest` and an evaluation stay where checkpoints were removed.
    """
    homes = (run, *(run / name for name in PHASES))
    left = [path for home in homes for path in (home / CHECKPOINTS / LATEST, home / EVALUATION)]
    return has_checkpoints(run) or any(path.exists() for path in left)


def unsaved(run: Path) -> bool:
    """Return whether a run was started in the folder and saved nothing yet: it can be restarted without loss."""
    return (run / ARGUMENTS).is_file() and not saved(run)


def is_run(run: Path) -> bool:
    """Return whether the folder is that of a run, complete or not. Raises: as `marker_of`.

    >>> is_run(Path("/"))
    False
    """
    return run.is_dir() and not isinstance(marker_of(run), tuple)


def existing(run: Path) -> Path:
    """Return the folder, if it is that of a run. Raises: CheckpointError."""
    where, wanted = str(run), "that of a run"
    if not run.is_dir():
        raise CheckpointError(message(where, got="no folder", wanted=wanted, remedy="check the path"))
    if isinstance(marker_of(run), tuple):
        got = _older(run) or "no run of purestep"
        remedy = "train it anew, in another folder" if _older(run) else "name the folder of a run"
        raise CheckpointError(message(where, got=got, wanted=wanted, remedy=remedy))
    if not (run / ARGUMENTS).is_file():
        got, remedy = "a run whose beginning or removal was cut short", "train it anew, with --overwrite"
        raise CheckpointError(message(where, got=got, wanted="a whole one", remedy=remedy))
    return run


def resume_command(run: Path) -> str:
    """Return the command that resumes the run in a folder; with --trust if the run names a task or environment to import.

    >>> resume_command(Path("runs/safe"))
    'purestep resume runs/safe'
    """
    try:
        held = read_json(run / ARGUMENTS)
    except CheckpointError:
        held = {}
    imports = held.get("reference") or is_reference(str(held.get("env", "")))
    return f"purestep resume {run}{' --trust' if imports else ''}"


def write_json(path: Path, value: Mapping[str, Any], *, files: Files = DISK) -> None:
    """Write a mapping as indented JSON; a crash leaves the old file or the new."""
    write_whole(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode(), files=files)


def write_text(path: Path, text: str) -> None:
    """Write a text; a crash leaves the old file or the new."""
    write_whole(path, text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping in a file. Raises: CheckpointError when it is absent or holds no mapping."""
    try:
        value = parse_json(read_bounded(path, MOST_JSON))
    except (OSError, ValueError) as cause:
        value = reason(cause)
    if not isinstance(value, dict):
        remedy = "name the folder of a run"
        raise CheckpointError(message(str(path), got=f"unreadable ({value})", wanted="a JSON object", remedy=remedy))
    return value


def install_seconds() -> float | None:
    """Return the seconds that `make` took to install this environment, from its note there; None if it was made otherwise."""
    try:
        return float((Path(sys.prefix) / ".installed").read_text())
    except (OSError, ValueError):
        return None
