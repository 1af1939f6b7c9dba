"""All recipes by name: those of purestep, and those of other packages, in the entry-point group `purestep.recipes`."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ...core.errors import CheckpointError, ChoiceError, choose, message
from .recipe import Recipe

GROUP = "purestep.recipes"
CLASSIC = "recipes.classic:RECIPES"  # a table of recipes
OWN: Mapping[str, str] = {  # the other names -> module and name of the `Recipe`
    "prove": "recipes.prove_recipe:RECIPE",
    "zorplex": "recipes.text:ZORPLEX",
    "cache": "recipes.text:CACHE",
    "text": "recipes.text:TEXT",
    "task": "recipes.text:OWN_TASK",
}
HIDDEN = ("task",)  # named by its task: FILE.py:TASK or MODULE:TASK
TASK = "recipes.text:task_recipe"


def own() -> Mapping[str, str]:
    """Return the names of purestep's recipes, each with the module and name of its `Recipe`, or of a table that has it.

    >>> list(own())[:4]
    ['ppo', 'a2c', 'reinforce', 'dqn']
    """
    return {**dict.fromkeys(_there(CLASSIC), CLASSIC), **OWN}


@cache
def added() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the recipes of other packages by name, none of them loaded; several with one name are refused when it is used."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, {})[point.value] = point
    return {name: tuple(points.values()) for name, points in found.items()}


def listed() -> dict[str, str]:
    """Return a line on each recipe, without loading recipes of other packages.

    >>> listed()["ppo"]
    'proximal policy optimisation'
    """
    lines = {name: _own(name).about for name in own() if name not in HIDDEN}
    packages = {name: " and ".join(point.module for point in points) for name, points in added().items()}
    return {**{name: f"of {package}" for name, package in packages.items()}, **lines}


def find(name: str, where: str = "recipe") -> Recipe:
    """Return the recipe of this name, or that of the task FILE.py:TASK or MODULE:TASK.

    Raises: ChoiceError, also for one that cannot be loaded and for a name given twice.

    >>> find("ppo").chosen_by, find("examples/text_task.py:SAFE").folder
    ('env', 'safe-{algorithm}-{seed}')
    """
    if ":" in name:
        by_task: Recipe = _there(TASK)(name)
        return by_task
    ours = own()
    points = choose(where, name, {**dict.fromkeys(ours, ()), **added()})
    packages = [*(["purestep"] if name in ours else ()), *(point.value for point in points)]
    if len(packages) > 1:
        got, remedy = f"a recipe of {' and '.join(packages)}", "uninstall a package, or rename its recipe"
        raise ChoiceError(message(f"recipe {name!r}", got=got, wanted="one recipe of a name", remedy=remedy))
    return _own(name) if name in ours else _load(next(iter(points)))


@cache
def _own(name: str) -> Recipe:
    found = _there(own()[name])
    recipe: Recipe = found[name] if isinstance(found, Mapping) else found
    return recipe


def _there(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"..{module}", __package__), attribute)


def _load(point: EntryPoint) -> Recipe:
    where, wanted = f"recipe {point.name!r} ({point.value})", "a purestep.runtime.runs.recipe.Recipe of that name"
    try:
        found: Any = point.load()
    except Exception as fault:  # importing runs the module, which may raise anything
        got = f"not to be loaded ({type(fault).__name__}: {' '.join(str(fault).split())[:160]})"
        raise ChoiceError(message(where, got=got, wanted=wanted, remedy="mend or uninstall its package")) from fault
    recipe: Recipe | None = found if isinstance(found, Recipe) and not isinstance(found, type) else None
    if recipe is None or recipe.name != point.name:
        got = type(found).__name__ if recipe is None else f"one named {recipe.name!r}"
        raise ChoiceError(message(where, got=got, wanted=wanted, remedy="mend or uninstall its package"))
    return recipe


def recipe_of(described: Mapping[str, Any]) -> Recipe:
    """Return the recipe that a run's record names. Raises: CheckpointError."""
    try:
        return find(str(described.get("recipe", "")), "checkpoint: recipe")
    except ChoiceError as fault:
        raise CheckpointError(str(fault)) from fault
