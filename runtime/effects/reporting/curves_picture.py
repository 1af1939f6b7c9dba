"""Pictures of a task's own evaluation: its curves before and after training, and the rewards of the training steps."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ....core.errors import ChoiceError, message
from ....core.intervals import student
from ....core.language.evaluation import Axis, Curve
from .metrics import Row
from .plot import COLOURS, FAINT, GRID, INK
from .png import save_figure

SMOOTH = 5  # rows of which a curve of rewards is the mean
SHADES = {"before": COLOURS[1], "untrained": COLOURS[1], "after": COLOURS[0], "trained": COLOURS[0]}
REWARDS = "mean reward of the next step"


def curves_picture(
    rows: Sequence[Sequence[Row]], curves: Mapping[str, Sequence[Curve]], out: Path, *, axis: Axis
) -> Path:
    """Draw shares over x, a line and band for each name, and the rewards of runs' rows; return `out`.

    Of several curves under one name the mean is drawn. Its band is the curve's own interval, from `low` to `high`, for one
    curve, and the 95 % interval of the mean for several. Raises: ChoiceError if there is nothing to draw.
    """
    rewarded = [steps for steps in (_rewarded(each) for each in rows) if steps]
    curves = {name: some for name, some in curves.items() if some}
    if not rewarded and not curves:
        remedy = "let it train or evaluate first"
        raise ChoiceError(message("curves_picture", got="nothing to draw", wanted="rewards or curves", remedy=remedy))
    panels: list[Callable[[Axes], None]] = [partial(_draw_curves, curves=curves, axis=axis)] if curves else []
    panels += [partial(_draw_rewards, runs=rewarded)] if rewarded else []
    figure = Figure(figsize=(5.4 * len(panels), 4.0), dpi=140, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(axis.title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    for place, draw in enumerate(panels, 1):
        axes = figure.add_subplot(1, len(panels), place)
        draw(axes)
        _dress(axes)
    return save_figure(figure, out)


def _rewarded(rows: Sequence[Row]) -> list[tuple[float, float]]:
    found = [(row.get("steps", math.nan), row.get("episode_return", math.nan)) for row in rows]
    return [(step, reward) for step, reward in found if math.isfinite(step) and math.isfinite(reward)]


def banded(several: Sequence[Curve]) -> Curve:
    """Return one curve for several of a kind: their mean, and the 95 % interval of that mean; one curve is returned unchanged.

    >>> one, two = (Curve(mean=(x,), low=(x,), high=(x,)) for x in (0.25, 0.75))
    >>> banded([one, two]).mean, banded([one]) == one
    ((0.5,), True)
    """
    if len(several) == 1:
        return several[0]
    length = min(len(one.mean) for one in several)
    values = np.array([one.mean[:length] for one in several])
    mean = values.mean(axis=0)
    half = student(len(several)) * values.std(axis=0, ddof=1) / math.sqrt(len(several))
    low, high = np.maximum(mean - half, 0.0), np.minimum(mean + half, 1.0)
    return Curve(mean=tuple(mean.tolist()), low=tuple(low.tolist()), high=tuple(high.tolist()))


def _draw_curves(axes: Axes, curves: Mapping[str, Sequence[Curve]], axis: Axis) -> None:
    longest = 1
    for (name, several), spare in zip(curves.items(), COLOURS[2:] * len(curves), strict=False):
        one, colour = banded(several), SHADES.get(name, spare)
        places = range(1, len(one.mean) + 1)
        longest = max(longest, len(one.mean))
        axes.fill_between(places, one.low, one.high, color=colour, alpha=0.18, linewidth=0)
        seeds = f", mean of {len(several)}" if len(several) > 1 else ""
        axes.plot(places, one.mean, color=colour, linewidth=2.0, marker="o", markersize=3.5, label=f"{name}{seeds}")
    axes.axvline(axis.mark, color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)))
    where: dict[str, Any] = {"xytext": (4, -2), "textcoords": "offset points", "va": "top"}
    axes.annotate(axis.marked, (axis.mark, 1.0), fontsize=8, color=FAINT, **where)
    axes.set_ylim(0.0, 1.0)
    axes.set_xticks(range(1, longest + 1))
    axes.set_xlabel(axis.x, color=INK)
    axes.set_title(axis.heading, loc="left", fontsize=10.5, fontweight="bold", color=INK)


def _draw_rewards(axes: Axes, runs: Sequence[list[tuple[float, float]]]) -> None:
    for colour, points in zip(COLOURS * len(runs), runs, strict=False):
        steps, rewards = (list(each) for each in zip(*points, strict=True))
        means = [sum(rewards[max(0, i - SMOOTH + 1) : i + 1]) / min(i + 1, SMOOTH) for i in range(len(rewards))]
        axes.plot(steps, rewards, color=colour, linewidth=0.7, alpha=0.35)
        axes.plot(steps, means, color=colour, linewidth=2.0)
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(f"steps of training; thick: the mean of {SMOOTH}", color=INK)
    axes.set_title(REWARDS, loc="left", fontsize=10.5, fontweight="bold", color=INK)


def _dress(axes: Axes) -> None:
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelsize=8.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="best", frameon=False, fontsize=9, labelcolor=INK, handlelength=1.4)
