"""Faults that befall a run, case by case: signals, disks, folders, a second process, memory; then the run goes on to its end.

A part of `faults`. A case notes all that is not as asked in `wrong`; what it draws follows from the seed.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import define, field

from purestep.runtime.effects import folder

from . import async_outside, faults_outside
from .faults_outside import RANKING, RECIPES, Place, Recipe, Session

MANY = 3  # times as many sessions as kills are wanted, and it gives up
INSIDE = 0.006  # seconds into a save, the longest
STOPS = 3.0  # seconds between SIGSTOP and SIGCONT
ALIVE = (0, 1)  # exit codes of a run that was told off, or went on all the same
BLOCK = 4096


@define
class Whole:
    """A run that nobody disturbed."""

    portrait: dict[str, str]
    holds: float  # seconds until it held its folder
    saves: float  # until it had a checkpoint
    ends: float
    size: int  # bytes of its folder
    space: int  # bytes of address space, the most it had


@define
class Case:
    """One or more runs of a recipe that a fault befalls."""

    place: Place
    recipe: str
    fault: str
    number: int
    whole: Whole
    draw: random.Random
    run: Path
    token: str
    wrong: list[str] = field(factory=list)
    moments: list[str] = field(factory=list)  # what befell it, and when
    codes: list[int | str] = field(factory=list)
    hits: int = 0  # how often it was struck
    gone_on: int = 0  # how often it went on to the end, or was not disturbed
    refused: int = 0  # how often it ended with one line
    sessions: int = 0

    @property
    def kind(self) -> Recipe:
        """The case's recipe: its command, and whether it has generators."""
        return RECIPES[self.recipe]

    def start(self, *words: str, limit: int = 0) -> Session:
        """Starts `purestep WORDS`."""
        self.sessions += 1
        log = self.place.path / "logs" / f"{self.token}-{self.sessions}"
        return faults_outside.start(self.place, self.token, self.kind, self.run, words, log, limit=limit)

    def train(self, *words: str, limit: int = 0) -> Session:
        """Begins the run."""
        return self.start("train", *self.kind.words, "--run", str(self.run), *words, limit=limit)

    def go_on(self) -> Session:
        """Goes on with the run, or begins it where there is nothing to go on with."""
        language = self.kind.words[0] == "zorplex" and (self.run / folder.ARGUMENTS).exists()
        words = () if self.kind.words[0] == "zorplex" else ("--episodes", "1")
        words = RANKING if self.recipe == "prove" else words
        if language or folder.has_checkpoints(self.run):
            return self.start("resume", str(self.run), *words)
        return self.train()

    def ended(self, session: Session, *codes: int, why: str = "") -> int | str:
        """Waits for the end of a session, which is to be with one of these codes; gives the code."""
        code, text = session.code(), session.text()
        self.codes.append(code)
        self.wrong += [
            f"{why or 'session'} {self.sessions}: {fault}" for fault in faults_outside.faults_of(code, codes, text)
        ]
        self.refused += code in (1, faults_outside.ABORTED)
        if code in (1, faults_outside.ABORTED):
            said = [line for line in text.splitlines() if line.startswith(faults_outside.TOLD)]
            self.moments += [line.replace(str(self.place.path), "") for line in said[:1]]
        return code

    def finished(self, session: Session | None = None) -> None:
        """Lets the run go on to its end, and holds it against one that nobody disturbed."""
        code = self.ended(session or self.go_on(), 0, why="going on")
        self.compare(code)

    def compare(self, code: int | str) -> None:
        """Holds a run that is over against one that nobody disturbed."""
        unlike = faults_outside.unlike(self.run, self.whole.portrait, self.kind) if code == 0 else []
        self.wrong += unlike
        self.gone_on += code == 0 and not unlike

    def over(self, code: int | str) -> None:
        """Compare a run that has come to its end; let any other go on first."""
        if code == 0:
            self.compare(code)
        else:
            self.finished()

    def working(self, session: Session) -> bool:
        """Waits for a moment between a run's first checkpoint and, as far as can be told, its end."""
        rest = max(0.2, self.whole.ends - self.whole.saves)
        return session.until(session.saved) and session.lasts(self.draw.uniform(0.0, 0.6 * rest))

    def struck(self, what: str, session: Session) -> None:
        """Notes a fault that befell it."""
        self.hits += 1
        self.moments.append(f"{what} at {time.perf_counter() - session.process.began:.2f} s")


def anywhere(case: Case, session: Session) -> str:
    """Waits for a moment: while it comes to life, while it works, or in a save; gives which, "" where it ended before."""
    aim = case.draw.choices(("starting", "working", "saving"), (3, 10, 7))[0]
    if aim == "starting":
        return aim if session.lasts(case.draw.uniform(0.0, case.whole.holds)) else ""
    if not session.until(session.held):
        return ""
    if aim == "working":
        return aim if session.lasts(case.draw.uniform(0.0, 0.8 * (case.whole.ends - case.whole.holds))) else ""
    if not session.lasts(case.draw.uniform(0.0, 0.5 * (case.whole.ends - case.whole.holds))):
        return ""
    if not session.until(session.saving):
        return ""
    time.sleep(case.draw.uniform(0.0, INSIDE))
    return aim


def killed(case: Case) -> None:
    """SIGKILL at random moments, and `purestep resume` each time, run after run until there were enough kills."""
    runs, kills = 0, case.place.kills
    while case.hits < kills and case.sessions < MANY * kills and not case.wrong:
        case.run = case.run.with_name(f"{case.token}-{runs}")
        runs, session = runs + 1, case.train()
        while aim := anywhere(case, session) if case.hits < kills else "":
            session.signal(signal.SIGKILL)
            code = session.code()
            if code == -signal.SIGKILL:
                case.struck(aim, session)
            elif code:
                case.wrong.append(f"code {code} before a kill: {session.text()[-300:]}")
            session = case.go_on()
        case.finished(session)
    if case.hits < kills and not case.wrong:
        case.wrong.append(f"{case.hits} kills, not {kills}")


def workers_killed(case: Case) -> None:
    """SIGKILL of generators at random moments."""
    session = case.train()
    for _ in range(4):
        if session.until(lambda: bool(_generators(session))) and session.lasts(case.draw.uniform(0.0, 4.0)):
            for one in _generators(session)[:1]:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
                    case.struck("a generator", session)
    case.finished(session)
    if not case.hits:
        case.wrong.append("no generator was killed")


def _generators(session: Session) -> tuple[int, ...]:
    return async_outside.generators(session.process.popen.pid)


def terminated(case: Case) -> None:
    """SIGTERM while it works."""
    session = case.train()
    if case.working(session):
        session.signal(signal.SIGTERM)
        case.struck("SIGTERM", session)
    _stopped(case, session)


def interrupted(case: Case) -> None:
    """SIGINT twice while it works."""
    session = case.train()
    if case.working(session):
        session.signal(signal.SIGINT)
        case.struck("SIGINT", session)
        session.lasts(case.draw.uniform(0.0, 0.1))
        session.signal(signal.SIGINT)
    _stopped(case, session)


def at_birth(case: Case) -> None:
    """SIGINT while it comes to life."""
    session = case.train()
    if session.lasts(case.draw.uniform(0.3, 1.0) * case.whole.holds):
        session.signal(signal.SIGINT)
        case.struck("SIGINT", session)
    _stopped(case, session)


def at_the_end(case: Case) -> None:
    """SIGTERM in what follows training."""
    session, last = case.train(), faults_outside.last(case.kind)
    if session.until(lambda: (case.run / last).exists()) and session.lasts(case.draw.uniform(0.0, 2.0)):
        session.signal(signal.SIGTERM)
        case.struck("SIGTERM", session)
    _stopped(case, session)


def _stopped(case: Case, session: Session) -> None:
    """The end of a session that was asked to stop, or came to its end just before; then the run goes on."""
    case.over(case.ended(session, 0, 130, why="stopped"))


def paused(case: Case) -> None:
    """SIGSTOP, and SIGCONT after seconds; of a run with generators, also of a generator."""
    session = case.train()
    if case.working(session):
        for pid in (session.process.popen.pid, *_generators(session)[:1]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                case.struck("SIGSTOP", session)
                time.sleep(STOPS)
                os.kill(pid, signal.SIGCONT)
    case.finished(session)


def full(case: Case) -> None:
    """A disk that is full at a random moment; then there is room."""
    disk = case.place.path / "disks" / case.token
    disk.mkdir(parents=True)
    size = int(case.draw.uniform(0.05, 1.0) * case.whole.size) // BLOCK * BLOCK + 2 * BLOCK
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk))
    try:
        case.run = disk / "run"
        session = case.train()
        case.struck(f"a disk of {size:,} bytes,", session)
        code = case.ended(session, *ALIVE, why="on a full disk")
        mount("-o", "remount,size=1g", str(disk))
        case.over(code)
    finally:
        subprocess.run(("umount", "--lazy", str(disk)), check=False)


def mount(*words: str) -> None:
    """Mounts in the mount namespace of this process."""
    subprocess.run(("mount", *words), check=True, capture_output=True)


def unreadable(case: Case) -> None:
    """A folder without rights while it works; then with them."""
    session = case.train()
    if case.working(session):
        case.run.chmod(0)
        case.struck("chmod 0", session)
    code = case.ended(session, *ALIVE, why="without rights")
    if case.hits:
        case.ended(case.start("resume", str(case.run)), 1, why="resumed without rights")
    case.run.chmod(0o755)
    case.over(code)


def vanished(case: Case) -> None:
    """A folder that is moved away while it works; then back."""
    session, away = case.train(), case.run.with_name(f"{case.run.name}-away")
    if case.working(session):
        case.run.rename(away)
        case.struck("moved away", session)
    code = case.ended(session, *ALIVE, why="moved away")
    if away.exists():
        if case.run.exists():
            case.wrong.append(f"made anew: {sorted(path.name for path in case.run.iterdir())}")
            shutil.rmtree(case.run)
        case.ended(case.start("resume", str(case.run)), 1, why="resumed where nothing is")
        away.rename(case.run)
        case.finished()
    else:
        case.compare(code)


def removed(case: Case) -> None:
    """A folder that is removed while it works."""
    session = case.train()
    if case.working(session):
        shutil.rmtree(case.run, ignore_errors=True)
        shutil.rmtree(case.run, ignore_errors=True)
        case.struck("removed", session)
    case.ended(session, *ALIVE, why="removed")
    if case.hits and case.run.exists():
        case.wrong.append(f"made anew: {sorted(path.name for path in case.run.iterdir())}")


def doubled(case: Case) -> None:
    """Other processes on the run while it works, and two that begin a run at once."""
    session = case.train()
    if session.until(session.held):
        session.signal(signal.SIGSTOP)  # so that it is still there when they look
        others = [case.train("--overwrite"), case.train(), case.start("resume", str(case.run))]
        case.struck("three more", session)
        for other in others:
            case.ended(other, 1, why="another")
        session.signal(signal.SIGCONT)
    case.finished(session)
    case.run = case.run.with_name(f"{case.token}-twice")
    two = [case.train(), case.train()]
    case.struck("two at once", two[0])
    codes = [case.ended(one, *ALIVE, why="one of two") for one in two]
    if sorted(map(str, codes)) != ["0", "1"]:
        case.wrong.append(f"two at once ended with {codes}")
    case.compare(0)


def starved(case: Case) -> None:
    """A limit on memory that falls while it works, or that is there from the beginning; then there is none."""
    share = case.draw.uniform(0.2, 1.0)
    if case.number % 2:
        session = case.train(limit=int(share * case.whole.space))
        case.struck(f"{share:.0%} of the memory", session)
    else:
        session = case.train()
        if case.working(session):
            more = int(case.draw.uniform(0.0, 4e6))
            faults_outside.limit_memory(
                session.process.popen.pid, faults_outside.address_space(session.process.popen.pid) + more
            )
            case.struck(f"{more:,} bytes more", session)
    case.over(case.ended(session, *ALIVE, faults_outside.ABORTED, why="with little memory"))


FAULTS: Mapping[str, tuple[Callable[[Case], None], int]] = {  # what befalls a run, and in how many cases
    "SIGKILL": (killed, 1),
    "SIGKILL of a generator": (workers_killed, 1),
    "SIGTERM": (terminated, 1),
    "SIGINT twice": (interrupted, 1),
    "SIGINT at the start": (at_birth, 1),
    "SIGTERM at the end": (at_the_end, 1),
    "SIGSTOP, SIGCONT": (paused, 1),
    "a full disk": (full, 3),
    "an unreadable folder": (unreadable, 1),
    "a folder moved away": (vanished, 1),
    "a folder removed": (removed, 1),
    "two processes": (doubled, 1),
    "a limit on memory": (starved, 2),
}


def reason(recipe: str, fault: str, namespace: bool) -> str:
    """Why a fault does not befall a recipe here; "" where it does."""
    if fault == "SIGKILL of a generator" and not RECIPES[recipe].generators:
        return "no generators"
    if fault == "a full disk" and not namespace:
        return "a small disk is mounted in a namespace of its own, which takes root"
    return ""


def whole(place: Place, recipe: str) -> Whole:
    """A run that nobody disturbs. Raises: RuntimeError where it is not as asked."""
    token, kind = f"{recipe}-whole", RECIPES[recipe]
    run, before = place.path / token, faults_outside.segments()
    words = ("train", *kind.words, "--run", str(run))
    session = faults_outside.start(place, token, kind, run, words, place.path / "logs" / token)
    seen, space = dict[str, float](), 0
    for name, ready in (("held", session.held), ("saved", session.saved), ("ended", lambda: False)):
        while not ready() and session.process.running():
            space = max(space, faults_outside.address_space(session.process.popen.pid))
            time.sleep(faults_outside.PAUSE)
        seen[name] = time.perf_counter() - session.process.began
    wrong = [
        *faults_outside.faults_of(session.code(), (0,), session.text()),
        *faults_outside.left(place, token, before),
    ]
    found = faults_outside.portrait(run, kind)
    wrong += faults_outside.unlike(run, found, kind)
    if wrong:
        raise RuntimeError(f"{recipe}, undisturbed: {wrong}")
    size = sum(-(-path.stat().st_size // BLOCK) * BLOCK for path in run.rglob("*"))
    return Whole(found, seen["held"], seen["saved"], seen["ended"], size, space)


def performed(place: Place, recipe: str, fault: str, number: int, whole: Whole) -> dict[str, Any]:
    """A case from its beginning to its end, as a row."""
    token = f"{recipe}-{list(FAULTS).index(fault)}-{number}"
    draw = random.Random(f"{place.seed} {recipe} {fault} {number}")
    before, began = faults_outside.segments(), time.perf_counter()
    case = Case(place, recipe, fault, number, whole, draw, place.path / token, token)
    try:
        FAULTS[fault][0](case)
    except Exception as error:
        case.wrong.append(f"{type(error).__name__}: {error}")
    if not case.hits:
        case.wrong.append("it was never struck")
    case.wrong += [f"left: {found}" for found in faults_outside.left(place, token, before)]
    case.wrong += [f"it printed: {line}" for line in faults_outside.bare(place, token)] if not case.wrong else []
    return {
        "recipe": recipe,
        "fault": fault,
        "hits": case.hits,
        "gone_on": case.gone_on,
        "refused": case.refused,
        "sessions": case.sessions,
        "codes": case.codes,
        "moments": case.moments,
        "wrong": case.wrong,
        "seconds": round(time.perf_counter() - began, 1),
    }
