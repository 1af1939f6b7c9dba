"""Stages of a sweep: all settings at once, batches that a sampler asks for, or rungs of successive halving. Imports no torch.

Successive halving trains all settings for a part of the steps; the best of them go on, from their states, for more steps.
Source: Jamieson and Talwalkar 2016, arXiv:1502.07943. Numbers of a run that depend on its length, such as an annealed learning
rate, are those of the whole run in every rung.
"""

from collections.abc import Sequence

from attrs import frozen

from ...core.errors import ChoiceError, message
from .sweep_settings import SettingValues, Sweep, setting_count


@frozen
class Stage:
    """Settings that are trained next to each other. Those of a rung after the first go on from their states."""

    settings: int  # how many
    chunks: int  # of the run, done at the end of the stage


def stages(axes: Sequence[SettingValues], options: Sweep, chunks: int) -> tuple[Stage, ...]:
    """Return the stages of a sweep whose runs have `chunks` chunks. Raises: ChoiceError, as `rungs`.

    >>> from .sweep_settings import axis_of
    >>> [one.settings for one in stages([axis_of("clip", "linear:0.1:0.3")], Sweep(sampler="optuna", members=24), 50)]
    [8, 8, 4]
    """
    number = setting_count(axes, options)
    if options.halving:
        return rungs(number, chunks, factor=options.halving, number=options.rungs)
    batch = max(1, options.members // options.seeds) if options.sampler == "optuna" else number
    return tuple(Stage(min(batch, number - start), chunks) for start in range(0, number, batch))


def rungs(settings: int, chunks: int, *, factor: int, number: int = 0) -> tuple[Stage, ...]:
    """Return `number` rungs, or as many as leave a setting: after each the best 1/factor go on, to factor times the chunks.

    Raises: ChoiceError for more rungs than that, and for a first rung of less than one chunk.

    >>> [(one.settings, one.chunks) for one in rungs(20, 100, factor=3)]
    [(20, 11), (6, 33), (2, 100)]
    >>> rungs(20, 100, factor=21)
    (Stage(settings=20, chunks=100),)
    """
    most, number = _rungs_within(settings, factor), number or _rungs_within(settings, factor)
    if number > most:
        wanted = f"at most {most} for {settings} settings, of which 1/{factor} go on"
        raise ChoiceError(message("--rungs", got=number, wanted=wanted, remedy="lower it, or try more settings"))
    if factor ** (number - 1) > chunks:
        where, got = f"--halving {factor}: first of {number} rungs", f"{chunks}/{factor ** (number - 1)} of a chunk"
        remedy = f"give --rungs {_rungs_within(chunks, factor)}, or more --steps"
        raise ChoiceError(message(where, got=got, wanted="one chunk or more", remedy=remedy))
    behind = range(number - 1, -1, -1)
    return tuple(Stage(settings // factor**rung, chunks // factor**left) for rung, left in enumerate(behind))


def _rungs_within(amount: int, factor: int) -> int:
    """Return the largest number of rungs of which the last, or the first, keeps 1 of `amount`."""
    number = 1
    while factor**number <= amount:
        number += 1
    return number


def survivors(scores: Sequence[float], number: int) -> list[int]:
    """Return the positions of the `number` highest scores, in ascending order; of equal scores the first.

    >>> survivors([1.0, 5.0, 3.0, 5.0], 2)
    [1, 3]
    """
    return sorted(sorted(range(len(scores)), key=lambda position: -scores[position])[:number])
