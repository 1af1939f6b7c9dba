"""Asynchronous training for half an hour while one of its generators is killed every 20 seconds.

A real run of `purestep train zorplex --mode async`; its generators, processes of their own, get SIGKILL one at a time, which
one is drawn. All the while updates have to come: the longest time without one is measured from outside. Then Ctrl-C: the run
has to end by itself, and what was learned from is gone through: nothing lost, nothing counted twice. Writes
results/async_faults.json; with other --minutes, results/async_faults_small.json. Ends with 1 where anything is not as asked.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from os import kill
from pathlib import Path
from typing import Any

from attrs import define, field

from . import evidence
from .parts import async_outside
from .parts.async_outside import Process, Row

MINUTES, EVERY = 10.0, 20.0  # of training; seconds between two kills
STILL = 120.0  # seconds without an update that are a hang
END = 60.0  # seconds after Ctrl-C in which a run has to end, and nothing of it to be alive
INTERRUPTED = 130  # exit code after Ctrl-C
STEPS = 100_000  # more updates than there is time for
RATE = 1e-4  # learning rate: it does not fall in so short a part of the run, and is to be borne for half an hour


@define
class Watch:
    """What is seen of a run under fire."""

    process: Process
    phase: Path
    draw: random.Random
    kills: list[Row] = field(factory=list)
    moments: list[float] = field(factory=list)  # when an update was seen, in seconds; the first is the beginning
    updates: int = 0
    seen: set[int] = field(factory=set)  # generators, by process id

    def look(self) -> None:
        """Notes new updates and new generators."""
        updates = async_outside.length(self.phase)
        if updates > self.updates or not self.moments:
            self.updates = updates
            self.moments.append(time.perf_counter())
        self.seen.update(async_outside.generators(self.process.popen.pid))

    def strike(self) -> None:
        """Kills one of the generators there are, if there is one."""
        there = async_outside.generators(self.process.popen.pid)
        if there:
            one = self.draw.choice(there)
            with suppress(ProcessLookupError):
                kill(one, signal.SIGKILL)
                self.kills.append({"seconds": round(time.perf_counter() - self.moments[0], 1), "updates": self.updates})

    def under_fire(self, seconds: float) -> None:
        """Lets the run go on for so long, and kills. Ends at once with a run that ended, or that hangs."""
        self.look()
        begin = self.moments[0]
        while (now := time.perf_counter()) - begin < seconds and self.process.running():
            self.look()
            if now - begin >= (len(self.kills) + 1) * EVERY:
                self.strike()
            if now - self.moments[-1] > STILL:
                break
            time.sleep(async_outside.LOOK)
        self.moments.append(time.perf_counter())


def ended(process: Process) -> Row:
    """Ctrl-C, and how the run came to its end."""
    had, begin = async_outside.generators(process.popen.pid), time.perf_counter()
    with suppress(ProcessLookupError):
        kill(process.popen.pid, signal.SIGINT)
    process.waited(END)
    seconds = time.perf_counter() - begin
    by_itself = not process.running()
    had = had if by_itself else process.kill()
    alive = len(async_outside.left_alive(had, END))
    return {
        "by itself": by_itself,
        "code": process.popen.returncode,
        "seconds": round(seconds, 1),
        "alive afterwards": alive,
    }


def measured(place: Path, seconds: float, words: Sequence[str]) -> Row:
    """The run, its kills and its end."""
    run = place / "run"
    options = ("--mode", "async", "--no-compare", "--steps", str(STEPS), "--learning-rate", str(RATE), *words)
    process = Process(("train", "zorplex", "--run", str(run), *options), place / "log")
    watch = Watch(process, run / "async", random.Random(0))
    try:
        if not process.until(lambda: async_outside.length(watch.phase) > 0):
            raise RuntimeError("the run was over before it was under fire")
        watch.under_fire(seconds)
        early = not process.running()
        end = ended(process)
    finally:
        process.kill()
    lost = sum(" is lost: " in line for line in process.log.read_text().splitlines())
    return {
        "seconds under fire": round(watch.moments[-1] - watch.moments[0], 1),
        "ended early": early,
        "kills": len(watch.kills),
        "generators that were lost": lost,
        "generators seen": len(watch.seen),
        "updates": async_outside.length(watch.phase),
        "longest time without an update": round(async_outside.longest(watch.moments), 1),
        "end": end,
        **async_outside.gone_through(run, "async"),
        "each kill": watch.kills,
    }


def violations(row: Row, seconds: float) -> list[str]:
    """What is not as asked, in words."""
    asked = int(seconds / EVERY)
    faults: tuple[tuple[Any, str], ...] = (
        (row["wrong"], f"what was learned from: {row['wrong'][:3]}"),
        (row["ended early"], "the run ended before Ctrl-C"),
        (
            row["longest time without an update"] > STILL,
            f"it hung: no update for {row['longest time without an update']} s",
        ),
        (row["kills"] < asked - 1, f"{row['kills']} kills, wanted {asked}"),
        (row["generators that were lost"] < row["kills"], "not every kill was noticed"),
        (not row["end"]["by itself"] or row["end"]["code"] != INTERRUPTED, f"after Ctrl-C: {row['end']}"),
        (row["end"]["alive afterwards"], "generators outlived the run"),
        (not row["updates"], "nothing was learned"),
    )
    return [said for fault, said in faults if fault]


def main() -> int:
    """Runs it; 0 where nothing was lost, nothing counted twice, and nothing hung."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.async_faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"under fire (default: {MINUTES:g})")
    given, words = parser.parse_known_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and so would the run
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        row = measured(Path(place), 60 * given.minutes, words)
    found = violations(row, 60 * given.minutes)
    name = "async_faults" if given.minutes == MINUTES and not words else "async_faults_small"
    figures = {"kept": not found, "violations": found, "every": EVERY, **row}
    evidence.write(name, seconds=time.perf_counter() - began, figures=figures)
    print("\n".join(f"{name}: {value}" for name, value in row.items() if name != "each kill"))
    print("\n".join(found) or "nothing lost, nothing counted twice, no hang")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
