"""The picture of `engine_zorplex`: how each engine's run went on while its hosts were killed, and where it ended."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes

from purestep.runtime.effects.reporting.plot import COLOURS, FAINT, GRID, INK

from .async_outside import Row
from .pictures import look, page, saved


def picture(engines: Mapping[str, Mapping[str, Row]], out: Path) -> Path:
    """Updates over seconds, with where hosts went and came; accuracy before and after, in 95 % intervals. Gives `out`.

    A line and a pair of accuracies for each seed.
    """
    figure = page(11.4, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=(2.2, 1.0))
    for place, (name, seeds) in enumerate(engines.items()):
        for shift, row in enumerate(seeds.values()):
            went(left, "" if shift else name, row, COLOURS[place])
            stood(right, place + 0.1 * shift, row, COLOURS[place])
    left.set_xlabel("seconds of training; x: a host is killed, o: one is there again", fontsize=9, color=FAINT)
    left.set_ylabel("updates", fontsize=9, color=INK)
    right.set_xticks([place + 0.25 for place in range(len(engines))], list(engines))
    right.set_xlim(-0.3, len(engines) - 0.2)
    right.set_ylabel("held-out tasks that are right", fontsize=9, color=INK)
    look(left, "Generators on two hosts, both killed and replaced")
    look(right, "Before and after")
    for axes in (left, right):
        axes.grid(color=GRID, linewidth=0.8)
    left.legend(frameon=False, fontsize=8)
    return saved(figure, out)


def stood(axes: Axes, place: float, row: Row, colour: str) -> None:
    """One run: its accuracy before, and further to the right after."""
    for shift, what, shape in ((0.0, "before", "o"), (0.3, "after", "s")):
        told = row[what]
        spread = [[told["accuracy"] - told["accuracy_low"]], [told["accuracy_high"] - told["accuracy"]]]
        axes.errorbar(
            [place + shift], [told["accuracy"]], yerr=spread, fmt=shape, color=colour, capsize=2, markersize=4
        )


def went(axes: Axes, name: str, row: Row, colour: str) -> None:
    """One run: its updates, and where hosts went and came. A name of "" is left out of the legend."""
    seconds = row["seconds at each update"]
    axes.plot(seconds, range(1, len(seconds) + 1), color=colour, linewidth=1.2, label=name or None)
    for told in row.get("hosts killed and replaced", ()):
        for updates, shape in ((told["after updates"], "x"), (told["back after updates"], "o")):
            axes.plot([seconds[updates - 1]], [updates], shape, color=colour, markersize=7, fillstyle="none")
