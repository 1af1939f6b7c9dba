"""A run of the command line seen from outside: its processes, its folder of checkpoints, the bits that it ended with."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from attrs import define, field, frozen
from torch import Tensor

from purestep.runtime.effects import folder
from purestep.runtime.effects.checkpoint.directory import LATEST, PARTIAL
from purestep.runtime.effects.checkpoint.manifest import TENSORS, describe
from purestep.runtime.machine.json_codec import decode
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.training_machine import Loop

PURESTEP = Path(sys.executable).with_name("purestep")
PAUSE = 0.0002  # seconds between two looks at a folder
WRITING, LEFT, UNNAMED, REMOVING, BETWEEN = (
    "half a save",
    "half a save, from before",
    "saved, not yet named",
    "half a removal",
    "between saves",
)
UNFINISHED = re.compile(re.escape(PARTIAL) + r"step_(\d+)(-\d+)?$")


def names(run: Path) -> frozenset[str]:
    """What lies in the run's folder of checkpoints."""
    root = run / folder.CHECKPOINTS
    try:
        return frozenset(path.name for path in root.iterdir())
    except FileNotFoundError:
        return frozenset()


def number(name: str) -> int:
    """The iteration in a checkpoint's name.

    >>> number("step_000120"), number(".partial-step_000130-2")
    (120, 130)
    """
    found = re.search(r"step_(\d+)", name)
    return int(found[1]) if found else 0


def unfinished(names: Set[str]) -> int:
    """The iteration of a save that is under way: its folder's name is newer than any other; 0 when there is none.

    A removal gives an old checkpoint such a name, too.

    >>> unfinished({"step_000110", "step_000120", ".partial-step_000130"})
    130
    >>> unfinished({"step_000110", "step_000120", ".partial-step_000090"})
    0
    """
    whole = max((number(name) for name in names if name.startswith("step_")), default=0)
    partial = max((number(name) for name in names if UNFINISHED.match(name)), default=0)
    return partial if partial > whole else 0


@frozen
class Standing:
    """Where a run stands by its newest good checkpoint."""

    iteration: int
    iterations: int  # of the whole run
    every: int  # of them between two checkpoints

    def before(self, iteration: int) -> int:
        """The checkpoint that precedes that of `iteration`, in a run that never stopped.

        >>> Standing(iteration=40, iterations=45, every=20).before(45)
        40
        """
        return self.every * ((iteration - 1) // self.every)


def newest(run: Path) -> Standing:
    """Where the run stands. Raises: CheckpointError."""
    found = describe(runs.newest_checkpoint(run))
    loop = decode(found.machine, [Loop], "machine")
    return Standing(found.step, loop.iterations, loop.every)


def found(run: Path, newest: int, before: Set[str]) -> tuple[str, int]:
    """What a kill has left beside the newest good checkpoint, and the bytes of an unfinished one.

    An unfinished one that lay there `before` the session began counts as that of the kill which left it.
    """
    root, left = run / folder.CHECKPOINTS, names(run)
    half = unfinished(left)
    if half:
        size = sum(path.stat().st_size for path in root.glob(f"{PARTIAL}step_{half:06d}*/*"))
        return (LEFT if half == unfinished(before) else WRITING), size
    pointer = root / LATEST
    if not pointer.exists() or number(pointer.read_text()) != newest:
        return UNNAMED, 0
    return (REMOVING if any(UNFINISHED.match(name) for name in left) else BETWEEN), 0


@define
class Session:
    """A process of the command line at work on a run."""

    run: Path
    process: subprocess.Popen[bytes]
    before: frozenset[str]  # checkpoints that were there
    began: float = field(factory=time.perf_counter)
    first: str = ""  # the first checkpoint that it wrote

    def look(self) -> frozenset[str]:
        """The names in the folder of checkpoints; notes the session's first."""
        there = names(self.run)
        new = sorted(name for name in there - self.before if name.startswith("step_"))
        if new and not self.first:
            self.first = new[0]
        return there

    def saved(self) -> bool:
        """Whether it has written a checkpoint."""
        self.look()
        return bool(self.first)

    def until(self, ready: Callable[[], bool], pause: float = PAUSE) -> bool:
        """Waits until it is so; gives False when the process ended before. Raises: RuntimeError when it failed."""
        while not ready():
            if self.process.poll() is not None:
                return self.ended()
            time.sleep(pause)
        return True

    def ended(self) -> bool:
        """Raises RuntimeError when the process failed."""
        if self.process.returncode:
            raise RuntimeError(f"purestep ended with {self.process.returncode}: {self.log()[-2000:]}")
        self.look()
        return False

    def finish(self) -> None:
        """Waits for its end, looking on. Raises: RuntimeError when it failed."""
        while self.process.poll() is None:
            self.look()
            time.sleep(PAUSE)
        self.ended()

    def log(self) -> str:
        """What the sessions of the run have printed."""
        return log_of(self.run).read_text()


@frozen
class Setup:
    """What all runs share."""

    options: tuple[str, ...]
    environment: Mapping[str, str]
    place: Path
    recipe: str = "ppo"
    started: list[subprocess.Popen[bytes]] = field(factory=list)

    def session(self, run: Path, *words: str) -> Session:
        """Starts `purestep WORDS` on the run."""
        there = names(run)
        with log_of(run).open("ab") as log:
            process = subprocess.Popen([PURESTEP, *words], env=self.environment, stdout=log, stderr=log)
        self.started.append(process)
        return Session(run, process, there)

    def train(self, run: Path, seed: int) -> Session:
        """Begins a run."""
        return self.session(run, "train", self.recipe, "--run", str(run), "--seed", str(seed), *self.options)

    def resume(self, run: Path) -> Session:
        """Goes on with it."""
        return self.session(run, "resume", str(run), "--episodes", "1", "--trust")

    def stop(self) -> None:
        """Kills whatever is still at work."""
        for process in self.started:
            process.kill()
            process.wait()


def log_of(run: Path) -> Path:
    """Where the sessions of the run print to."""
    return run.with_suffix(".log")


def tensors(path: Path) -> dict[str, Tensor]:
    """All that a checkpoint holds, by name."""
    return safetensors.torch.load((path / TENSORS).read_bytes())


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """The names of tensors that differ in shape, dtype or any bit, and of those that only one has.

    >>> differing({"x": torch.tensor(0.0), "y": torch.ones(1)}, {"x": torch.tensor(-0.0), "y": torch.ones(1)})
    ['x']
    """
    return [name for name in sorted(one.keys() | other.keys()) if not _same(one.get(name), other.get(name))]


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def compared(run: Path, whole: Path) -> dict[str, Any]:
    """The last checkpoints of two runs: every tensor, the machine's state, the rows of metrics.

    The checkpoint before the last must differ, else the comparison sees nothing.
    """
    mine, other = runs.newest_checkpoint(run), runs.newest_checkpoint(whole)
    ours, theirs = tensors(mine), tensors(other)
    *_, earlier, _ = sorted(path for path in other.parent.iterdir() if path.name.startswith("step_"))
    differ = differing(ours, theirs)
    params = [name for name in theirs if name.startswith("learner.params")]
    rows = [(path / folder.METRICS).read_bytes() for path in (run, whole)]
    return {
        "iteration": describe(mine).step,
        "tensors": len(theirs),
        "parameters": sum(theirs[name].numel() for name in params),
        "differing": differ,
        "identical": not differ and bool(params) and describe(mine).machine == describe(other).machine,
        "metrics_identical": rows[0] == rows[1],
        "control_differs": bool(set(params) & set(differing(tensors(earlier), theirs))),
    }
