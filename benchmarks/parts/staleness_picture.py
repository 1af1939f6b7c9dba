"""The picture of `staleness`: how the return of each method rises, at each staleness."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from purestep.runtime.effects.reporting.plot import COLOURS, FAINT, INK

from .intervals import mean_of
from .pictures import look_of_curves, page, saved
from .staleness_figures import NAMES
from .staleness_parts import LONGEST, METHODS, Cell


def picture(cells: Sequence[Cell], out: Path, steps: int) -> Path:
    """A panel for each staleness: the mean return of each method along the run, in its 95 % interval."""
    ages = sorted({cell.staleness for cell in cells})
    figure = page(3.4 * len(ages) + 0.6, 3.6)
    axes = figure.subplots(1, len(ages), sharey=True, squeeze=False)[0]
    for place, age in zip(axes, ages, strict=True):
        for cell in (cell for cell in cells if cell.staleness == age):
            line(place, cell, COLOURS[METHODS.index(cell.method)], steps)
        look_of_curves(place, f"staleness {age}", size=10)
    axes[0].set_ylim(0.0, 1.04 * LONGEST)  # an interval may reach beyond what a return can be
    axes[0].set_ylabel("mean return, apart from training", fontsize=9, color=INK)
    handles, labels = max((place.get_legend_handles_labels() for place in axes), key=lambda both: len(both[1]))
    figure.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=9)
    seeds = cells[0].returns.shape[1]
    note = f"environment steps of each seed; mean of {seeds} seeds in its 95 % interval"
    figure.supxlabel(note, fontsize=9, color=FAINT)
    return saved(figure, out)


def line(axes: Axes, cell: Cell, colour: str, steps: int) -> None:
    """One cell's curve."""
    xs, points = [updates * steps for updates in cell.updates], [mean_of(point.tolist()) for point in cell.returns]
    if cell.returns.shape[1] > 1:
        low, high = [point.low for point in points], [point.high for point in points]
        axes.fill_between(xs, low, high, color=colour, alpha=0.16, linewidth=0)
    axes.plot(xs, [point.mean for point in points], color=colour, linewidth=1.9, label=NAMES[cell.method])
