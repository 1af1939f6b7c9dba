"""The folder where compiled programs are kept between runs."""

import os
from pathlib import Path


def cache_directory() -> Path | None:
    """Where compiled programs are kept: purestep in XDG_CACHE_HOME, or in ~/.cache; None where nothing can be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "purestep"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
