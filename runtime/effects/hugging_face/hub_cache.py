"""Models by name: the folder in which the hub's cache on this machine holds them."""

from pathlib import Path

from .optional import library


def local_folder(model: str | Path) -> Path:
    """Return the folder of a model: the one of this path, else that of this name in the hub's cache, else the path itself.

    Nothing is fetched. Raises: ModuleNotFoundError.

    >>> local_folder("no/such-model")
    PosixPath('no/such-model')
    """
    folder = Path(model)
    if folder.exists():
        return folder
    hub = library("huggingface_hub")
    try:
        found = hub.try_to_load_from_cache(str(model), "config.json")
    except ValueError:  # a name that no model of the hub can have
        return folder
    return Path(found).parent if isinstance(found, str) else folder
