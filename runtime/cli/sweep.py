"""`purestep sweep RECIPE`: many settings and seeds at once, by one program, with a table, a picture and the best arguments.

Modules that import torch are imported only after the words were checked, so that help and refusals come at once.
"""

import math
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import tyro
from attrs import fields, frozen

from ...core.errors import ChoiceError, choose, message
from ..effects.gymnasium_name import is_gymnasium_name
from ..effects.reporting.png import check_picture
from ..recipes.classic import RECIPES
from ..recipes.shared_settings import iteration_steps, loop_of
from ..recipes.sweep_results import Ranked, rank_settings
from ..recipes.sweep_settings import SAMPLERS, SWEPT, SettingValues, Sweep, axis_of, extremes, is_axis, setting_count
from ..recipes.sweep_stages import stages
from ..runs.arguments import changed, flag, folder_label, option
from .common import FLAGS, say

SHOWN = 10  # settings in the table
ABOUT = """Train many settings and seeds of a recipe as one population, and rank them by greedy evaluation.

A swept number gets several values: a list, --gamma 0.95,0.99, or a range, --learning-rate log:1e-4:1e-2 (drawn --samples times)
or log:1e-4:1e-2:9 (a grid); also linear:LOW:HIGH. All options of the recipe may be given beside them.

Each of --threads, by default one for each processor, trains 16 runs at once, up to --members runs in all. With --device
cuda all of these are trained by one call.

--sampler optuna draws each part of the settings (--members runs at once) where those before it scored well.
--halving 3 trains all settings for a part of the steps; the best third goes on to three times as many, and so on to the end.
A learning rate that anneals does so over all steps, also in runs that stop before."""


@frozen
class Sweeping:
    """The settings that all runs share, and the sweep's own."""

    arguments: Annotated[Any, tyro.conf.arg(name="")]
    options: Annotated[Any, tyro.conf.arg(name="")]
    run: Path  # the sweep's folder


def sweep_command(words: list[str]) -> int:
    """`purestep sweep RECIPE --NUMBER VALUES ...`: trains all settings, prints the best, and draws them."""
    if not words or words[0] in ("-h", "--help"):
        named = ", ".join(RECIPES)
        print(f"usage: purestep sweep RECIPE --NUMBER VALUES [OPTIONS]\n\nrecipes: {named}\n\n{ABOUT}")
        print(f"\nnumbers: {', '.join(map(flag, SWEPT))}\n\nOptions: purestep sweep RECIPE --help")
        return 0
    name, *words = words
    recipe = choose("purestep sweep: recipe", name, RECIPES)
    axes, words = _axes(words)  # afterwards an option and its value are two words
    choose("--sampler", option(words, "--sampler", Sweep().sampler), dict.fromkeys(SAMPLERS))
    defaults = changed(recipe.defaults(option(words, "--env", None)), {"threads": "auto"})
    usual = Sweeping(defaults, Sweep(), Path("runs") / f"{folder_label(defaults.experience.env)}-{name}-sweep")
    given = tyro.cli(
        Sweeping, default=usual, args=words, prog=f"purestep sweep {name}", description=ABOUT, config=FLAGS
    )
    if not axes:
        remedy = "give one, e.g. --learning-rate log:1e-4:1e-2"
        raise ChoiceError(message("purestep sweep: numbers", got="none", wanted="one or more", remedy=remedy))
    given.options.check(axes)
    if is_gymnasium_name(given.arguments.experience.env):
        wanted, remedy = "an environment of tensors: a sweep's runs are one program", "train each setting by itself"
        raise ChoiceError(
            message("purestep sweep: --env", got=given.arguments.experience.env, wanted=wanted, remedy=remedy)
        )
    for point in extremes(axes):
        recipe.check(changed(given.arguments, point))
    rungs = _rungs(given, axes)
    picture = check_picture(given.run / "sweep.png")
    settings, seeds = setting_count(axes, given.options), given.options.seeds
    say(f"{recipe.title(given.arguments)} each: {settings} settings x {seeds} seeds, into {given.run}")
    if given.options.halving:
        say(f"rungs: {rungs}")
    from ..effects.reporting.sweep_picture import sweep_picture  # here: these import torch and matplotlib
    from ..recipes.sweep_trials import trials

    try:
        found = list(trials(given.arguments, axes, given.options, given.run, notice=say))
    except KeyboardInterrupt:
        say("interrupted; the same command goes on behind the runs that were finished")
        return 130
    rows = rank_settings(found)
    print("\n".join(_table(rows, rungs=bool(given.options.halving))))
    logarithmic = [axis.name for axis in axes if axis.logarithmic]
    title = f"{settings * seeds} runs of {name} on {given.arguments.experience.env}"
    drawn = [(row.point, row.scores, row.curves, row.rung) for row in rows]
    print(sweep_picture(drawn, logarithmic, picture, title=title))
    best = [part for one, value in rows[0].point.items() for part in (flag(one), f"{value:g}")]
    print(f"best: purestep train {name} {shlex.join([*_shared(words), *best])}")
    return 0


def _rungs(given: Sweeping, axes: Sequence[SettingValues]) -> str:
    """Return the settings and steps of each rung. Raises: ChoiceError."""
    loop = loop_of(given.arguments.experience, given.arguments.process)
    steps = loop.chunk * iteration_steps(given.arguments.experience)
    planned = stages(axes, given.options, loop.iterations // loop.chunk)
    return ", ".join(f"{rung.settings} settings to {rung.chunks * steps:,} steps" for rung in planned)


def _axes(words: Sequence[str]) -> tuple[list[SettingValues], list[str]]:
    """Split the words into the swept numbers and the options that all runs share. Raises: ChoiceError."""
    names = {flag(name): name for name in SWEPT}
    axes, rest, left = [], [], [part for word in words for part in _parts(word)]
    while left:
        word, *left = left
        if word.startswith("--") and left and is_axis(left[0]):
            value, *left = left
            axes.append(axis_of(choose("purestep sweep: number", word, names), value))
        else:
            rest.append(word)
    return axes, rest


def _shared(words: Sequence[str]) -> list[str]:
    """Return the words without the sweep's own options and their values, as `train` takes them."""
    own = {"--run", "--threads", *(flag(one.name) for one in fields(Sweep))}
    return [word for before, word in pairwise(["", *words]) if not {before, word} & own]


def _parts(word: str) -> list[str]:
    head, equals, value = word.partition("=")
    return [head, value] if equals and head.startswith("--") else [word]


def _table(rows: Sequence[Ranked], *, rungs: bool) -> list[str]:
    """Return a table of the best settings: mean, lowest and highest score of their seeds, and with `rungs` the last rung."""
    names = list(rows[0].point)
    head = [*(name.replace("_", " ") for name in names), "mean return", "lowest", "highest", "seeds"]
    head += ["rung"] if rungs else []
    body = [
        [
            *(f"{row.point[name]:g}" for name in names),
            *map(_score, (row.mean(), min(row.scores), max(row.scores))),
            str(len(row.scores)),
            *([str(row.rung)] if rungs else []),
        ]
        for row in rows[:SHOWN]
    ]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *body)]
    return [*lines, *([f"... and {len(rows) - SHOWN} more in sweep.jsonl"] if len(rows) > SHOWN else [])]


def _score(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "not finite"
