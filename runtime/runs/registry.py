"""Recipes of language models by name, each with the class of its settings, which is imported when it is needed."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ...core.errors import choose

TEXT: Mapping[str, str] = {  # recipes that train a model at a task
    "zorplex": "recipes.zorplex:Zorplex",
    "text": "language.config:TaskRun",
    "cache": "recipes.cache:Cache",
}


def settings_of(recipe: str) -> Any:
    """Return the class of a recipe's settings. Raises: ChoiceError.

    >>> settings_of("zorplex").__name__
    'Zorplex'
    """
    module, _, name = choose("recipe", recipe, TEXT).partition(":")
    return getattr(import_module(f"..{module}", __package__), name)
