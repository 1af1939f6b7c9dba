"""Pictures of runs and of measurements, as PNG files: drawn without a window and without pyplot's global state."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from ....core.errors import ShapeError, message
from .metrics import Row, number_in_row, read_metrics
from .png import save_figure as save_figure

Source = Path | Sequence[Row]  # a file that `jsonl` wrote, or its rows
Numbers = NDArray[np.float64]

COLOURS = (
    "#1b6ca8",
    "#d9822b",
    "#3a9268",
    "#b5476b",
    "#6b5ca5",
    "#8a7a3f",
    "#4c9fb3",
)  # of similar brightness, in grey too
INK, FAINT, GRID = "#22272e", "#68717d", "#e4e7eb"
WIDTH = 100  # of a legend's row, in characters
POINTS = 1000  # of a mean over runs, at most


def learning_curve(
    runs: Sequence[Source] | Mapping[str, Sequence[Source]],
    out: Path,
    *,
    x: str = "steps",
    y: str = "episode_return",
    title: str = "Learning curve",
    x_label: str = "environment steps",
    y_label: str = "mean episode return",
    threshold: float | None = None,
    threshold_label: str = "solved",
    smooth: int = 1,
    note: str = "",
) -> Path:
    """Draw column `y` over column `x`; return `out`.

    Runs of one kind (seeds) become one line, their mean over the range that all of them cover, in a band of one standard
    deviation; a mapping holds several kinds under their labels. Rows whose `y` is no finite number are left out, and each point
    is the mean of the last `smooth` rows. Raises: ShapeError for runs without data in common, ChoiceError for an absent column.
    """
    kinds = runs if isinstance(runs, Mapping) else {"": runs}
    figure, axes = _page(note)
    for colour, (label, sources) in zip(_colours(len(kinds)), kinds.items(), strict=True):
        _draw(axes, [curve(source, x, y, smooth) for source in sources], label, colour)
    if threshold is not None:
        label = f"{threshold_label} ({threshold:g})"
        axes.axhline(threshold, color=FAINT, linewidth=1.2, linestyle=(0, (5, 3)), zorder=1.5, label=label)
    axes.set_xlabel(x_label, color=INK)
    axes.set_ylabel(y_label, color=INK)
    axes.xaxis.set_major_formatter(FuncFormatter(tick_text))
    axes.margins(x=0)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.grid(color=GRID, linewidth=0.8)
    _head(axes, title, *axes.get_legend_handles_labels())
    return save_figure(figure, out)


def curve(source: Source, x: str, y: str, smooth: int = 1) -> tuple[Numbers, Numbers]:
    """Return the points of one run, x ascending. Raises: ChoiceError, ShapeError.

    >>> curve([{"t": 1.0, "r": 2.0}, {"t": 2.0, "r": float("nan")}, {"t": 3.0, "r": 4.0}], "t", "r", smooth=2)
    (array([1., 3.]), array([2., 3.]))
    """
    rows = read_metrics(source) if isinstance(source, Path) else source
    points = np.array([(number_in_row(row, x), number_in_row(row, y)) for row in rows], dtype=np.float64).reshape(-1, 2)
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        where = f"learning_curve: {source if isinstance(source, Path) else 'a run'}"
        remedy = f"let it run until {y!r} is reported"
        raise ShapeError(message(where, got=f"without any finite {y!r}", wanted="at least one row", remedy=remedy))
    points = points[np.argsort(points[:, 0], kind="stable")]
    return points[:, 0], _trailing_mean(points[:, 1], smooth)


def _trailing_mean(values: Numbers, count: int) -> Numbers:
    """Return the mean of each value and the count - 1 before it, of fewer at the start."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - count, 0)
    mean: Numbers = (sums[ends] - sums[starts]) / (ends - starts)
    return mean


def average(curves: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers, Numbers]:
    """Return x, mean and standard deviation over runs, on the range that all of them cover. Raises: ShapeError.

    >>> one, two = (np.array([0.0, 2.0]), np.array([0.0, 4.0])), (np.array([1.0, 3.0]), np.array([4.0, 4.0]))
    >>> average([one, two])[:2]
    (array([1., 2.]), array([3., 4.]))
    """
    first, last = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    if first > last:
        got = f"over by x = {last:g}, while another begins at {first:g}"
        remedy = "draw them as kinds of their own"
        raise ShapeError(message("learning_curve: a run", got=got, wanted="runs that overlap", remedy=remedy))
    grid = np.unique(np.concatenate([[first, last], *(xs[(xs >= first) & (xs <= last)] for xs, _ in curves)]))
    if len(grid) > POINTS:
        grid = np.linspace(first, last, POINTS)
    values = np.stack([np.interp(grid, xs, ys) for xs, ys in curves])
    return grid, values.mean(axis=0), values.std(axis=0, ddof=1)


def _draw(axes: Axes, curves: list[tuple[Numbers, Numbers]], label: str, colour: str) -> None:
    if len(curves) == 1:
        axes.plot(*curves[0], color=colour, linewidth=1.8, label=label, solid_capstyle="round")
        return
    grid, mean, deviation = average(curves)
    for xs, ys in curves if len(curves) <= 10 else []:
        axes.plot(xs, ys, color=colour, linewidth=0.7, alpha=0.28)
    axes.fill_between(grid, mean - deviation, mean + deviation, color=colour, alpha=0.18, linewidth=0)
    seeds = f"mean of {len(curves)} seeds ± 1 std"
    axes.plot(grid, mean, color=colour, linewidth=2.2, label=f"{label}, {seeds}" if label else seeds)


def bars(groups: Mapping[str, Mapping[str, float]], out: Path, *, title: str, unit: str, note: str = "") -> Path:
    """Draw a horizontal bar for each number, {group: {series: number}}, with the number at its end; return `out`.

    A series has one colour in all groups, and no bar in a group that lacks it. Raises: ShapeError when there is no number.
    """
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    if not series:
        remedy = "measure something first"
        raise ShapeError(message("bars: groups", got="empty", wanted="at least one number", remedy=remedy))
    count = sum(len(group) for group in groups.values())
    figure, axes = _page(note, height=1.3 + 0.34 * count + 0.25 * len(groups))
    colours = dict(zip(series, _colours(len(series)), strict=True))
    place, ticks = 0.0, []
    for group in groups.values():
        ticks.append(place + (len(group) - 1) / 2)
        for name, value in group.items():
            drawn = axes.barh(place, value, height=0.82, color=colours[name], label=name)
            axes.bar_label(drawn, [f"{value:,.0f}"], padding=4, fontsize=9, color=INK)
            place += 1
        place += 0.7
    axes.set_yticks(ticks, list(groups), color=INK, fontsize=10)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(unit, color=INK)
    axes.xaxis.set_major_formatter(FuncFormatter(tick_text))
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    handles = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))  # one for each series
    _head(axes, title, list(handles.values()), list(handles) if len(series) > 1 else [])
    return save_figure(figure, out)


def tick_text(value: float, position: object = None) -> str:
    """Return a tick's number in few characters.

    >>> tick_text(0.5), tick_text(250_000.0), tick_text(1_500_000.0)
    ('0.5', '250k', '1.5M')
    """
    del position
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def _colours(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


def _page(note: str, *, height: float = 4.6) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8.0, height), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if note:
        figure.supxlabel(note, x=0.99, ha="right", fontsize=8, color=FAINT)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#b8bec6")
    axes.tick_params(colors=FAINT, labelsize=9)
    axes.set_axisbelow(True)
    return figure, axes


def _head(axes: Axes, title: str, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """Draw the title, and under it the legend, where it hides no data."""
    columns = max(1, min(len(labels), WIDTH // (6 + max(map(len, labels), default=0))))
    rows = -(-len(labels) // columns)
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", color=INK, pad=10 + 17 * rows)
    if labels:
        look: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handlelength": 1.4}
        place: dict[str, Any] = {"bbox_to_anchor": (-0.01, 1.0), "ncols": columns, "borderaxespad": 0.3}
        axes.legend(handles, labels, loc="lower left", **look, **place)
