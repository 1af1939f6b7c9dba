"""The cache folder of compiled programs, and the seconds that compiling them took."""

import json
import os
from pathlib import Path

from .reading import MOST_CONFIG, parse_json, read_bounded

SECONDS = "compile_seconds.json"


def cache_directory() -> Path | None:
    """Return the folder of compiled programs: purestep in XDG_CACHE_HOME, or in ~/.cache; None if it is not writable."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "purestep"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def usual_seconds(name: str) -> float:
    """Return the seconds that compiling a program of this name took the last time; 0 where that is not known."""
    found = _seconds().get(name, 0.0)
    return found if isinstance(found, float) else 0.0


def remember_seconds(name: str, seconds: float) -> None:
    """Keep the seconds of a compilation for the next run's display; where they cannot be kept, nothing happens."""
    folder = cache_directory()
    if folder is not None:
        beside = folder / f".{SECONDS}.{os.getpid()}"
        try:
            beside.write_text(json.dumps({**_seconds(), name: round(seconds, 1)}, indent=1))
            beside.replace(folder / SECONDS)
        except OSError:
            beside.unlink(missing_ok=True)


def _seconds() -> dict[str, object]:
    folder = cache_directory()
    try:
        found = parse_json(read_bounded(folder / SECONDS, MOST_CONFIG)) if folder else {}
    except (OSError, ValueError):
        found = {}
    return found if isinstance(found, dict) else {}
