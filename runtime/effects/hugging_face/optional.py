"""Libraries of the extra `llm`, which are optional."""

import importlib
from typing import Any

from ....core.errors import message


def library(name: str = "transformers") -> Any:
    """Return a library of the extra `llm`. Raises: ModuleNotFoundError, with the remedy."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as cause:
        if cause.name != name:
            raise
        text = message(name, got="absent", wanted="installed", remedy="pip install 'purestep[llm]'")
        raise ModuleNotFoundError(text, name=name) from None
