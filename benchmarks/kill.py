"""SIGKILL at random moments of a real training run, some of them inside a save; `purestep resume`; the same bits in the end.

Runs of `purestep train RECIPE` are killed and resumed until there were enough kills, each beside a run with the same arguments
that nobody stops. Moments are drawn: while a session comes to life (counted from when it holds the run's lock), while it
trains (from its first checkpoint on), and inside a save (the next one after such a moment). A kill counts as inside a save
where the folder of an unfinished checkpoint lay there afterwards, and not before. What a session went on from shows in its
first checkpoint. Prints a table as it goes and writes benchmarks/results/kill.json, or kill_CASE.json of another case than PPO;
exit code 1 unless all is as it should be.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import define, field

from purestep.runtime.effects import folder

from . import evidence
from .parts import outside
from .parts.outside import Session, Setup

GAME = f"{evidence.ROOT}/examples/two_agents.py:GAME"
CASES: Mapping[str, tuple[str, ...]] = {  # recipe and options
    "ppo": ("ppo", "--steps", "500000", "--checkpoints", "98"),
    "dqn": ("dqn", "--steps", "200000", "--checkpoints", "60", "--replay", "prioritised", "--replay-size", "100000"),
    "sac": ("sac", "--steps", "40000", "--checkpoints", "60", "--hidden", "32"),
    "mappo": ("ppo", "--env", GAME, "--critic", "all", "--steps", "400000", "--checkpoints", "60", "--hidden", "32"),
    "ppo_memory": ("ppo", "--memory", "gru", "--steps", "200000", "--checkpoints", "60", "--hidden", "32"),
}
RESUMING, TRAINING, SAVING = "resuming", "training", "saving"
WAITS: Mapping[str, float] = {RESUMING: 2.5, TRAINING: 2.0, SAVING: 1.5}  # seconds, the longest of each kind
LONGEST = 0.006  # seconds into a save
SPARE = 5  # more kills are aimed at a save than must hit one
MANY = 4  # times as many kills as asked for, and it gives up


@define
class Kill:
    """A kill and what came of it. Numbers of iterations, 0 where there is none."""

    seed: int  # of the run
    aim: str
    seconds: float  # from the session's start
    found: str  # what the kill left: see `outside.found`
    half_bytes: int  # of the unfinished checkpoint
    newest: int  # good checkpoint
    resumed: int = 0  # from here, seen in the first checkpoint written afterwards


def strike(session: Session, aim: str, seed: int, draw: random.Random) -> Kill | None:
    """Kills the session at a moment of that kind; None when it has ended before. Raises: RuntimeError when it failed."""
    if not reached(session, aim, draw):
        return None
    session.process.kill()
    seconds = time.perf_counter() - session.began
    if session.process.wait() != -signal.SIGKILL:
        session.ended()
        return None
    session.look()
    newest = outside.newest(session.run).iteration
    return Kill(seed, aim, round(seconds, 2), *outside.found(session.run, newest, session.before), newest)


def reached(session: Session, aim: str, draw: random.Random) -> bool:
    """Waits for such a moment; false when the session has ended before."""
    lock, pid = session.run / ".lock", f"{session.process.pid}\n"
    if not session.until(lambda: held(lock, pid) if aim == RESUMING else session.saved()):
        return False
    moment = time.perf_counter() + draw.uniform(0.0, WAITS[aim])
    if not session.until(lambda: bool(session.look()) and time.perf_counter() >= moment):
        return False
    return aim != SAVING or (session.until(lambda: outside.unfinished(session.look()) > 0, 0.0) and later(draw))


def held(lock: Path, pid: str) -> bool:
    """Whether the process holds the run."""
    return lock.exists() and lock.read_text() == pid


def later(draw: random.Random) -> bool:
    """Lets a save go on for a moment, so that kills fall on all of its parts. Always true."""
    moment = time.perf_counter() + draw.uniform(0.0, LONGEST)
    while time.perf_counter() < moment:
        pass
    return True


@define
class Chain:
    """The kills so far, and those still to come."""

    kills: int  # wanted
    inside: int  # of them inside a save
    draw: random.Random
    aims: list[str]
    done: list[Kill] = field(factory=list)

    def open(self) -> bool:
        """Whether more are wanted: there were too few, and not yet far too many without enough hits."""
        few = len(self.done) < self.kills or self.hits() < self.inside
        return few and len(self.done) < MANY * self.kills

    def aim(self) -> str:
        """The kind of the next kill; empty when no more are wanted."""
        return (self.aims.pop() if self.aims else SAVING) if self.open() else ""

    def hits(self) -> int:
        """The kills inside a save."""
        return sum(kill.found == outside.WRITING for kill in self.done)


def chain(kills: int, inside: int, seed: int) -> Chain:
    """The kinds of kills in a random order: enough at saves, a fifth while a session comes to life, the others in between."""
    draw, saves, lives = random.Random(seed), inside + SPARE if inside else 0, kills // 5
    aims = [SAVING] * saves + [RESUMING] * lives + [TRAINING] * max(0, kills - saves - lives)
    draw.shuffle(aims)
    return Chain(kills, inside, draw, aims)


def killed(setup: Setup, seed: int, chain: Chain) -> Path:
    """A run that is killed and resumed until it ends. Gives its folder. Raises: RuntimeError."""
    run = setup.place / f"killed-{seed}"
    session = setup.train(run, seed)
    waiting: list[Kill] = []  # for the session that shows what they left to go on from
    while True:
        aim = chain.aim()
        aim = TRAINING if aim == RESUMING and not folder.has_checkpoints(run) else aim
        kill = strike(session, aim, seed, chain.draw) if aim else None
        if not aim:
            session.finish()
        if session.first:
            for one in waiting:
                one.resumed = outside.newest(run).before(outside.number(session.first))
                print(line(chain.done.index(one) + 1, one), flush=True)
            waiting = []
        if kill is None:
            return run
        if kill.newest < outside.newest(run).iterations:  # a run that has nothing left to train is no test
            waiting.append(kill)
            chain.done.append(kill)
        session = setup.resume(run)


def whole(setup: Setup, seed: int) -> Path:
    """The same run, which nobody stops. Gives its folder. Raises: RuntimeError."""
    run = setup.place / f"whole-{seed}"
    setup.train(run, seed).finish()
    return run


HEAD = f"{'':>4}{'seed':>5}{'aimed at':>10}{'at s':>7}  {'found':26}{'bytes':>8}{'newest':>8}{'resumed':>9}"


def line(number: int, kill: Kill) -> str:
    """A row of the table."""
    sizes = f"{kill.half_bytes:8}{kill.newest:8}{kill.resumed:9}"
    wrong = "" if kill.resumed == kill.newest else "  FAILED"
    return f"{number:4}{kill.seed:5}{kill.aim:>10}{kill.seconds:7.2f}  {kill.found:26}{sizes}{wrong}"


def runs(setup: Setup, chain: Chain, seed: int) -> list[dict[str, Any]]:
    """Runs of one seed after another until there were enough kills; how each ended beside its twin."""
    ends = []
    while chain.open():
        twin = whole(setup, seed)
        run = killed(setup, seed, chain)
        end = {"seed": seed, "kills": sum(kill.seed == seed for kill in chain.done), **outside.compared(run, twin)}
        same = end["identical"] and end["metrics_identical"] and end["control_differs"]
        print(f"seed {seed}: {end['kills']} kills; {'identical' if same else 'FAILED'}: {end}", flush=True)
        ends.append(end)
        seed += 1
    return ends


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill", description=__doc__)
    add = parser.add_argument
    add("--kills", type=int, default=20, help="at least (default: 20)")
    add("--inside", type=int, default=5, help="of them inside a save, at least (default: 5)")
    add("--seed", type=int, default=0, help="of the moments and of the first run (default: 0)")
    add("--case", choices=list(CASES), default="ppo", help="recipe and options (default: ppo)")
    return parser.parse_args(words)


def main() -> int:
    given, began = parse(), time.perf_counter()
    recipe, *words = CASES[given.case]
    options = (*words, "--episodes", "1")
    kills = chain(given.kills, given.inside, given.seed)
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as place:
        caches = {"XDG_CACHE_HOME": place, "TORCHINDUCTOR_CACHE_DIR": f"{place}/inductor"}
        setup = Setup(options, {**os.environ, **caches, "OMP_NUM_THREADS": "1"}, Path(place), recipe=recipe)
        try:
            ends = runs(setup, kills, given.seed)
        finally:
            setup.stop()
    verdict = {
        "kills": len(kills.done),
        "inside_a_save": kills.hits(),
        "resumed_from_the_newest": all(kill.resumed == kill.newest for kill in kills.done),
        "identical": all(end["identical"] for end in ends),
        "metrics_identical": all(end["metrics_identical"] for end in ends),
        "control_differs": all(end["control_differs"] for end in ends),
    }
    kept = all(verdict.values()) and len(kills.done) >= given.kills and kills.hits() >= given.inside
    figures = {"kept": kept, **verdict, "options": options, "runs": ends, "table": list(map(attrs.asdict, kills.done))}
    name = "kill" if given.case == "ppo" else f"kill_{given.case}"
    evidence.write(name, seconds=time.perf_counter() - began, figures=figures)
    print(f"{verdict}\n{'kept' if kept else 'FAILED'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
