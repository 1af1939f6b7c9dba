"""`purestep train zorplex --mode async` with no arguments but the seed, three seeds; and a run that is killed twice.

Each seed trains in turns and at once from one warm start, as a user would, in a process of its own. Held-out accuracy before
and after both, with intervals over tasks and over seeds, says whether training at once improves as training in turns does.
`killed` is a shorter run: SIGKILL to its whole process group at a random moment of the asynchronous phase, `purestep resume`,
once more, and to its end; then what was learned from is gone through. --only takes one part, which is put into
results/async_zorplex.json beside those that are there, each with its commit; seed 0 writes the picture as well. Other words go
to `purestep train`, and results to async_zorplex_small.json. Ends with 1 where a part is not as asked.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purestep.runtime.async_rl.checkpoint import EVENTS, TOTALS

from . import evidence
from .parts import async_outside
from .parts.async_outside import Process, Row
from .parts.async_verdicts import KILLED, PHASES, SEEDS, merged, refuted

MINUTES = 15.0  # that a seed may take
STEPS, KILLS = 30, 2  # of the killed run
ORPHANS = 60.0  # seconds after which nothing of a killed run may be alive
PICTURE = "async_zorplex_timeline.png"


def as_asked(row: Row) -> bool:
    """Whether a seed was quick enough, better than before beyond both intervals, and lost and doubled nothing."""
    better = row["async"]["accuracy_low"] > row["before"]["accuracy_high"]
    return bool(better and row["seconds"] <= 60 * MINUTES and not any(row["wrong"].values()))


def command(run: Path, seed: str, words: Sequence[str]) -> tuple[str, ...]:
    """What is trained."""
    return ("train", "zorplex", "--mode", "async", "--seed", seed, "--run", str(run), *words)


def trained(place: Path, seed: str, words: Sequence[str]) -> Row:
    """A seed: accuracy before and after both phases, the table's figures, what is wrong with what was learned from."""
    run = place / f"seed-{seed}"
    process = Process(command(run, seed, words), place / f"seed-{seed}.log")
    process.succeeded()
    seconds = time.perf_counter() - process.began
    print(process.log.read_text(), end="", flush=True)
    if seed == SEEDS[0]:
        shutil.copyfile(run / "timeline.png", place / PICTURE)
    return {
        "seconds": round(seconds, 1),
        **standings(run),
        **found(run),
        "log": process.log.read_text().splitlines()[-1],
    }


def standings(run: Path) -> Row:
    """How the policy that samples stood before, and after each phase, and the comparison the run has written."""
    read = {"before": (run / "before.json")} | {name: run / name / "evaluation.json" for name in PHASES}
    held = {name: json.loads(path.read_text()) for name, path in read.items()}
    after = {name: held[name]["after"]["sampled"] for name in PHASES}
    comparison = json.loads((run / "comparison.json").read_text())
    comparison.pop("standings")
    return {"before": held["before"]["sampled"], **after, "comparison": comparison}


def found(run: Path) -> Row:
    """What went through each phase, and what is wrong with it."""
    through = {name: async_outside.gone_through(run, name) for name in PHASES}
    totals = {name: json.loads((run / name / TOTALS).read_text()) for name in PHASES}
    for name, told in totals.items():
        told.pop("settings", None)
        through[name].pop("counts")
    return {
        "wrong": {name: told.pop("wrong") for name, told in through.items()},
        "gone through": through,
        "totals": totals,
    }


def struck(process: Process, phase: Path, after: int, draw: random.Random) -> Row:
    """SIGKILL at a moment after that many updates of the phase. Raises: RuntimeError where the run ended before."""
    if not process.until(lambda: async_outside.length(phase) >= after):
        raise RuntimeError("the run was over before it was killed")
    time.sleep(draw.uniform(0.0, 3.0))
    had = process.kill()
    held = async_outside.ledger(phase)
    return {
        "seconds": round(time.perf_counter() - process.began, 1),
        "signal": -process.popen.returncode,
        "updates": len(held),
        "generators": len(had),
        "alive afterwards": len(async_outside.left_alive(had, ORPHANS)),
        "ledger": held,
    }


def killed(place: Path, words: Sequence[str]) -> Row:
    """A run that is killed as often as asked and goes on to its end: each kill, and what became of what was learned."""
    run, log, draw = place / KILLED, place / "killed.log", random.Random(0)
    phase, kills, began = run / "async", list[Row](), time.perf_counter()
    process = Process(command(run, "0", ("--steps", str(STEPS), *words)), log)
    moments = sorted(draw.sample(range(3, STEPS - 5), KILLS))
    for after in moments:
        kills.append(struck(process, phase, after, draw))
        print(f"killed after {kills[-1]['updates']} updates, {kills[-1]['seconds']} s into the session", flush=True)
        process = Process(("resume", str(run)), log)
    process.succeeded()
    resumed = [row["version"] for row in async_outside.rows_of((phase / EVENTS).read_text()) if "session" in row][1:]
    rows = async_outside.ledger(phase)
    for kill, version in zip(kills, resumed, strict=True):
        kill["resumed at"] = version
        kill["kept as it was"] = kill.pop("ledger")[:version] == rows[:version]
    return {"seconds": round(time.perf_counter() - began, 1), "updates": len(rows), "kills": kills, **found(run)}


def survived(row: Row, steps: int = STEPS) -> bool:
    """Whether each kill hit, left nobody behind and undid at most two updates, and nothing was lost or counted twice."""
    kills = row["kills"]
    hits = all(
        kill["signal"] == 9
        and kill["generators"] > 0
        and not kill["alive afterwards"]
        and kill["kept as it was"]
        and 0 <= kill["updates"] - kill["resumed at"] <= 2
        for kill in kills
    )
    return len(kills) >= KILLS and hits and row["updates"] == steps and not any(row["wrong"].values())


def performed(part: str, words: Sequence[str]) -> dict[str, Any]:
    """Runs a part and puts it into the file of results; gives all figures there."""
    name, began = "async_zorplex_small" if words else "async_zorplex", time.perf_counter()
    path = evidence.RESULTS / f"{name}.json"
    with tempfile.TemporaryDirectory() as place:
        row = killed(Path(place), words) if part == KILLED else trained(Path(place), part, words)
        row["as asked"] = survived(row) if part == KILLED else as_asked(row)
        seconds = time.perf_counter() - began
        old = json.loads(path.read_text())["figures"] if path.exists() else {}
        figures = merged(old, part, {**evidence.origin(name, seconds), **row})
        evidence.write(name, seconds=seconds, figures=figures)
        if (Path(place) / PICTURE).exists() and not words:
            shutil.copyfile(Path(place) / PICTURE, path.with_name(PICTURE))
    said = "as asked" if row["as asked"] else "NOT as asked"
    print(f"{part}: {said}, {seconds:.0f} s", flush=True)
    return figures


def main() -> int:
    """Runs the parts one after the other and writes each as soon as it is there; 0 where all are as asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.async_zorplex", description=__doc__)
    parser.add_argument("--only", choices=(*SEEDS, KILLED), help="one part (default: all of them)")
    given, words = parser.parse_known_args()
    parts = (given.only,) if given.only else (*SEEDS, KILLED)
    figures: dict[str, Any] = {}
    for part in parts:
        figures = performed(part, words)
    told = figures.get("summary", {})
    print("\n".join(f"{name}: {value}" for name, value in told.items()))
    return 0 if all(figures["parts"][part]["as asked"] for part in parts) and not refuted(told) else 1


if __name__ == "__main__":
    sys.exit(main())
