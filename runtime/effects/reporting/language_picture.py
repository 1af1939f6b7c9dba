"""Pictures of a language model's run: success, reward, length, entropy, speed, sampler mismatch, and the task's own figures."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ....core.errors import ChoiceError, message
from .metrics import Row
from .plot import COLOURS, FAINT, GRID, INK
from .png import save_figure

MEAN = 5  # number of rows in a thick line's moving average


@frozen
class Panel:
    """One of the small plots: columns of the rows, under names."""

    title: str
    columns: tuple[tuple[str, str], ...]
    scale: str = "linear"


PANELS = (
    Panel("share of attempts that succeed", (("accuracy", "right"), ("format", "with an answer"))),
    Panel("mean reward of an attempt", (("episode_return", ""),)),
    Panel("length of an attempt", (("tokens", "tokens said"), ("turns", "turns"), ("tool_calls", "tool calls"))),
    Panel(
        "of the policy, a token",
        (("entropy", "entropy"), ("kl", "from the beginning"), ("approximate_kl", "by an update")),
    ),
    Panel("tokens sampled a second", (("tokens_per_second", ""),)),
    Panel("largest |trainer - sampler| log-prob", (("log_prob_difference", ""),), "log"),
)


def language_picture(
    rows: Sequence[Row],
    out: Path,
    *,
    title: str,
    start: tuple[float, ...] = (),
    figures: Sequence[str] = (),
    labels: str = "label/",
) -> Path:
    """Draw the columns of a run's rows over its steps of reinforcement; return `out`.

    `start` is the accuracy before the first step, if it is known; `figures` are the task's own columns, and `labels` is the
    prefix of the columns with shares of its labels. Raises: ChoiceError if there is no such step.
    """
    steps = [row for row in rows if math.isfinite(row.get("episode_return", math.nan))]
    if not steps:
        remedy = "let it run until it reinforces"
        raise ChoiceError(message("language_picture: rows", got="none with a return", wanted="one", remedy=remedy))
    panels = panels_of(steps, figures, labels)
    columns = 3
    height = -(-len(panels) // columns)
    figure = Figure(figsize=(4.1 * columns, 2.9 * height), dpi=130, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    figure.supxlabel(f"steps of reinforcement; thick: the mean of {MEAN}", x=0.99, ha="right", fontsize=8, color=FAINT)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(height, columns, place)
        _draw(axes, panel, steps)
        if start and math.isfinite(start[0]) and panel is PANELS[0]:
            axes.axhline(start[0], color=FAINT, linewidth=1.0, linestyle=(0, (5, 3)), label="right, before")
            _legend(axes)
    return save_figure(figure, out)


def panels_of(rows: Sequence[Row], figures: Sequence[str], labels: str) -> tuple[Panel, ...]:
    """Return the panels for which there are numbers: those of every task, of a task's own figures, and of its labels.

    If there are more labels than colours, those with the largest shares are drawn.

    >>> [panel.title for panel in panels_of([{"episode_return": 1.0, "opened": 0.5, "label/open": 1.0}], ["opened"], "label/")]
    ['mean reward of an attempt', "figures of the task's own", 'how attempts ended: share']
    """
    drawn = {column for panel in PANELS for column, _ in panel.columns}
    own = tuple((name, name.replace("_", " ")) for name in figures if name not in drawn)
    total = dict.fromkeys((name for row in rows for name in row if name.startswith(labels)), 0.0)
    for name in total:
        total[name] = sum(row[name] for row in rows if row.get(name, 0.0) > 0)
    most = sorted((name for name in total if total[name]), key=lambda name: -total[name])[: len(COLOURS)]
    ended = tuple((name, name.removeprefix(labels)) for name in most)
    every = (*PANELS, Panel("figures of the task's own", own), Panel("how attempts ended: share", ended))
    there = {name for row in rows for name, value in row.items() if math.isfinite(value)}
    return tuple(panel for panel in every if any(column in there for column, _ in panel.columns))


def _draw(axes: Axes, panel: Panel, rows: Sequence[Row]) -> None:
    for colour, (column, label) in zip(COLOURS, panel.columns, strict=False):
        points = [(number, row.get(column, math.nan)) for number, row in enumerate(rows, 1)]
        points = [(x, y) for x, y in points if math.isfinite(y) and (panel.scale == "linear" or y > 0)]
        if not points:
            continue
        xs, ys = [x for x, _ in points], [y for _, y in points]
        means = [sum(ys[max(0, i - MEAN + 1) : i + 1]) / len(ys[max(0, i - MEAN + 1) : i + 1]) for i in range(len(ys))]
        axes.plot(xs, ys, color=colour, linewidth=0.7, alpha=0.35)
        axes.plot(xs, means, color=colour, linewidth=1.8, label=label or None)
    axes.set_yscale(panel.scale)
    axes.set_title(panel.title, loc="left", fontsize=9.5, fontweight="bold", color=INK)
    axes.grid(color=GRID, linewidth=0.8)
    axes.margins(x=0)
    axes.tick_params(colors=FAINT, labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if panel.scale == "linear":
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    _legend(axes)


def _legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": INK, "handlelength": 1.4}
    if labels:
        axes.legend(handles, labels, loc="best", **look)
