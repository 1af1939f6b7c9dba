"""The picture of `proofs.speed`: the parts of a step as bars, growth with facts and with slots as lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from purestep.runtime.effects.reporting.plot import COLOURS, FAINT, GRID, INK

from ..parts.pictures import look, page, saved

Spreads = Mapping[str, Mapping[str, float]]


def picture(figures: Mapping[str, Any], out: Path) -> Path:
    """Draws what `proofs.speed` measured; gives `out`."""
    figure = page(12.6, 4.0)
    parts, facts, slots = figure.subplots(1, 3, width_ratios=(1.35, 1, 1))
    rows, growth = figures["microseconds a step"], figures["growth"]
    whole = {"sum of the parts": rows["sum of the parts"], "whole step": rows["whole"]}
    bars(parts, {**rows["parts"], **whole}, title="A step of 128 slots", unit="microseconds")
    by_facts, by_slots = growth["microseconds a step, by facts"], growth["microseconds a slot and step, by slots"]
    line(facts, by_facts, title="by facts, 128 slots", across="facts", unit="microseconds a step")
    line(slots, by_slots, title="by slots", across="slots", unit="microseconds a step and slot")
    note = "compiled, one thread, after compilation; medians, black: quartiles"
    figure.supxlabel(note, x=0.99, ha="right", fontsize=8, color=FAINT)
    return saved(figure, out)


def bars(axes: Axes, rows: Spreads, *, title: str, unit: str) -> None:
    """A bar for each row, in the order of the rows; what is no part has another colour."""
    names = list(rows)
    middle, errors = values(rows)
    colours = [COLOURS[0]] * (len(names) - 2) + [COLOURS[1]] * 2
    drawn = axes.barh(names, middle, xerr=errors, height=0.72, color=colours, ecolor=INK)
    axes.bar_label(drawn, [f"{value:,.0f}" for value in middle], padding=6, fontsize=9, color=INK)
    axes.invert_yaxis()
    axes.margins(x=0.16)
    axes.set_xlabel(unit, fontsize=9, color=INK)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    look(axes, title)


def line(axes: Axes, rows: Spreads, *, title: str, across: str, unit: str) -> None:
    """A point for each row over its name, a number, on a logarithmic axis; from 0 upwards."""
    xs = [float(name) for name in rows]
    middle, errors = values(rows)
    axes.errorbar(xs, middle, yerr=errors, color=COLOURS[0], marker="o", linewidth=1.8, ecolor=INK)
    axes.set_xscale("log")
    axes.set_xticks(xs)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0.0, 1.15 * max(middle))
    axes.set_xlabel(across, fontsize=9, color=INK)
    axes.set_ylabel(unit, fontsize=9, color=INK)
    axes.grid(color=GRID, linewidth=0.8)
    look(axes, title)


def values(rows: Spreads) -> tuple[list[float], list[list[float]]]:
    """The medians, and how far the quartiles lie below and above them.

    >>> values({"a": {"median": 2.0, "lower quartile": 1.5, "upper quartile": 3.0}})
    ([2.0], [[0.5], [1.0]])
    """
    middle = [row["median"] for row in rows.values()]
    below = [row["median"] - row["lower quartile"] for row in rows.values()]
    above = [row["upper quartile"] - row["median"] for row in rows.values()]
    return middle, [below, above]
