"""Parts that the pictures of benchmarks share: a page without a window, its file, and the look of a panel."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from purestep.runtime.effects.reporting.plot import FAINT, GRID, INK, tick_text


def page(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def saved(figure: Figure, out: Path) -> Path:
    """Write a figure as PNG and return `out`; equal pictures give equal files."""
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, format="png", metadata={"Software": None})
    return out


def look(axes: Axes, title: str, *, size: float = 11.0, ticks: float = 9.0) -> None:
    """Give a panel its title and frame."""
    axes.set_title(title, loc="left", fontsize=size, fontweight="bold", color=INK)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelsize=ticks)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def look_of_curves(axes: Axes, title: str, *, size: float) -> None:
    """Give a panel of learning curves its title, frame, axis of steps and grid."""
    look(axes, title, size=size, ticks=8.0)
    axes.xaxis.set_major_formatter(FuncFormatter(tick_text))
    axes.margins(x=0)
    axes.grid(color=GRID, linewidth=0.8)
