"""Settings that a run may change when it is resumed, and the rows of its record that say so. Imports no torch.

A changed number is an input of the program, so a state with it goes on as one that had it from the beginning of the run.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import ChoiceError, message
from ..effects import folder
from ..effects.checkpoint.directory import step_folders
from .arguments import flag, flatten
from .migrations import CHANGES, NUMBERS

STEPS = "steps"
Row = Mapping[str, Any]  # of a run's record: setting, before, now, iteration: the first one with the new value


def check_changes(run: Path, arguments: Any, changes: Mapping[str, Any], allowed: Collection[str]) -> dict[str, Any]:
    """Return the changes that are some. Raises: ChoiceError for a setting that may not change, and for fewer steps.

    >>> from .training_machine import TrainChunk
    >>> check_changes(Path("run"), TrainChunk(2), {"iterations": 3}, ["iterations"])
    {'iterations': 3}
    """
    known = flatten(arguments)
    some = {name: value for name, value in changes.items() if name not in known or known[name] != value}
    for name, value in some.items():
        if name not in allowed or name not in known:
            wanted = f"{known[name]}, as the run began" if name in known else f"one of {', '.join(map(flag, allowed))}"
            remedy = "train anew with it; these may change: " + ", ".join(map(flag, allowed))
            raise ChoiceError(message(f"resume {run}: {flag(name)}", got=value, wanted=wanted, remedy=remedy))
    if STEPS in some and (some[STEPS] < known[STEPS] or not known[STEPS]):
        where, remedy = f"resume {run}: --steps", "leave it out, or train anew"
        wanted = f"at least {known[STEPS]}, its own" if known[STEPS] else "none: it trains nothing"
        raise ChoiceError(message(where, got=some[STEPS], wanted=wanted, remedy=remedy))
    return some


def change_rows(arguments: Any, changes: Mapping[str, Any], iteration: int, **more: Any) -> tuple[Row, ...]:
    """Return the rows of a record about changes that hold from this iteration on.

    >>> from .training_machine import TrainChunk
    >>> change_rows(TrainChunk(2), {"iterations": 3}, 5)
    ({'setting': 'iterations', 'before': 2, 'now': 3, 'iteration': 5},)
    """
    known = flatten(arguments)
    return tuple(
        {"setting": name, "before": known[name], "now": value, "iteration": iteration, **more}
        for name, value in changes.items()
    )


def rows_in(record: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return the rows about changes in a run's record.

    >>> rows_in({"recipe": "ppo"})
    ()
    """
    return tuple(record.get(CHANGES, ()))


def changes_after(rows: Sequence[Row], iteration: int) -> dict[str, Any]:
    """Return the changes that hold from a later iteration on than this one.

    >>> changes_after([{"setting": "gamma", "before": 0.9, "now": 0.8, "iteration": 5}], 4)
    {'gamma': 0.8}
    """
    return {row["setting"]: row["now"] for row in rows if row["iteration"] > iteration}


def line_of(row: Row) -> str:
    """Return a row as a line for the user.

    >>> line_of({"setting": "learning_rate", "before": 0.1, "now": 0.2, "iteration": 5})
    '--learning-rate 0.2 from iteration 5 on, 0.1 before'
    """
    phase = f" of {row['phase']}" if row.get("phase") else ""
    return f"{flag(row['setting'])} {row['now']} from iteration {row['iteration']}{phase} on, {row['before']} before"


def phase_under_way(run: Path) -> tuple[str, int]:
    """Return the phase that a run of several is in, and its newest version; ("", 0) before the first.

    >>> phase_under_way(Path("nowhere"))
    ('', 0)
    """
    for name in reversed(folder.PHASES):
        if found := step_folders(run / name / folder.CHECKPOINTS):
            return name, int(found[-1].name.removeprefix("step_").partition("-")[0])
    return "", 0


def is_number(name: str) -> bool:
    """Return whether the run's arguments determine this leaf of a state.

    >>> is_number("learner.optimizer.1.hyperparameters.learning_rate"), is_number("learner.params")
    (True, False)
    """
    return NUMBERS.fullmatch(name) is not None
