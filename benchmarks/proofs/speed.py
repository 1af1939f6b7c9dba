"""How fast proofs are played: compiled against eager, recycled slots, the parts of a step, growth, memory, compilations.

Everything runs in one process on one thread, memory in processes of their own (on Linux); what is compared takes turns, and
each figure is a median with its quartiles, compilation apart, which begins with empty caches. The policy is untrained unless
said otherwise. Writes results/prove_speed.json and a picture.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from purestep.core.policy import ActorCritic
from purestep.runtime.logic.proofs import Proofs
from purestep.runtime.recipes.prove_settings import USUAL

from .. import evidence
from ..parts.timing import (
    SLOTS,
    STEPS,
    Acting,
    Timed,
    acting,
    made_of,
    ratio,
    scaled,
    spread,
    turns,
)
from .feeding import evaluation, learnt
from .picture import picture
from .step_costs import by_part

FACTS, MORE_SLOTS = ("family:1200", "family:10000"), (16, 2048)
STATUS = Path("/proc/self/status")


def rollouts(made: Proofs, model: ActorCritic, fast: Acting) -> dict[str, Any]:
    """Steps a second of the training rollout at 128 slots, compiled and eager."""
    slow = acting(made, model, compiled=False)
    spent = turns({"compiled": fast, "eager": slow}, 5)
    rates = {name: spread([SLOTS * STEPS / each for each in seconds], digits=0) for name, seconds in spent.items()}
    return {
        "slots": SLOTS,
        "steps/s": rates,
        "compiled against eager": ratio(spent["eager"], spent["compiled"]),
        "compile seconds": fast.compile_seconds(),
    }


def growth(made: Proofs, model: ActorCritic, usual: Acting) -> dict[str, Any]:
    """Microseconds of a step by facts, at 128 slots, and by slots."""
    worlds = {len(made.dataset.train): (made, usual)}
    for data in FACTS:
        other, another_model = made_of(data)
        worlds[len(other.dataset.train)] = (other, acting(other, another_model))
    widths = {world.game.widths for world, _ in worlds.values()}
    if len(widths) > 1:
        raise RuntimeError(f"the worlds of growth differ in widths: {widths}; compare worlds of one kind")
    by_facts = {str(facts): run for facts, (_, run) in worlds.items()}
    by_slots = {str(slots): acting(made, model, slots=slots) for slots in MORE_SLOTS} | {str(SLOTS): usual}
    by_slots = dict(sorted(by_slots.items(), key=lambda pair: int(pair[0])))
    sides: dict[str, Timed] = {f"facts {name}": run for name, run in by_facts.items()}
    spent = turns(sides | {f"slots {name}": run for name, run in by_slots.items()}, 5)
    return {
        "microseconds a step, by facts": {
            name: scaled(spent[f"facts {name}"], 1e6 / STEPS, digits=1) for name in by_facts
        },
        "microseconds a slot and step, by slots": {
            name: scaled(spent[f"slots {name}"], 1e6 / STEPS / int(name)) for name in by_slots
        },
        "room in all worlds": str(widths.pop()),
        "compile seconds": {f"{name} facts": run.compile_seconds() for name, run in by_facts.items()}
        | {f"{name} slots": run.compile_seconds() for name, run in by_slots.items()},
    }


def mebibytes(name: str) -> int:
    """Memory of this process: "VmRSS" now, "VmHWM" at most. What getrusage says of a child begins with its parent's peak."""
    found = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    return int(found.group(1)) // 1024 if found else 0


def remembered(data: str, rules: str, kept: Path) -> tuple[dict[str, Any], Proofs, ActorCritic, Acting]:
    """Peak memory of this process when it has played rollouts on some data, by the program kept, or compiled and kept now."""
    before = mebibytes("VmRSS")
    made, model = made_of(data, rules=rules)
    run = acting(made, model, artefact=kept)
    spent = turns({"": run}, 5)[""]
    how = "loaded" if run.run.loaded else "compiled"
    figures = {
        "facts": len(made.dataset.train),
        "room": str(made.game.widths),
        f"MiB before, {how}": before,
        f"peak MiB, {how}": mebibytes("VmHWM"),
        f"seconds until {how}": run.compile_seconds(),
        "microseconds a step": scaled(spent, 1e6 / STEPS, digits=1),
    }
    return figures, made, model, run


def elsewhere(data: str, rules: str, kept: Path) -> dict[str, Any]:
    """The same of a process of its own."""
    words = ["--memory-of", data, "--rules", rules, "--kept", str(kept)]
    whole = [sys.executable, "-m", "benchmarks.proofs.speed", *words]
    told = subprocess.run(whole, check=True, stdout=subprocess.PIPE, text=True, cwd=evidence.ROOT).stdout
    figures: dict[str, Any] = json.loads(told.splitlines()[-1])
    return figures


def memory_of(usual: dict[str, Any], folder: str, kept: Path) -> dict[str, Any]:
    """Peak memory with the compiler and without it: of the usual world and, with mined rules, of a large data set."""
    figures: dict[str, Any] = {USUAL: {**elsewhere(USUAL, "own", kept), **usual}}
    if folder:
        data, other = str(Path(folder).resolve()), kept.with_name("large")
        compiled = elsewhere(data, "mine", other)
        figures[Path(folder).name] = {**elsewhere(data, "mine", other), **compiled}
    else:
        words = "not measured: pass --large FOLDER, a folder with train.txt, valid.txt and test.txt, e.g. of wn18rr"
        figures["a large data set"] = words
    return figures


def options_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs.speed", description=__doc__)
    parser.add_argument("--large", default="", help="a folder of a large data set, for the memory (default: none)")
    for name in ("--memory-of", "--rules", "--kept"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def measured(large: str, kept: Path) -> dict[str, Any]:
    """All figures, printed as they come."""
    figures: dict[str, Any] = {"load before": [round(each, 2) for each in os.getloadavg()], "threads": 1}
    memory, made, model, usual = remembered(USUAL, "own", kept)
    sections: dict[str, Callable[[], object]] = {
        "rollout": lambda: rollouts(made, model, usual),
        "microseconds a step": lambda: by_part(made, model, usual),
        "evaluation": lambda: evaluation(made, model, learnt()),
        "growth": lambda: growth(made, model, usual),
        "memory": lambda: memory_of(memory, large, kept),
    }
    for name, measure in sections.items():
        figures[name] = measure()
        print(name, json.dumps(figures[name], indent=1), flush=True)
    return figures


def main() -> None:
    """Measures and writes."""
    options, start = options_of(), time.perf_counter()
    torch.set_num_threads(1)
    if options.memory_of:
        print(json.dumps(remembered(options.memory_of, options.rules, Path(options.kept))[0]))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        figures = measured(options.large, Path(folder) / "usual")
    path = evidence.write("prove_speed", seconds=time.perf_counter() - start, figures=figures)
    picture(figures, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
