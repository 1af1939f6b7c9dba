"""Tiny runs of `purestep train` seen from outside: sessions, what they printed and left behind, what a run holds.

A part of `faults`. Linux only: processes are found in /proc, by a token in their environment.
"""

import fcntl
import hashlib
import json
import os
import re
import resource
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import define, frozen

from purestep.runtime.async_rl.run import WARM
from purestep.runtime.effects import folder
from purestep.runtime.effects.checkpoint import single
from purestep.runtime.effects.checkpoint.directory import PARTIAL
from purestep.runtime.effects.checkpoint.manifest import describe

from . import async_outside, outside
from .async_outside import PROCESSES, Process, alive

TOKEN = "PURESTEP_FAULTS"  # in the environment of all that a case starts
MEMORY = Path("/dev/shm")
LONGEST = 180.0  # seconds of a session; longer is a hang
GRACE = 10.0  # seconds after the end in which all has to be gone
PAUSE = 0.002  # seconds between two looks
BARE = re.compile(
    r"Traceback|^\s+File \"|Exception ignored|^Exception|Fatal|terminate called|Segmentation|core dumped|^\w+Error\b"
)
STOPPED = re.compile(r"^purestep: interrupted|^interrupted |^stopped at once|^nothing was saved")
ABORTED = 127  # the exit code of a process in which the C library has no memory left
TOLD = (  # how a line begins that says why a session ended; the last two are of libraries that end the process themselves
    "purestep: ",
    "cannot allocate memory for thread-local data",
    "OpenBLAS error: Memory allocation",
)
TIMES = ("_seconds", "_per_second")  # how columns end that hold times
UNLIKE = (folder.TENSORBOARD, ".lock", folder.PICTURE)  # files that differ: times, process ids, pictures of speeds
DROPPED = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs", "--")


@frozen
class Recipe:
    """A recipe, and a run of it that takes seconds."""

    words: tuple[str, ...]
    generators: bool = False  # whether timing decides which samples are learned from, so that no two runs are the same

    @property
    def equality(self) -> str:
        """A description of all that is compared with a run that nobody disturbed."""
        return REPLAYED if self.generators else EXACT

    def homes(self, run: Path) -> tuple[Path, ...]:
        """Return the folders that hold the run's checkpoints."""
        return (run / WARM, run / "async") if self.generators else (run,)


EXACT = (
    "all files byte for byte; of the newest checkpoint every tensor, the machine's state, the arguments, the environment; "
    "all rows of metrics but for columns of times; not TensorBoard's files, the lock and pictures of speeds"
)
REPLAYED = (
    "warm start as above; then every update there, every sample learned from once, the counts of the newest checkpoint "
    "those of what was learned from, the event log replayed bit for bit; model, comparison and totals there"
)
LITTLE = (
    *("--groups", "2", "--samples", "2", "--held-out", "4", "--warm-steps", "4", "--demonstrations", "16"),
    *("--warm-batch", "4", "--width", "32", "--layers", "1", "--heads", "2", "--max-turns", "2"),
)
EAGER = ("--backend", "none", "--checkpoints", "40", "--epochs", "1", "--envs", "8")
RANKING = ("--queries", "1", "--candidates", "1", "--slots", "4")
PROVING = (
    "--steps",
    "1280",
    "--horizon",
    "4",
    "--warm-up",
    "20",
    "--minibatches",
    "1",
    "--size",
    "16",
    "--width",
    "16",
)
RECIPES: Mapping[str, Recipe] = {
    "async": Recipe(
        ("zorplex", "--mode", "async", "--no-compare", "--steps", "8", *LITTLE, "--generator-slots", "4"),
        generators=True,
    ),
    "ppo": Recipe(("ppo", "--steps", "5120", "--horizon", "16", "--hidden", "16", "--episodes", "1", *EAGER)),
    "prove": Recipe(("prove", "--data", "family:40", *PROVING, *RANKING, *EAGER)),
    "zorplex": Recipe(("zorplex", "--steps", "16", *LITTLE, "--slots", "4")),
}


@frozen
class Place:
    """The folder in which cases run, with the seed and the number of kills that they share."""

    path: Path
    seed: int
    kills: int  # moments of SIGKILL for each recipe

    def environment(self, token: str) -> dict[str, str]:
        """Return the environment of a case's processes; temporary files get a folder that is to be empty in the end."""
        folders = {"XDG_CACHE_HOME": str(self.path / "cache"), "TMPDIR": str(self.temporary(token)), TOKEN: token}
        return {**os.environ, **folders, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    def temporary(self, token: str) -> Path:
        """Return the folder for a case's temporary files."""
        return self.path / "temporary" / token


@define
class Session:
    """A process of the command line at work on a case's run."""

    process: Process
    run: Path
    homes: tuple[Path, ...]
    log: Path

    def held(self) -> bool:
        """Return whether the session holds the run's lock."""
        with suppress(OSError):
            return (self.run / ".lock").read_text() == f"{self.process.popen.pid}\n"
        return False

    def saving(self) -> bool:
        """Return whether a save is under way."""
        return any(name.startswith(f"{PARTIAL}step_") for home in self.homes for name in outside.names(home))

    def saved(self) -> bool:
        """Return whether there is a checkpoint."""
        return any(name.startswith("step_") for home in self.homes for name in outside.names(home))

    def until(self, ready: Callable[[], bool]) -> bool:
        """Waits until it is so; false where the session ended before."""
        while not ready():
            if not self.process.running():
                return False
            time.sleep(PAUSE)
        return True

    def lasts(self, seconds: float) -> bool:
        """Lets it go on for so long; false where it ended before."""
        until = time.perf_counter() + seconds
        return self.until(lambda: time.perf_counter() >= until)

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        with suppress(ProcessLookupError):
            os.kill(self.process.popen.pid, number)

    def code(self) -> int | str:
        """Wait for the end and return the exit code; "hung" for a session that had to be killed after `LONGEST` seconds."""
        self.process.waited(LONGEST)
        if self.process.running():
            self.process.kill()
            return "hung"
        return int(self.process.popen.returncode)

    def text(self) -> str:
        """Return all that the session printed."""
        return self.log.read_text(errors="replace")


def faults_of(code: int | str, codes: Collection[int], text: str) -> list[str]:
    """Return the faults in a session's end: a wrong exit code, raw errors in its output, not one line that says why.

    >>> faults_of(1, (1,), "2 of 8 steps\\npurestep: save: a full disk\\n")
    []
    >>> faults_of(1, (0, 1), "Traceback (most recent call last)\\n")
    ['it printed: Traceback (most recent call last)', 'code 1, and 0 lines that say why: []']
    """
    lines = text.splitlines()
    wrong = [] if code in codes else [f"code {code}, not {sorted(codes)}: {lines[-3:]}"]
    wrong += [f"it printed: {line[:200]}" for line in lines if BARE.search(line)][:3]
    said = [line for line in lines if line.startswith(TOLD)]
    stops = [line for line in lines if STOPPED.search(line)]
    ends = {0: said, 1: said, ABORTED: said, 130: stops}.get(code) if isinstance(code, int) else None
    if ends is not None and len(ends) != (code != 0):
        wrong.append(f"code {code}, and {len(ends)} lines that say why: {ends[:3]}")
    return wrong


def bare(place: Place, token: str) -> list[str]:
    """Return the first raw errors, such as tracebacks, that a case's sessions have printed, the killed ones too."""
    texts = (path.read_text(errors="replace") for path in sorted((place.path / "logs").glob(f"{token}-*")))
    return [line[:200] for text in texts for line in text.splitlines() if BARE.search(line)][:3]


def processes(token: str) -> list[int]:
    """The processes that a case has started and that have not ended."""
    found, mark = [], f"{TOKEN}={token}".encode()
    for place in PROCESSES.iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            with suppress(OSError):
                if mark in (place / "environ").read_bytes().split(b"\0") and alive(int(place.name)):
                    found.append(int(place.name))
    return found


def segments() -> frozenset[str]:
    """Return the names of the files in shared memory on which nobody holds a lock."""
    return frozenset(path.name for path in MEMORY.glob("*") if not _held(path))


def _held(path: Path) -> bool:
    """Return whether somebody holds a lock on the file, or it is gone."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, FileNotFoundError):
        return True
    return False


def left(place: Place, token: str, before: frozenset[str]) -> list[str]:
    """Return what a case's sessions have left behind, `GRACE` seconds after the last; [] as soon as there is nothing."""
    until = time.perf_counter() + GRACE
    while (found := list(_left(place.temporary(token), token, before))) and time.perf_counter() < until:
        time.sleep(async_outside.LOOK)
    return found


def _left(temporary: Path, token: str, before: frozenset[str]) -> Iterator[str]:
    for pid in processes(token):
        yield f"process {pid}: {' '.join(async_outside.words_of(pid))[:120]}"
    for name in sorted(segments() - before):
        yield f"shared memory: {name}"
    for path in sorted(temporary.iterdir()):
        yield f"temporary file: {path.name}"


def portrait(run: Path, recipe: Recipe) -> dict[str, str]:
    """All that a run holds and that is the same however often it was stopped, by name; of checkpoints, the newest."""
    found = {}
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        name = path.relative_to(run)
        generated = recipe.generators and name.parts[0] != WARM and name.parts[0] != folder.ARGUMENTS
        if not generated and folder.CHECKPOINTS not in name.parts and not set(UNLIKE) & set(name.parts):
            found[str(name)] = _rows(path) if name.name == folder.METRICS else _digest(path.read_bytes())
    for home in recipe.homes(run)[:1]:
        newest = single.latest(home)
        if newest is not None:
            told = describe(newest)
            held = (told.step, told.sha256, told.machine, told.environment, told.metadata, told.leaves)
            found[f"{home.name if recipe.generators else 'run'}: newest checkpoint"] = repr(held)
            found["tensors"] = _digest((newest / "state.safetensors").read_bytes())
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _rows(path: Path) -> str:
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    return json.dumps([{name: row[name] for name in row if not name.endswith(TIMES)} for row in rows])


def unlike(run: Path, whole: Mapping[str, str], recipe: Recipe) -> list[str]:
    """Return how a run that has ended differs from one that never stopped; of one with generators, also its audit's faults."""
    try:
        mine = portrait(run, recipe)
        wrong = [f"differs: {name}" for name in sorted({*mine, *whole}) if mine.get(name) != whole.get(name)]
        wrong += [f"left in the run: {path.relative_to(run)}" for path in run.rglob(f"{PARTIAL}*")]
        if recipe.generators:
            wrong += generated(run)
    except Exception as error:
        return [f"the run cannot be read: {type(error).__name__}: {error}"]
    return wrong


def generated(run: Path) -> list[str]:
    """Return the faults in the work of generators and trainer: every sample learned from once, the log replayed bit for bit."""
    row: Mapping[str, Any] = async_outside.gone_through(run, "async")
    updates = async_outside.length(run / "async")
    asked = folder.read_json(run / folder.ARGUMENTS)["steps"]
    there = [name for name in ("model", "comparison.json", "async/totals.json") if not (run / name).exists()]
    wrong = [] if updates == asked else [f"{updates} updates, not {asked}"]
    return [*row["wrong"], *wrong, *(f"absent: {name}" for name in there)]


def last(recipe: Recipe) -> str:
    """A file that is written in what follows training."""
    return "async/totals.json" if recipe.generators else folder.EVALUATION


def limit_memory(pid: int, bytes_: int) -> None:
    """Lets a process have no more address space than that."""
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_AS, (bytes_, bytes_))


def address_space(pid: int) -> int:
    """The bytes of address space that a process has; 0 where it is gone."""
    try:
        return int((PROCESSES / str(pid) / "statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def start(
    place: Place, token: str, recipe: Recipe, run: Path, words: Sequence[str], log: Path, *, limit: int = 0
) -> Session:
    """Starts `purestep WORDS`, as a user that may not do all."""
    place.temporary(token).mkdir(parents=True, exist_ok=True)
    bound = ("prlimit", f"--as={limit}") if limit else ()
    before = (*(DROPPED if os.geteuid() == 0 else ()), *bound)
    return Session(Process(words, log, before, place.environment(token)), run, recipe.homes(run), log)
