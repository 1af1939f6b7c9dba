"""The picture of `engine_zorplex`: how each engine's run went on while its hosts were killed, and where it ended."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from purestep.runtime.effects.plot import COLOURS, FAINT, GRID, INK

from .async_outside import Row
from .prove_picture import look


def picture(engines: Mapping[str, Row], out: Path) -> Path:
    """Updates over seconds, with where hosts went and came; accuracy before and after, in 95 % intervals. Gives `out`."""
    figure = Figure(figsize=(11.4, 4.2), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(2.2, 1.0))
    for place, (name, row) in enumerate(engines.items()):
        went(left, name, row, COLOURS[place])
        for share, what, shape in ((0.0, "before", "o"), (0.25, "after", "s")):
            told = row[what]
            spread = [
                [told["accuracy"] - told["accuracy_low"]],
                [told["accuracy_high"] - told["accuracy"]],
            ]
            right.errorbar([place + share], [told["accuracy"]], yerr=spread, fmt=shape, color=COLOURS[place], capsize=3)
    left.set_xlabel("seconds of training; x: a host is killed, o: one is there again", fontsize=9, color=FAINT)
    left.set_ylabel("updates", fontsize=9, color=INK)
    right.set_xticks([place + 0.125 for place in range(len(engines))], list(engines))
    right.set_xlim(-0.5, len(engines) - 0.25)
    right.set_ylabel("held-out tasks that are right", fontsize=9, color=INK)
    look(left, "Generators on two hosts, both killed and replaced")
    look(right, "Before and after")
    for axes in (left, right):
        axes.grid(color=GRID, linewidth=0.8)
    left.legend(frameon=False, fontsize=8)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, format="png", metadata={"Software": None})
    return out


def went(axes: Axes, name: str, row: Row, colour: str) -> None:
    """One run: its updates, and where hosts went and came."""
    seconds = row["seconds at each update"]
    axes.plot(seconds, range(1, len(seconds) + 1), color=colour, linewidth=1.7, label=name)
    for told in row["hosts killed and replaced"]:
        for updates, shape in ((told["after updates"], "x"), (told["back after updates"], "o")):
            axes.plot([seconds[updates - 1]], [updates], shape, color=colour, markersize=7, fillstyle="none")
