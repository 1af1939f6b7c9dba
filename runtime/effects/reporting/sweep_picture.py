"""Picture of a sweep: scores over the swept settings, and the learning curves of the best ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from .plot import COLOURS, FAINT, GRID, INK, tick_text
from .png import save_figure

Curve = Sequence[tuple[float, float]]
# values, scores of the seeds, their curves, and the rung of successive halving at which they stopped, from 1
Setting = tuple[Mapping[str, float], Sequence[float], Sequence[Curve], int]
MARKERS = "osDv^P*"  # of the last rung, and of those before it
BEST = 3  # settings whose curves are drawn
POINTS = 200  # of a mean curve


def sweep_picture(settings: Sequence[Setting], logarithmic: Sequence[str], out: Path, *, title: str) -> Path:
    """Draw the scores of `settings`, the best first, and the curves of the first three; return `out`.

    One swept number: scores over it, each seed a dot, means a line. Two or more: a map of the first two, coloured by the mean
    score; a grid as cells, drawn settings as dots. Each of several rungs has its own colour or marker.
    Raises: ChoiceError where `check_picture` does.
    """
    figure = Figure(figsize=(11.0, 4.6), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    names = list(settings[0][0])
    if len(names) == 1:
        _line(left, names[0], settings)
    else:
        _map(figure, left, names, settings)
    if names[0] in logarithmic:
        left.set_xscale("log")
    if len(names) > 1 and names[1] in logarithmic:
        left.set_yscale("log")
    _curves(right, settings[:BEST])
    for axes in (left, right):
        axes.tick_params(colors=FAINT, labelsize=9)
        axes.set_axisbelow(True)
    left.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK)
    return save_figure(figure, out)


def _line(axes: Axes, name: str, settings: Sequence[Setting]) -> None:
    for colour, (label, rung) in zip(COLOURS, _rungs(settings), strict=False):
        rows = sorted(rung, key=lambda row: row[0][name])
        for values, scores, *_ in rows:
            finite = [score for score in scores if np.isfinite(score)]
            axes.plot([values[name]] * len(finite), finite, "o", color=colour, alpha=0.35, markersize=4)
        means = [_mean(row[1]) for row in rows]
        axes.plot([row[0][name] for row in rows], means, color=colour, linewidth=1.6, label=label)
    axes.set_xlabel(name.replace("_", " "), color=INK)
    axes.set_ylabel("mean return, greedy", color=INK)
    axes.grid(color=GRID, linewidth=0.8)
    _legend(axes)


def _map(figure: Figure, axes: Axes, names: Sequence[str], settings: Sequence[Setting]) -> None:
    x, y = names[:2]
    rungs, shown = _rungs(settings), list[Any]()
    rows = sorted({row[0][y] for row in settings})
    columns = sorted({row[0][x] for row in settings})
    cells: dict[tuple[float, float], list[float]] = {}
    for values, scores, *_ in settings:
        cells.setdefault((values[y], values[x]), []).append(_mean(scores))
    if len(rungs) == 1 and len(rows) * len(columns) == len(cells):  # a grid; of further axes the best value counts
        held = [[max(cells[row, column]) for column in columns] for row in rows]
        shown.append(axes.pcolormesh(columns, rows, np.asarray(held), shading="nearest", cmap="viridis"))
    else:
        finite = [mean for row in settings if np.isfinite(mean := _mean(row[1]))] or [0.0]
        scale: dict[str, Any] = {"vmin": min(finite), "vmax": max(finite), "cmap": "viridis"}
        for marker, (label, rung) in zip(MARKERS, rungs, strict=False):
            across, up = [row[0][x] for row in rung], [row[0][y] for row in rung]
            means = [_mean(row[1]) for row in rung]
            shown.append(axes.scatter(across, up, c=means, marker=marker, s=46, label=label, **scale))
    figure.colorbar(shown[0], ax=axes, label="mean return, greedy")
    axes.set_xlabel(x.replace("_", " "), color=INK)
    axes.set_ylabel(y.replace("_", " "), color=INK)
    _legend(axes)


def _rungs(settings: Sequence[Setting]) -> list[tuple[str, list[Setting]]]:
    """Return the settings by the rung at which they stopped, the last rung first, with labels where there are several."""
    last = max(row[3] for row in settings)
    rungs = [(rung, [row for row in settings if row[3] == rung]) for rung in range(last, 0, -1)]
    return [
        ("" if last == 1 else f"rung {rung}" if rung == last else f"stopped at rung {rung}", rows)
        for rung, rows in rungs
        if rows
    ]


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _curves(axes: Axes, settings: Sequence[Setting]) -> None:
    for colour, (values, _, curves, _) in zip(COLOURS, settings, strict=False):
        several = [np.asarray(curve) for curve in curves if len(curve) > 1]
        if not several:
            continue
        steps = np.linspace(max(one[0, 0] for one in several), min(one[-1, 0] for one in several), POINTS)
        every = np.stack([np.interp(steps, one[:, 0], one[:, 1]) for one in several])
        label = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in values.items())
        axes.fill_between(steps, every.min(0), every.max(0), color=colour, alpha=0.15, linewidth=0)
        axes.plot(steps, every.mean(0), color=colour, linewidth=1.6, label=label)
    axes.set_xlabel("environment steps", color=INK)
    axes.set_ylabel("mean episode return while training", color=INK)
    axes.xaxis.set_major_formatter(FuncFormatter(tick_text))
    axes.grid(color=GRID, linewidth=0.8)
    _legend(axes)


def _mean(scores: Sequence[float]) -> float:
    return float(np.mean(scores)) if np.isfinite(scores).all() else float("nan")
