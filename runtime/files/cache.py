"""The cache folder of compiled programs."""

import os
from pathlib import Path


def cache_directory() -> Path | None:
    """Return the folder of compiled programs: purestep in XDG_CACHE_HOME, or in ~/.cache; None if it is not writable."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "purestep"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
