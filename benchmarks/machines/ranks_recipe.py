"""`purestep train zorplex` on several ranks: in turns and at once, killed and gone on with by another number of them.

In turns: one process that never stops; two ranks, all killed after a third of the updates, then three, killed after two thirds,
then one process. At once, with two generators: two ranks, killed half-way, then three. Each run has to end better than it
began, with all its iterations, once each; what the phase at once learned from is gone through. The recorded batches of
`ranks_agree` are learned from by one rank and by 2, 3 and 1 of them in turn, with the recipe's learner and checkpoints: how
far are losses apart? Writes results/ranks_recipe.json. Other words go to `purestep train`, and results to
ranks_recipe_small.json. Ends with 1 where anything is not as asked.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from purestep.runtime.async_rl.comparison import accuracy_difference
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.text.evaluation import ACCURACY, HIGH, LOW, EvaluationResult
from tests.support.programs import free_port

from .. import evidence
from ..parts import async_outside
from .ranks_agree import apart

RECORDED = evidence.ROOT / "benchmarks" / "recorded" / "ranks_agree.safetensors"
BATCHES, AGAIN = 20, 1e-6  # of the recorded ones; how far apart losses may be, relative
PIECES = ((2, 0, 7), (3, 7, 13), (1, 13, BATCHES))  # ranks, and the batches from the first up to the last
STEPS, LOOK = 100, 0.1
GRACE = 10.0  # seconds for each other rank to end when one has failed
Row = dict[str, Any]


class World:
    """A program on so many ranks, each in a process group of its own; one rank is started without a launcher's names."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.each = list[subprocess.Popen[bytes]]()

    def start(self, size: int, *words: object) -> None:
        """Starts so many."""
        place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()} if size > 1 else {}
        usual = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **place}
        with self.log.open("ab") as file:
            for rank in range(size):
                one = subprocess.Popen(
                    [sys.executable, "-m", *map(str, words)],
                    env={**usual, **({"RANK": str(rank)} if size > 1 else {})},
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
                self.each.append(one)

    def ended(self) -> None:
        """Waits for the end of all, or of one that fails. Raises: RuntimeError where one failed."""
        while None in (codes := [one.poll() for one in self.each]) and not any(codes):
            time.sleep(LOOK)
        if any(codes):  # what the others say of it is worth a while
            for one in self.each:
                with suppress(subprocess.TimeoutExpired):
                    one.wait(GRACE)
            codes = [one.poll() for one in self.each]
        if any(codes):
            raise RuntimeError(f"ranks ended with {codes}: {self.log.read_text()[-2000:]}")

    def killed_at(self, checkpoint: Path) -> None:
        """Kills all when there is this checkpoint. Raises: RuntimeError where they end before."""
        while not checkpoint.exists():
            if any(one.poll() is not None for one in self.each):
                self.ended()
                raise RuntimeError(f"the run was over before {checkpoint.name} could be seen")
            time.sleep(LOOK)
        self.kill()

    def kill(self) -> None:
        """Kills those that are there, with whatever they have started."""
        for one in self.each:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()


@contextmanager
def world(size: int, log: Path, *words: object) -> Iterator[World]:
    """A program on so many ranks for a block; none is left after it, whatever happens."""
    made = World(log)
    try:
        made.start(size, *words)
        yield made
    finally:
        made.kill()


def purestep(size: int, run: Path, *words: object) -> AbstractContextManager[World]:
    """`purestep` on so many ranks, whose words go into a log beside the run's folder."""
    return world(size, run.with_suffix(".log"), "purestep.runtime.cli.main", *words)


def trained(run: Path, words: Sequence[str], plan: Sequence[tuple[int, int]], home: Path) -> Row:
    """A run that is begun and gone on with on so many ranks each, and killed at those iterations; at 0 it may end."""
    began = time.perf_counter()
    begin: tuple[str, ...] = ("train", "zorplex", "--run", str(run), *words)
    for size, last in plan:
        with purestep(size, run, *begin) as ranks:
            if last:
                ranks.killed_at(home / "checkpoints" / f"step_{last:06d}")
            else:
                ranks.ended()
        begin = ("resume", str(run))
    after = json.loads((home / "evaluation.json").read_text())["after"]["sampled"]
    rows = [row["iteration"] for row in read_metrics(home / "metrics.jsonl")]
    return {
        "ranks": [size for size, _ in plan],
        "killed at": [last for _, last in plan if last],
        "seconds": round(time.perf_counter() - began, 1),
        "before": json.loads((run / "before.json").read_text())["sampled"],
        "after": after,
        "iterations": len(rows),
        "each iteration once": rows == [float(number) for number in range(1, len(rows) + 1)],
    }


def agreement(place: Path) -> Row:
    """Losses on the recorded batches: of ranks that come and go, against one that never stops."""
    losses = []
    for name, plan in {"whole": ((1, 0, BATCHES),), "pieces": PIECES}.items():
        out = place / name
        out.mkdir()
        for size, first, last in plan:
            with world(size, out / "log", "benchmarks.parts.ranks_recipe_side", RECORDED, out, first, last) as ranks:
                ranks.ended()
        losses.append([float(line) for line in (out / "losses").read_text().split()])
    return {"batches": len(losses[0]), "ranks": [size for size, _, _ in PIECES], **apart(losses[1], losses[0])}


def _standing(row: Row) -> EvaluationResult:
    figures = {name: row[name] for name in (ACCURACY, LOW, HIGH)}
    return EvaluationResult(attempts=row["attempts"], reward=0.0, turns=0.0, tokens=0.0, figures=figures, modes={})


def less(one: Row, other: Row) -> Row:
    """The difference of two accuracies, with a 95 % interval."""
    told = accuracy_difference(_standing(one), _standing(other))
    return {"difference": told.value, "low": told.low, "high": told.high}


def performed(place: Path, words: Sequence[str]) -> tuple[Row, list[str]]:
    """All figures, and what is not as asked."""
    steps = int(words[words.index("--steps") + 1]) if "--steps" in words else STEPS
    own, better = ("--steps", str(steps), *words), not words  # a small run is too short to learn much
    warm = 20 if "--warm-steps" not in words else -(-int(words[words.index("--warm-steps") + 1]) // 20)
    thirds = warm + steps // 3, warm + 2 * steps // 3
    figures: Row = {}
    plans = {"one process": ((1, 0),), "2, 3 and 1 ranks": ((2, thirds[0]), (3, thirds[1]), (1, 0))}
    for number, (name, plan) in enumerate(plans.items()):
        run = place / f"turns{number}"
        figures[name] = trained(run, own, plan, run)
        print(f"{name}: {json.dumps(figures[name])}", flush=True)
    run, name = place / "both", "at once, 2 and 3 ranks"
    at_once = ("--mode", "async", "--no-compare", "--generators", "2", *own)
    figures[name] = trained(run, at_once, ((2, steps // 2), (3, 0)), run / "async")
    through = async_outside.gone_through(run, "async")
    figures[name] |= {"gone through": through}
    figures["recorded batches"] = agreement(place)
    one, other = (figures[name]["after"] for name in plans)
    figures["ranks less one process"] = less(other, one)
    wanted = {**dict.fromkeys(plans, warm + steps), name: steps}
    return figures, [*through["wrong"], *faults(figures, wanted, better=better)]


def faults(figures: Row, wanted: Mapping[str, int], *, better: bool) -> list[str]:
    """What is not as asked; `wanted` are the iterations of each run."""
    gap, bounds = figures["recorded batches"]["largest relative difference"], figures["ranks less one process"]
    wrong = [f"losses are {gap:.1e} apart, relative"] if not gap < AGAIN else []
    wrong += ["ranks end elsewhere than one process"] if not bounds["low"] <= 0.0 <= bounds["high"] else []
    for name, number in wanted.items():
        row = figures[name]
        if not row["each iteration once"] or row["iterations"] != number:
            wrong.append(f"{name}: {row['iterations']} iterations, wanted {number}, each once")
        low, high = row["after"]["accuracy_low"], row["before"]["accuracy_high"]
        if better and low <= high:
            wrong.append(f"{name}: no better: at least {low:.3f} afterwards, at most {high:.3f} before")
    return wrong


def main() -> int:
    """0 where all is as asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines.ranks_recipe", description=__doc__)
    _, words = parser.parse_known_args()
    name, began = "ranks_recipe_small" if words else "ranks_recipe", time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        figures, wrong = performed(Path(place), words)
    evidence.write(name, seconds=time.perf_counter() - began, figures={**figures, "wrong": wrong})
    print("\n".join(wrong) or "as asked")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
