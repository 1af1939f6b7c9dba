"""Metrics: rows survive files, crashes and resumption; what is shown is right, bounded and quiet."""

import io
import json
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from purestep.core.errors import ChoiceError, ShapeError, StructureError
from purestep.runtime.effects.reporting.metrics import (
    Row,
    floats,
    jsonl,
    read_metrics,
    rewind,
    stride,
    tensorboard,
    thin,
)
from purestep.runtime.effects.reporting.progress import Pace, metrics_of, progress, show_waiting


@pytest.fixture(scope="module", autouse=True)
def quick_disk() -> Iterator[None]:
    """Hundreds of real syncs would wait for whatever else uses the disk; no test cuts the machine's power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


names = st.text("ab_/é", min_size=1, max_size=4)
rows = st.lists(st.dictionaries(names, st.floats(width=64), max_size=3), max_size=5)


def equal(a: list[Row], b: list[Row]) -> bool:
    return [{k: repr(v) for k, v in row.items()} for row in a] == [{k: repr(v) for k, v in row.items()} for row in b]


@given(rows, rows)
def test_rows_come_back_and_each_line_is_strict_json(
    tmp_path_factory: pytest.TempPathFactory, first: list[Row], second: list[Row]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "new" / "metrics.jsonl"
    for part in (first, second):
        with jsonl(path) as sink:
            for row in part:
                sink(row)
    assert equal(read_metrics(path), first + second)
    for text in path.read_text().splitlines():
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_row_is_in_the_file_before_the_next_one(tmp_path: Path) -> None:
    with jsonl(tmp_path / "m") as sink:
        sink({"a": 1.0})
        assert read_metrics(tmp_path / "m") == [{"a": 1.0}]


def test_a_torn_last_line_is_passed_over_and_removed_on_resume(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with jsonl(path) as sink:
        sink({"a": 1.5})
        sink({"a": 2.25})
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        left = whole[:size].count(b"\n")
        assert read_metrics(path) == [{"a": 1.5}, {"a": 2.25}][:left]
        with jsonl(path) as sink:
            sink({"a": 3.0})
        assert read_metrics(path) == [*[{"a": 1.5}, {"a": 2.25}][:left], {"a": 3.0}]


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": [1]}', '{"a": "much"}', ""])
def test_a_damaged_line_is_refused_by_number(tmp_path: Path, text: str) -> None:
    (tmp_path / "m").write_text(f'{{"a":1}}\n{text}\n{{"a":2}}\n')
    with pytest.raises(StructureError, match=r"line 2 of .*wanted a row of numbers"):
        read_metrics(tmp_path / "m")


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 5), st.integers(1, 7))
def test_a_resumed_run_writes_the_rows_of_one_that_never_stopped(
    tmp_path_factory: pytest.TempPathFactory, total: int, saved: int, lost: int, every: int
) -> None:
    """The run is killed `lost` rows after the checkpoint at row `saved`."""

    def write(path: Path, first: int, last: int) -> None:
        with jsonl(path) as sink:
            for iteration in range(first, min(last, total) + 1):
                thin(sink, every)({"iteration": float(iteration), "x": iteration / 3})

    folder = tmp_path_factory.mktemp("resume")
    write(folder / "whole", 1, total)
    write(folder / "resumed", 1, saved + lost)
    rewind(folder / "resumed", saved)
    write(folder / "resumed", saved + 1, total)
    assert (folder / "resumed").read_bytes() == (folder / "whole").read_bytes()
    assert len(read_metrics(folder / "whole")) == total // every


def test_rewinding_nothing_is_nothing(tmp_path: Path) -> None:
    rewind(tmp_path / "absent", 3)
    assert not list(tmp_path.iterdir())


@given(st.integers(1, 100_000), st.integers(1, 500))
def test_the_stride_is_the_smallest_that_bounds_the_rows(total: int, limit: int) -> None:
    every = stride(total, limit)
    assert total // every <= limit
    assert every == 1 or math.ceil(total / (every - 1)) > limit


def test_thinning_needs_its_column_and_a_positive_stride() -> None:
    with pytest.raises(ChoiceError, match=r"column 'iteration' is absent, wanted \['a'\]"):
        thin(print, 2)({"a": 1.0})
    with pytest.raises(ChoiceError, match="every is 0"):
        thin(print, 0)


def test_tensors_become_floats_and_nothing_else_does() -> None:
    row = floats({"i": 3, "b": torch.tensor(True), "half": torch.tensor(0.5, dtype=torch.bfloat16), "x": 0.1})
    assert row == {"i": 3.0, "b": 1.0, "half": 0.5, "x": 0.1}
    assert list(row) == ["i", "b", "half", "x"]
    assert all(type(value) is float for value in row.values())
    assert floats({}) == {}
    gradient = torch.tensor(2.0, requires_grad=True) * 3
    assert floats({"g": gradient, "n": torch.tensor(2**40 + 1)}) == {"g": 6.0, "n": 2.0**40 + 1}
    with pytest.raises(ShapeError, match=r"metrics: loss is \[4\], wanted \[\]; reduce"):
        floats({"loss": torch.ones(4)})


def events_in(folder: Path) -> list[Any]:
    from importlib import import_module

    load = import_module("tensorboard.backend.event_processing.event_file_loader").EventFileLoader
    return [event for file in sorted(folder.iterdir()) for event in load(str(file)).Load()]


def test_tensorboard_gets_every_column_at_its_step(tmp_path: Path) -> None:
    with tensorboard(tmp_path) as sink:
        sink({"steps": 512.0, "loss/policy": 0.5, "entropy": -1.0})
        sink({"steps": 1024.0, "loss/policy": 0.25})
    written = [
        (event.step, value.tag, value.tensor.float_val[0])
        for event in events_in(tmp_path)
        for value in event.summary.value
    ]
    assert written == [(512, "loss/policy", 0.5), (512, "entropy", -1.0), (1024, "loss/policy", 0.25)]
    with pytest.raises(ChoiceError, match="column 'steps'"), tensorboard(tmp_path / "b") as sink:
        sink({"a": 1.0})


def test_tensorboard_forgets_what_a_resumed_run_writes_again(tmp_path: Path) -> None:
    with tensorboard(tmp_path) as sink:
        for step in (100.0, 200.0, 300.0):
            sink({"steps": step, "x": 1.0})
    with tensorboard(tmp_path, resumed_at=200) as sink:
        sink({"steps": 300.0, "x": 2.0})
    from importlib import import_module

    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator").EventAccumulator(
        str(tmp_path)
    )
    accumulator.Reload()
    points = [(event.step, event.value) for event in accumulator.Scalars("x")]
    assert points == [(100, 1.0), (200, 1.0), (300, 2.0)]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(rows: int, each: float, **options: Any) -> str:
    """What the display says of so many rows, one `each` seconds."""
    clock = Clock()
    console = Console(file=io.StringIO(), width=100, **options)
    with progress(100_000, console=console, clock=clock, show=["episode_return"]) as sink:
        for index in range(1, rows + 1):
            clock.now = index * each
            sink({"iteration": float(index), "steps": index * 1000.0, "loss": 0.5, "episode_return": index * 1.5})
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


def test_outside_a_terminal_there_is_a_line_now_and_then_and_one_at_the_end() -> None:
    lines = shown(26, 1.0).splitlines()
    assert lines == [
        "1,000/100,000 steps  episode_return 1.5",
        "11,000/100,000 steps  1000 steps/s, 0:01:29 left  episode_return 16.5",
        "21,000/100,000 steps  1000 steps/s, 0:01:19 left  episode_return 31.5",
        "26,000/100,000 steps  1000 steps/s, 0:01:14 left  episode_return 39",
    ]
    assert shown(0, 1.0) == ""
    assert len(shown(21, 1.0).splitlines()) == 3


def test_a_terminal_shows_a_bar_with_the_newest_row() -> None:
    text = shown(40, 1.0, force_terminal=True)
    final = text.split("starting")[1]
    for part in ("40,000/100,000 steps", "━", "1000 steps/s, 0:01:00 left", "episode_return 60"):
        assert part in final
    assert "39,000" not in final
    assert text.endswith("\x1b[?25h")


def test_a_line_is_printed_as_it_is() -> None:
    console = Console(file=io.StringIO(), width=20)
    with progress(10, unit="[bold]", by="n", console=console, clock=Clock()) as sink:
        sink({"n": 1.0, "a_rather_long_name": 2.0})
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "1/10 [bold]  a_rather_long_name 2\n"


def test_metrics_shown_are_those_asked_for_or_the_first_three() -> None:
    row = {"iteration": 1.0, "steps": 2.0, "a": 1.0, "b": 2.0, "c": 12345.6, "d": 4.0}
    assert metrics_of(row, (), "steps") == "a 1  b 2  c 12,346"
    assert metrics_of(row, ("d", "absent", "a"), "steps") == "d 4  a 1"


def test_the_pace_is_that_of_the_last_half_minute() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now = 500.0  # compilation, before the first row
    assert pace.add(100) == 0
    clock.now = 510.0
    assert pace.add(1100) == 100
    rates = []
    for second in range(1, 101):
        clock.now = 510.0 + second
        rates.append(pace.add(1100 + 5.0 * second))
    assert rates[-1] == 5
    assert len(pace.seen) <= 32


# --- a wait ---


@pytest.mark.parametrize("usual", [0.0, 41.0])
def test_a_wait_shows_its_seconds_phase_and_usual_length(usual: float) -> None:
    console, clock, shown = Console(file=io.StringIO(), width=20), Clock(), threading.Event()
    own = threading.get_ident()

    def phase(thread: int) -> str:
        assert thread == own
        shown.set()
        return "tracing"

    with show_waiting("compiling", usual, phase=phase, seconds=0.01, console=console, clock=clock):
        clock.now = 12.0
        assert shown.wait(60.0)
    assert isinstance(console.file, io.StringIO)
    first = console.file.getvalue().splitlines()[0]
    assert first in [
        f"compiling {passed} s, tracing{', the last time took 41 s' * bool(usual)}" for passed in ("0", "12")
    ]


def test_a_short_wait_prints_nothing() -> None:
    console = Console(file=io.StringIO())
    with pytest.raises(KeyError), show_waiting("compiling", 0.0, console=console):
        raise KeyError
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == ""


def test_a_wait_in_a_terminal_leaves_nothing_behind() -> None:
    console = Console(file=io.StringIO(), width=60, force_terminal=True)
    with show_waiting("compiling", 41.0, phase=lambda thread: "tracing", console=console):
        pass
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().endswith("\x1b[2K")
