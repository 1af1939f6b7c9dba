"""Pictures of asynchronous training: a timeline with a row for each actor, and the age of samples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ...async_rl.scheduler.timeline import KINDS, Interval, Span, spans_between
from .plot import COLOURS, FAINT, GRID, INK, tick_text
from .png import save_figure

COLOUR = dict(
    zip(KINDS, (COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[4], COLOURS[3], COLOURS[5], COLOURS[6]), strict=True)
)
SAID = {
    "generate": "generate",
    "train": "train",
    "sync": "sync: take new weights",
    "recompute": "recompute log-probs",
    "publish": "publish weights",
    "save": "save a checkpoint",
    "evaluate": "evaluate",
}
TURNS = {"sync": "in turns", "async": "at once"}
ROWS = 10  # largest number of actors that are drawn; the number of the others is shown
WIDTH, ROW, HEAD = 12.0, 0.3, 0.75  # inches: of the picture, of a row, of the space around the rows of a lane
WORDS = 0.035  # smallest width of a bar with text, as a share of the picture's
THIN = "save"  # runs beside other work: drawn as a line under it
PALE = 0.72


@frozen(kw_only=True)
class Lane:
    """A phase and the data to draw it."""

    name: str
    actors: tuple[str, ...]
    spans: Sequence[Span]  # for the whole of it
    close: Sequence[Span]  # for the enlarged part
    end: float  # seconds
    shares: Mapping[str, float]  # of the time in which an actor was busy
    window: Interval | tuple[()]  # the part that is enlarged


def timeline_picture(lanes: Sequence[Lane], out: Path) -> Path:
    """Draw phases one above the other on one time scale, and below a part of each, enlarged on one scale; return `out`.

    A bar in the enlarged part is labelled with the version of the weights; every other version is paler.
    """
    enlarged = [lane for lane in lanes if lane.window]
    heights = [ROW * min(ROWS, len(lane.actors)) + HEAD for lane in (*lanes, *enlarged)]
    figure = Figure(figsize=(WIDTH, 1.0 + sum(heights)), dpi=130, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    places: Any = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, lane in zip(places, lanes, strict=False):
        _whole(axes, lane, max(one.end for one in lanes))
    longest = max((lane.window[1] - lane.window[0] for lane in enlarged if lane.window), default=0.0) * 1.04
    for axes, lane in zip(places[len(lanes) :], enlarged, strict=True):
        _part(axes, lane, longest)
    figure.suptitle("Who did what, and when", x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    _legend(figure, lanes)
    return save_figure(figure, out)


def _legend(figure: Figure, lanes: Sequence[Lane]) -> None:
    kinds = {one.kind for lane in lanes for one in lane.spans}
    handles = [Patch(color=COLOUR[kind], label=SAID[kind]) for kind in KINDS if kind in kinds]
    look: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handlelength": 1.2}
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), **look)


def _whole(axes: Axes, lane: Lane, most: float) -> None:
    """Draw the whole phase; at the end of each row the share of the time in which that actor was busy."""
    drawn = _rows(axes, lane)
    for place, actor in enumerate(drawn):
        _bars(axes, place, [one for one in lane.spans if one.actor == actor], pale=False)
        share = f"{100 * lane.shares.get(actor, 0.0):.0f} %"
        axes.annotate(share, (1.0, place), (6, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=9)
    if lane.window:
        axes.axvspan(*lane.window, color=FAINT, alpha=0.13, linewidth=0, zorder=0)
    axes.set_xlim(0.0, max(most, 1e-9) * 1.005)
    turns = f", {TURNS[lane.name]}" if lane.name in TURNS else ""
    more = len(lane.actors) - len(drawn)
    hidden = f"; {more} more actors are not drawn" if more else ""
    _title(axes, f"{lane.name}{turns}: {lane.end:,.1f} s{hidden}", "at work")
    axes.set_xlabel("seconds since the phase began; grey: enlarged below", color=FAINT, fontsize=8, loc="right")


def _part(axes: Axes, lane: Lane, longest: float) -> None:
    """Draw some updates from the middle of a phase, with versions."""
    if not lane.window:
        return
    begin, end = lane.window[0], lane.window[0] + longest
    for place, actor in enumerate(_rows(axes, lane)):
        own = spans_between([one for one in lane.close if one.actor == actor], begin, end)
        _bars(axes, place, own, pale=True)
        for one in own:
            if one.end - one.begin > WORDS * longest and one.kind != THIN:
                style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5, "color": "white"}
                axes.text((one.begin + one.end) / 2, place, f"v{one.version}", **style)
    axes.set_xlim(begin, max(end, begin + 1e-9))
    _title(axes, f"{lane.name}, from its middle, enlarged: {lane.window[1] - lane.window[0]:,.2f} s", "")
    axes.set_xlabel("seconds since the phase began; v: version of the weights", color=FAINT, fontsize=8, loc="right")


def _rows(axes: Axes, lane: Lane) -> tuple[str, ...]:
    drawn = lane.actors[:ROWS]
    axes.set_yticks(range(len(drawn)), list(drawn), color=INK, fontsize=9)
    axes.set_ylim(len(drawn) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", colors=FAINT, labelsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(12))
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#b8bec6")
    return drawn


def _bars(axes: Axes, place: int, spans: Sequence[Span], *, pale: bool) -> None:
    for kind in KINDS:
        for odd in (0, 1) if pale else (-1,):
            own = [one for one in spans if one.kind == kind and (odd < 0 or one.version % 2 == odd)]
            bars = [(one.begin, one.end - one.begin) for one in own]
            low, height = (place + 0.26, 0.12) if kind == THIN else (place - 0.34, 0.68)
            faint = kind == "generate" and odd == 1
            colour: dict[str, Any] = {"color": COLOUR[kind], "alpha": PALE if faint else 1.0, "linewidth": 0}
            axes.broken_barh(bars, (low, height), **colour)


def _title(axes: Axes, text: str, beside: str) -> None:
    axes.set_title(text, loc="left", fontsize=10, fontweight="bold", color=INK)
    if beside:
        axes.annotate(beside, (1.0, 1.0), (4, 4), "axes fraction", "offset points", fontsize=8, color=FAINT)


def staleness_picture(ages: Mapping[str, Sequence[int]], bounds: Mapping[str, int], out: Path) -> Path:
    """Draw the distribution of the samples' ages, in updates, when they were trained on, for each phase; return `out`.

    `ages[phase][a]` is the number of samples of age a, `bounds` are the ages allowed.
    """
    figure = Figure(figsize=(8.0, 4.2), dpi=130, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    most, width = max(len(counts) for counts in ages.values()), 0.8 / len(ages)
    for place, (colour, (name, counts)) in enumerate(zip(COLOURS, ages.items(), strict=False)):
        total = sum(counts)
        mean = sum(age * count for age, count in enumerate(counts)) / total
        label = f"{name}: {total:,} samples, mean {mean:.2f}, at most {len(counts) - 1} of {bounds[name]} allowed"
        xs = [age - 0.4 + (place + 0.5) * width for age in range(len(counts))]
        drawn = axes.bar(xs, [100 * count / total for count in counts], 0.94 * width, color=colour, label=label)
        told = [f"{100 * count / total:.3g} %" if count else "" for count in counts]
        axes.bar_label(drawn, told, padding=3, fontsize=9 if most < 8 else 7, color=INK)
    axes.set_title(
        "Age of the samples that were learned from", loc="left", fontsize=13, fontweight="bold", color=INK, pad=46
    )
    look: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handlelength": 1.2}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), borderaxespad=0.3, **look)
    axes.set_xlabel("updates since the weights that made the first token", color=INK)
    axes.set_ylabel("% of the samples", color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(tick_text))
    axes.set_xlim(-0.6, most - 0.4)
    axes.margins(y=0.1)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelsize=9)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#b8bec6")
    return save_figure(figure, out)
