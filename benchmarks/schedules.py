"""Random schedules of the scheduler, faults included, under the eyes of all its laws; and how fast it decides.

Each schedule is drawn anew: rules, generators, and moves among those possible in a world on paper, down to lost generators,
messages that come late, twice or cannot be true, Ctrl-C and runs that go on from their state as text. At every step all
laws that look at steps look; at the end the run has to make further updates, its log, folded again, to give its states, and
its state, as text, to be the same. Then the logs are folded once more, by the machine alone, against the processor's clock.
Writes benchmarks/results/schedules.json (schedules_small.json with fewer of them); exit code 1 after a violation, or where
a kind of event never came.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from attrs import frozen

from purestep.core.machine import Failed, Interrupted, Started, Stop
from purestep.properties import Seen
from purestep.runtime.async_rl.scheduler.events import COMMANDS, EVENTS
from purestep.runtime.async_rl.scheduler.state import Rules
from tests.laws.scheduler.scheduler import scheduler_laws
from tests.laws.scheduler.scheduler_fault import scheduler_fault_laws
from tests.laws.scheduler.scheduler_moves import fair, play
from tests.laws.scheduler.scheduler_scripts import Played
from tests.laws.scheduler.scheduler_world import Script, Told, World, own_scheduling, through_text

from . import evidence

LEAST = 50  # events of a schedule that counts
MOVES = 70
SCHEDULES = 10_000
ALLOWED = 300.0  # seconds
WATCHED = [law.check for law in (*scheduler_laws(), *scheduler_fault_laws()) if isinstance(law.check, Played)]


@frozen
class Tally:
    """What came of some schedules."""

    schedules: int
    events: int
    stalest: int  # the oldest sample that was learned from, in versions
    counts: dict[str, int]
    violations: tuple[str, ...]
    seconds: float  # of the processor, for the machine alone
    work: float  # seconds of the processor for all of it


def drawn(seed: int) -> Script:
    """The schedule of that number."""
    draw = random.Random(seed)
    group = draw.choice((1, 1, 2, 3))
    batch, staleness = group * draw.randint(1, 3), draw.choice((0, 1, 1, 2, 4))
    rules = Rules(
        batch=batch,
        group=group,
        staleness=staleness,
        concurrency=draw.randint(1, 6),
        updates=1000,
        retries=draw.choice((0, 1, 3)),
        stale=draw.choice(("drop", "requeue", "pace")),
        incomplete=draw.choice(("drop", "repair")),
        proximal=draw.choice(("keep", "recompute")),
        room=draw.choice(((), (), batch)),
    )
    moves = tuple(draw.randrange(1 << 16) for _ in range(MOVES))
    return Script(rules, draw.randint(1, 3), draw.randint(1, 2), 200, moves)


def tally(seeds: Sequence[int]) -> Tally:
    """Plays these schedules."""
    counts, violations, events, seconds, stalest, played = Counter[str](), list[str](), 0, 0.0, 0, 0
    began = time.process_time()
    for seed in seeds:
        script = drawn(seed)
        try:
            here = judged(script)
        except AssertionError as broken:
            violations.append(f"schedule {seed}: {broken}")
            continue
        played += len(here.told) >= LEAST
        events += len(here.told)
        seconds += decided(script, here)
        counts.update(kinds(here))
        stalest = max([stalest, *(age(told) for told in here.told)])
    return Tally(played, events, stalest, dict(counts), tuple(violations), seconds, time.process_time() - began)


def judged(script: Script) -> World:
    """The world after a schedule that obeys the laws. Raises: AssertionError."""
    watches = [watched.watching(script, Seen()) for watched in WATCHED]

    def watch(here: World, told: Told) -> None:
        for look in watches:
            look(here, told)

    here = play(own_scheduling(), script, watch)
    assert here.stop or fair(here, 2), "no further update is made"
    assert through_text(here.state) == here.state, "the state is another one as text"
    return here


def decided(script: Script, here: World) -> float:
    """Seconds for all decisions of a run. Raises: AssertionError when they are others than in the run."""
    step = own_scheduling().scheduler(script.rules).step
    began = time.process_time()
    answers = [step(told.before, told.event) for told in here.told]
    spent = time.process_time() - began
    assert answers == [(told.after, told.commands) for told in here.told], "the log, folded again, is another run"
    return spent


def kinds(here: World) -> Iterator[str]:
    """The kinds of events, commands and moves of a run."""
    for told in here.told:
        yield f"event {type(told.event).__name__}"
        yield f"move {told.move}"
        for command in told.commands:
            yield f"command {type(command).__name__}"


def age(told: Told) -> int:
    """How old the oldest sample is of a batch that was begun."""
    return max((one.version - one.head for one in told.commands if hasattr(one, "head")), default=0)


def merged(tallies: Sequence[Tally]) -> Tally:
    """All of them as one."""
    counts = Counter[str]()
    for one in tallies:
        counts.update(one.counts)
    return Tally(
        sum(one.schedules for one in tallies),
        sum(one.events for one in tallies),
        max(one.stalest for one in tallies),
        dict(sorted(counts.items())),
        tuple(text for one in tallies for text in one.violations),
        sum(one.seconds for one in tallies),
        sum(one.work for one in tallies),
    )


def missing(counts: dict[str, int]) -> list[str]:
    """The kinds of events and commands that never came."""
    wanted = [f"event {kind.__name__}" for kind in (*EVENTS, Started, Interrupted, Failed)]
    wanted += [f"command {kind.__name__}" for kind in (*COMMANDS, Stop)]
    return [kind for kind in wanted if not counts.get(kind)]


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules", description=__doc__)
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help=f"of {LEAST} events or more")
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule (default: 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    return parser.parse_args(words)


def run(schedules: int, seed: int, jobs: int) -> Tally:
    """Plays schedules until that many had enough events, or one broke a law."""
    size, tallies = 100, list[Tally]()
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    with pool:
        while sum(one.schedules for one in tallies) < schedules and not any(one.violations for one in tallies):
            wanted = schedules - sum(one.schedules for one in tallies)
            chunks = [range(seed + i, seed + min(i + size, wanted)) for i in range(0, wanted, size)]
            tallies += pool.map(tally, chunks)
            seed += wanted
    return merged(tallies)


def main() -> int:
    given, began = parse(), time.perf_counter()
    total = run(given.schedules, given.seed, given.jobs)
    absent, spent = missing(total.counts), time.perf_counter() - began
    figures = {
        "kept": not total.violations and not absent and spent < ALLOWED,
        "seconds": round(spent, 1),
        "schedules": total.schedules,
        "events": total.events,
        "violations": list(total.violations),
        "kinds that never came": absent,
        "counts": total.counts,
        "stalest sample learned from": total.stalest,
        "decisions per second of the processor": round(total.events / total.seconds),
        "seconds of the processor": round(total.work, 1),
    }
    for name, count in total.counts.items():
        print(f"{name:28}{count:10}")
    print(*(f"{name}: {value}" for name, value in figures.items() if name != "counts"), sep="\n")
    name = "schedules" if given.schedules >= SCHEDULES else "schedules_small"
    evidence.write(name, seconds=time.perf_counter() - began, figures=figures)
    return 0 if figures["kept"] else 1


if __name__ == "__main__":
    sys.exit(main())
