"""A run of asynchronous training seen from outside: its processes, what it has learned from so far, where it stands still.

A part of `async_zorplex` and `async_faults`, which kill such processes. Linux only: processes are found in /proc.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from attrs import define, field

from purestep.runtime.async_rl import checkpoint
from purestep.runtime.async_rl.audit import reported_events
from purestep.runtime.async_rl.replay import replay_phase
from purestep.runtime.async_rl.report import audit
from purestep.runtime.effects.json_lines import objects
from purestep.runtime.effects.workers.process import PROGRAM

PURESTEP = Path(sys.executable).with_name("purestep")
PROCESSES = Path("/proc")
LOOK = 0.1  # seconds between two looks
LET_IN = ("waiting", "running", "accepted", "rejected")  # together: submitted
WHOLE = ("consumed", "filtered", "queued", "cached")  # together: accepted
COUNTERS = ("version", "submitted", *LET_IN, *WHOLE, "ignored", "tokens_used", "tokens_wasted")
Row = dict[str, Any]


@define
class Process:
    """`purestep WORDS` at work, in a process group of its own; its generators have theirs."""

    words: Sequence[str]
    log: Path  # what it prints is added here
    before: Sequence[str] = ()  # words in front of `purestep`
    environment: Mapping[str, str] | None = None  # in place of this process's own
    began: float = field(factory=time.perf_counter)
    popen: "subprocess.Popen[bytes]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [*self.before, PURESTEP, *self.words],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def running(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    def until(self, ready: Callable[[], bool]) -> bool:
        """Waits until it is so; gives False where the process ended before. Raises: RuntimeError where it failed."""
        while not ready():
            if not self.running():
                self.succeeded()
                return False
            time.sleep(LOOK)
        return True

    def waited(self, seconds: float) -> None:
        """Waits for its end, so many seconds at most."""
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(seconds)

    def succeeded(self) -> None:
        """Waits for its end. Raises: RuntimeError where it failed."""
        if self.popen.wait():
            raise RuntimeError(f"purestep ended with {self.popen.returncode}: {self.log.read_text()[-2000:]}")

    def kill(self) -> tuple[int, ...]:
        """Kills its process group; gives the generators it had, which end by themselves."""
        had = generators(self.popen.pid)
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        return had


def generators(pid: int) -> tuple[int, ...]:
    """The process ids of a run's generators: its children that run the body of a worker."""
    found = []
    for told in (PROCESSES / str(pid) / "task").glob("*/children"):
        with suppress(OSError):
            found += [int(word) for word in told.read_text().split()]
    return tuple(sorted(child for child in found if alive(child) and _is_worker(words_of(child))))


def _is_worker(words: list[str]) -> bool:
    return str(PROGRAM) in words and any(word.startswith("worker-") for word in words)


def words_of(pid: int) -> list[str]:
    """The command line of a process; [] where it is gone."""
    try:
        return (PROCESSES / str(pid) / "cmdline").read_text().split("\0")
    except OSError:
        return []


def alive(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return (PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def left_alive(pids: Collection[int], seconds: float) -> tuple[int, ...]:
    """Those that are still there after so many seconds; () as soon as there are none."""
    until = time.perf_counter() + seconds
    while (there := tuple(filter(alive, pids))) and time.perf_counter() < until:
        time.sleep(LOOK)
    return there


def ledger(phase: Path) -> list[Row]:
    """What each update learned from, by the lines that are whole; [] before there is such a file."""
    path = phase / checkpoint.LEDGER
    return rows_of(path.read_text()) if path.exists() else []


def length(phase: Path) -> int:
    """The updates of a phase so far."""
    path = phase / checkpoint.LEDGER
    return path.read_bytes().count(b"\n") if path.exists() else 0


def rows_of(text: str) -> list[Row]:
    """Rows of JSON, one a line; a line without its end is left out.

    >>> rows_of('{"version": 0}\\n{"versi')
    [{'version': 0}]
    """
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def twice(rows: Iterable[Row]) -> list[tuple[int, int]]:
    """Samples, as (group, seat), that were learned from more than once, whichever attempt at them it was.

    >>> twice([{"version": 0, "samples": [[4, 0, 0, 9, 0, 0, 7]]}, {"version": 1, "samples": [[4, 0, 1, 9, 1, 1, 7]]}])
    [(4, 0)]
    """
    seen, again = set[tuple[int, int]](), set[tuple[int, int]]()
    for row in rows:
        for group, seat, *_ in row["samples"]:
            (again if (group, seat) in seen else seen).add((group, seat))
    return sorted(again)


def longest(moments: Sequence[float]) -> float:
    """The longest time between two moments that follow each other; 0 where there are no two.

    >>> longest([1.0, 2.0, 5.0, 5.5])
    3.0
    """
    return max((after - before for before, after in pairwise(moments)), default=0.0)


def kept(phase: Path) -> checkpoint.PhaseCheckpoint:
    """What a phase's newest checkpoint says of it. Raises: RuntimeError where there is none."""
    where = checkpoint.newest_of_phase(phase)
    if isinstance(where, tuple):
        raise RuntimeError(f"no checkpoint in {phase.name}")
    return checkpoint.kept_in(where)[0]


def counters(phase: Path) -> dict[str, int]:
    """The scheduler's counts in a phase's newest checkpoint."""
    schedule = kept(phase).schedule
    return {name: getattr(schedule, name) for name in COUNTERS}


def unbalanced(counts: Mapping[str, int], rows: Sequence[Row]) -> list[str]:
    """Where a checkpoint's counts do not add up, or are not those of what was learned from until then.

    >>> counts = dict.fromkeys(COUNTERS, 0) | {"version": 1, "submitted": 3, "accepted": 2, "running": 1, "consumed": 2}
    >>> rows = [{"version": 0, "samples": [[0, 0, 0, 9, 0, 0, 7], [0, 1, 0, 8, 0, 0, 7]]}]
    >>> unbalanced(counts | {"tokens_used": 14}, rows), unbalanced(counts | {"tokens_used": 14, "running": 0}, rows)
    ([], ['submitted is 3, and what became of them 2'])
    """
    learned = [sample for row in rows[: counts["version"]] for sample in row["samples"]]
    pairs = (
        ("submitted", "what became of them", sum(counts[name] for name in LET_IN)),
        ("accepted", "what became of them", sum(counts[name] for name in WHOLE)),
        ("consumed", "learned from", len(learned)),
        ("tokens_used", "learned from", sum(sample[-1] for sample in learned)),
    )
    return [
        f"{name} is {counts[name]}, and {other} {number}" for name, other, number in pairs if counts[name] != number
    ]


def vanished(counts: Mapping[str, int], held: int, told: int) -> list[str]:
    """Where samples are gone that nobody counts: `held` are in the checkpoint, `told` were told to be whole before it.

    >>> counts = dict.fromkeys(COUNTERS, 0) | {"accepted": 5, "queued": 2, "cached": 1}
    >>> vanished(counts, 3, 5), vanished(counts, 2, 6)
    ([], ['3 samples are counted as there, 2 are in the checkpoint', '6 samples were told, 5 accepted and 0 ignored'])
    """
    there, accepted, ignored = counts["queued"] + counts["cached"], counts["accepted"], counts["ignored"]
    gone = [f"{there} samples are counted as there, {held} are in the checkpoint"] if there != held else []
    if not accepted <= told <= accepted + ignored:
        gone.append(f"{told} samples were told, {accepted} accepted and {ignored} ignored")
    return gone


def gone_through(run: Path, phase: str) -> Row:
    """What a phase learned from, its newest checkpoint and its log held against each other: `wrong` says all that is."""
    rows, counts, newest = ledger(run / phase), counters(run / phase), kept(run / phase)
    told = reported_events(islice(objects(run / phase / checkpoint.EVENTS), newest.events))
    audited, again = audit(run, phase), replay_phase(run, phase)
    doubled = [f"sample {one} was learned from twice" for one in twice(rows)]
    return {
        "audit": audited.line(),
        "replay": again.line(),
        "counts": counts,
        "wrong": [
            *(*audited.wrong, *again.wrong, *doubled, *unbalanced(counts, rows)),
            *vanished(counts, len(newest.waiting), len(told.made)),
        ],
    }
