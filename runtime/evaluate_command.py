"""The words of `purestep evaluate RUN` for runs of language models: their options are those of the run's recipe."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from attrs import frozen

from .recipes import cache, zorplex
from .runs.arguments import flatten
from .runs.kinds import is_language, recorded
from .runs.registry import settings_of
from .runs.trusting import Trust
from .words import FLAGS


@frozen
class Policies:
    """Functions of yours that a run's folder names: they are called only if named here, or with --trust."""

    solution_rollout_policy: str = ""  # the function of that name
    summarization_rollout_policy: str = ""  # the function of that name


@frozen
class Nothing:
    """No options."""


NOTHING = Nothing()


@frozen
class Looking:
    """A run, and the held-out tasks that it is tried on."""

    run: tyro.conf.Positional[Path]  # the run's folder
    trial: Annotated[Any, tyro.conf.arg(name="")]
    functions: Annotated[Any, tyro.conf.arg(name="")]
    more: Annotated[Any, tyro.conf.arg(name="")]
    trust: tyro.conf.FlagCreatePairsOff[bool] = False  # import the task or the functions that the run's folder names


def looked(words: list[str], about: str, more: Any = NOTHING) -> Looking:
    """The words of an evaluation, whose options are those of the recipe of the run among them, and more."""
    recipe = next((named for word in words if is_language(Path(word)) and (named := recorded(Path(word)))), {})
    settings = settings_of(str(recipe.get("recipe", zorplex.NAME)))
    functions = Policies() if settings.recipe == cache.NAME else NOTHING
    default = Looking(run=tyro.MISSING, trial=settings.trial(), functions=functions, more=more)
    given = tyro.cli(Looking, default=default, args=words, prog="purestep evaluate", description=about, config=FLAGS)
    settings().evaluated(given.trial)
    return given


def trust_of(given: Looking, words: list[str]) -> Trust:
    """The functions that the words of an evaluation trust."""
    return Trust(tuple(flatten(given.functions).values()), given.trust, ("evaluate", *words))
