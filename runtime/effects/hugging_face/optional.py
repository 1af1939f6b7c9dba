"""Libraries of extras, which are optional."""

import importlib
from typing import Any

from ....core.errors import message


def library(name: str = "transformers", *, extra: str = "llm") -> Any:
    """Return a library, or a module of one, of an extra. Raises: ModuleNotFoundError, with the remedy."""
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as cause:
        if cause.name != package:
            raise
        text = message(package, got="absent", wanted="installed", remedy=f"pip install 'purestep[{extra}]'")
        raise ModuleNotFoundError(text, name=package) from None
