"""Progress of a run: steps done, rate, time left; a bar in a terminal, elsewhere a line now and then. Also that of a wait."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from attrs import define, field, frozen
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .metrics import Row, Sink, number_in_row

WINDOW = 30.0  # seconds over which the rate is averaged


@define
class Pace:
    """The rate over the last half minute, from the first row on: the time before it was compilation."""

    clock: Callable[[], float]
    seen: deque[tuple[float, float]] = field(factory=deque)  # (seconds, steps)

    def add(self, steps: float) -> float:
        """Return the steps per second; 0 while unknown."""
        now = self.clock()
        self.seen.append((now, steps))
        while len(self.seen) > 2 and self.seen[1][0] <= now - WINDOW:
            self.seen.popleft()
        before, then = self.seen[0]
        return (steps - then) / (now - before) if now > before else 0.0


@frozen
class ProgressTexts:
    """The texts in which a row is shown."""

    share: float  # of the whole, 0 to 1
    far: str
    fast: str
    metrics: str


def short_number(value: float) -> str:
    """Return a number in few characters.

    >>> short_number(61234.5), short_number(0.123456), short_number(3.0)
    ('61,234', '0.1235', '3')
    """
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def progress_texts(row: Row, total: float, unit: str, rate: float, by: str) -> tuple[str, str]:
    """Return the progress and the rate, as texts.

    >>> progress_texts({"steps": 2000.0}, 8000, "steps", 100.0, "steps")
    ('2,000/8,000 steps', '100 steps/s, 0:01:00 left')
    """
    steps = number_in_row(row, by)
    far = f"{steps:,.0f}/{total:,.0f} {unit}"
    if rate <= 0:
        return far, ""
    left = timedelta(seconds=round(max(total - steps, 0) / rate))
    return far, f"{short_number(rate)} {unit}/s, {left} left"


def metrics_of(row: Row, show: Sequence[str], by: str) -> str:
    """Return the columns of `show`, or the row's first three that are not counters.

    A name that ends in a slash selects the largest of the columns with that prefix.

    >>> metrics_of({"loss": 0.5, "label/right": 0.25, "label/wrong": 0.75}, ("label/", "loss"), "steps")
    'label/wrong 0.75  loss 0.5'
    """
    largest = {
        name: max((one for one in row if one.startswith(name)), key=row.__getitem__, default="") for name in show
    }
    shown = [largest[name] if name.endswith("/") else name for name in show]
    names = [name for name in shown if name in row] or [name for name in row if name not in (by, "iteration")][:3]
    return "  ".join(f"{name} {short_number(row[name])}" for name in names)


@contextmanager
def progress(
    total: float,
    *,
    unit: str = "steps",
    by: str = "steps",
    show: Sequence[str] = (),
    seconds: float = 10.0,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Sink]:
    """Display the newest row, on stderr unless another `console` is passed.

    In a terminal, a bar with rate, time left and the metrics named in `show`; elsewhere the same as a line, for the first
    row, then at most one in `seconds`, and for the last.
    """
    console = console or Console(stderr=True)
    pace = Pace(clock)

    def words(row: Row) -> ProgressTexts:
        far, fast = progress_texts(row, total, unit, pace.add(number_in_row(row, by)), by)
        return ProgressTexts(number_in_row(row, by) / total, far, fast, metrics_of(row, show, by))

    with _bar(console, words) if console.is_terminal else _lines(console, words, seconds, clock) as sink:
        yield sink


@contextmanager
def show_waiting(
    doing: str,
    usual: float,
    *,
    phase: Callable[[int], str] = lambda thread: "",
    seconds: float = 10.0,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Display the seconds of the block on stderr, what it does at the moment, and the seconds that it took the last time.

    In a terminal the line is renewed four times a second and disappears at the end; elsewhere one is printed every `seconds`.
    `usual` is 0 where nothing is known. `phase` is called with the identifier of the thread that runs the block.
    """
    console, begin, over = console or Console(stderr=True), clock(), threading.Event()
    thread = threading.get_ident()

    def words() -> str:
        parts = f"{doing} {clock() - begin:.0f} s", phase(thread), f"the last time took {usual:.0f} s" if usual else ""
        return ", ".join(part for part in parts if part)

    def print_lines() -> None:
        while not over.wait(seconds):
            console.print(words(), highlight=False, soft_wrap=True, markup=False)

    if console.is_terminal:
        with Live(get_renderable=lambda: Text(words(), style="dim"), console=console, transient=True):
            yield
        return
    ticker = threading.Thread(target=print_lines, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()


@contextmanager
def _bar(console: Console, words: Callable[[Row], ProgressTexts]) -> Iterator[Sink]:
    with Live(_picture(ProgressTexts(0.0, "starting", "", "")), console=console, refresh_per_second=4) as live:
        yield lambda row: live.update(_picture(words(row)))


def _picture(words: ProgressTexts) -> RenderableType:
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True)
    grid.add_row(words.far, ProgressBar(1.0, words.share), words.fast)
    return Group(grid, Text(words.metrics, style="dim", no_wrap=True, overflow="ellipsis"))


@contextmanager
def _lines(
    console: Console, words: Callable[[Row], ProgressTexts], seconds: float, clock: Callable[[], float]
) -> Iterator[Sink]:
    printed, waiting = -math.inf, ""

    def show(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    def write(row: Row) -> None:
        nonlocal printed, waiting
        said = words(row)
        waiting = "  ".join(part for part in (said.far, said.fast, said.metrics) if part)
        if clock() - printed >= seconds:
            show(waiting)
            printed, waiting = clock(), ""

    try:
        yield write
    finally:
        if waiting:
            show(waiting)
