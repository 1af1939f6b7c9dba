"""The picture of `async_rl`: throughput by generators, what a bound on staleness costs, ways to new weights, and waste."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from purestep.runtime.effects.reporting.plot import COLOURS, FAINT, GRID, INK

from .pictures import look, page, saved

Rows = Mapping[str, Mapping[str, float]]
RATE, OLDEST, HEAD, WASTED = "samples a second", "largest staleness", "mean head staleness", "share of tokens wasted"


def picture(figures: Mapping[str, Any], out: Path) -> Path:
    """Draws what `async_rl` measured; gives `out`."""
    figure = page(13.2, 7.2)
    (first, second), (third, fourth) = figure.subplots(2, 2)
    gains(first, figures["throughput"])
    bounds(second, figures["staleness"])
    bars(third, figures["weights"], RATE, title="How generators get new weights, and the bound", unit=RATE)
    bars(fourth, figures["stale"], WASTED, title="What becomes of samples that are too old", unit=WASTED)
    settings = figures["settings"]
    note = f"simulated time, log-normal lengths; batches of {settings['batch']}, {settings['updates']} updates a run"
    figure.supxlabel(note, x=0.99, ha="right", fontsize=8, color=FAINT)
    return saved(figure, out)


def gains(axes: Axes, rows: Mapping[str, Rows]) -> None:
    """Async over sync throughput by generators, a line for each balance of trainer and generators; dashed: the ideal."""
    kinds = dict[str, list[tuple[float, float, float]]]()
    for name, row in rows.items():
        generators, balance = name.split(" generators, ")
        point = (float(generators), row["compared"]["ratio"], row["compared"]["ideal"])
        kinds.setdefault(balance, []).append(point)
    for colour, (balance, points) in zip(COLOURS, kinds.items(), strict=False):
        across, ratios, ideals = zip(*points, strict=True)
        axes.plot(across, ratios, color=colour, marker="o", linewidth=1.8, label=balance)
        axes.plot(across, ideals, color=colour, linestyle="--", linewidth=1.0)
        axes.set_xscale("log")
        axes.set_xticks(across)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("generators", fontsize=9, color=INK)
    axes.set_ylabel("async / taking turns", fontsize=9, color=INK)
    axes.grid(color=GRID, linewidth=0.8)
    axes.legend(frameon=False, fontsize=8)
    look(axes, "Throughput; dashed: (t_g + t_t) / max(t_g, t_t)")


def bounds(axes: Axes, rows: Rows) -> None:
    """Throughput by the bound, and beside it how old samples were."""
    names = list(rows)
    axes.plot(names, [row[RATE] for row in rows.values()], color=COLOURS[0], marker="o", linewidth=1.8)
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("bound on staleness", fontsize=9, color=INK)
    axes.set_ylabel(RATE, fontsize=9, color=COLOURS[0])
    axes.grid(color=GRID, linewidth=0.8)
    look(axes, "What a bound on staleness costs")
    beside = axes.twinx()
    for colour, column, style in ((COLOURS[1], OLDEST, "o-"), (COLOURS[2], HEAD, "s--")):
        beside.plot(names, [row[column] for row in rows.values()], style, color=colour, label=column, linewidth=1.2)
    beside.set_ylim(bottom=0.0)
    beside.set_ylabel("versions", fontsize=9, color=INK)
    beside.legend(frameon=False, fontsize=8, loc="lower right")
    beside.spines["top"].set_visible(False)


def bars(axes: Axes, rows: Rows, column: str, *, title: str, unit: str) -> None:
    """A bar for each row."""
    values = [row[column] for row in rows.values()]
    drawn = axes.barh(list(rows), values, height=0.68, color=COLOURS[0])
    axes.bar_label(drawn, [f"{value:.3g}" for value in values], padding=6, fontsize=9, color=INK)
    axes.invert_yaxis()
    axes.margins(x=0.16)
    axes.set_xlabel(unit, fontsize=9, color=INK)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    look(axes, title)
