"""Learning curves of runs, each kind labelled by its differences from the others."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointError, ChoiceError, ShapeError, message
from ..effects import folder
from ..effects.reporting.metrics import read_metrics
from ..effects.reporting.plot import learning_curve
from ..effects.reporting.png import check_picture
from .kinds import record_in_file as read_record
from .migrations import APART as BESIDES
from .recipe import Notice, recipe_of

APART = ("seed", "threads", "checkpoints", "backend")  # arguments that may differ between runs of one kind
ITERATIONS = {"x": "iteration", "x_label": "iterations"}
POINTS = 100  # approximate number of points of a curve; each is the mean of the last few rows


def draw_metric(runs: Sequence[Path], out: Path) -> Path:
    """Draw the metric of a recipe over steps; runs of one kind, seeds, become a mean in a band.

    Raises: CheckpointError for a folder that is no run, ChoiceError for one that has reported nothing.
    """
    described = {run: _arguments(run) for run in runs}
    kinds: dict[str, list[Path]] = {}
    for run, label in labels(described).items():
        kinds.setdefault(label, []).append(_reported(run))
    arguments = described[runs[0]]
    first = recipe_of(arguments)
    envs = {_world(arguments) for arguments in described.values()}
    env = envs.pop() if len(envs) == 1 else ""
    logs = [read_metrics(path) for paths in kinds.values() for path in paths]
    smooth = max(1, min(map(len, logs)) // POINTS)
    counted = {"x": "steps"} if all("steps" in row for rows in logs for row in rows) else ITERATIONS
    learning_curve(
        kinds if len(kinds) > 1 else next(iter(kinds.values())),
        out,
        **counted,
        y=first.metric,
        title=_title(described, env),
        threshold=first.solved.get(env),
        smooth=smooth,
        note=f"each point is the mean of {smooth} iterations" if smooth > 1 else "",
    )
    return out


def draw_curve(run: Path, notice: Notice) -> Iterator[str]:
    """Draw the learning curve of a run into its folder; yield the line to print, or report to `notice` why there is none."""
    try:
        yield f"learning curve: {draw_metric([run], run / folder.PICTURE)}"
    except (ChoiceError, ShapeError) as nothing:
        notice(f"no picture: {nothing}")


def curve_lines(runs: Sequence[Path], out: Path | tuple[()]) -> Iterator[str]:
    """Draw runs into one picture; yield the line to print. Raises: as `draw_metric`."""
    yield str(draw_metric(runs, picture_of(runs, out)))


def picture_of(runs: Sequence[Path], out: Path | tuple[()]) -> Path:
    """Return the path of the picture of runs: `out`, or else in the folder of a single run, or here. Raises: ChoiceError."""
    return check_picture(out or (runs[0] / folder.PICTURE if len(runs) == 1 else Path(folder.PICTURE)))


def labels(described: Mapping[Path, Mapping[str, Any]]) -> dict[Path, str]:
    """Return the label of each run's kind: recipe, environment, and the arguments in which kinds of one name differ.

    >>> one = {"recipe": "ppo", "env": "e", "seed": 0, "gamma": 0.9}
    >>> list(labels({Path("a"): one, Path("b"): {**one, "seed": 1, "gamma": 0.99}}).values())
    ['ppo e, gamma 0.9', 'ppo e, gamma 0.99']
    """
    names = {run: f"{arguments['recipe']} {_world(arguments)}".strip() for run, arguments in described.items()}
    result = {}
    for run, arguments in described.items():
        alike = [other for path, other in described.items() if names[path] == names[run]]
        differing = [
            name
            for name in arguments
            if name not in (*APART, *BESIDES) and any(other.get(name) != arguments[name] for other in alike)
        ]
        result[run] = ", ".join([names[run], *(f"{name.replace('_', ' ')} {arguments[name]}" for name in differing)])
    return result


def _arguments(run: Path) -> Mapping[str, Any]:
    """Return the recipe and the arguments in a run's folder. Raises: CheckpointError where they name no environment."""
    path = folder.existing(run) / folder.ARGUMENTS
    held = read_record(path)
    world = recipe_of(held).chosen_by
    if world and not isinstance(held.get(world), str):
        wanted, remedy = "the arguments of a run", "name the folder of one"
        raise CheckpointError(message(str(path), got=f"without its {world}", wanted=wanted, remedy=remedy))
    return held


def _world(arguments: Mapping[str, Any]) -> str:
    world = recipe_of(arguments).chosen_by
    return str(arguments[world]) if world else ""


def _title(described: Mapping[Path, Mapping[str, Any]], env: str) -> str:
    recipes = {str(arguments["recipe"]) for arguments in described.values()}
    return " ".join([*(recipes if len(recipes) == 1 else ()), *(["on", env] if env else ())]) or "Learning curves"


def _reported(run: Path) -> Path:
    path = run / folder.METRICS
    if not path.exists():
        remedy = "let the run report something first"
        raise ChoiceError(message(str(path), got="absent", wanted="the metrics of a run", remedy=remedy))
    return path
