"""Training on 2 and 3 ranks against one: GRPO on one recorded sequence of 50 batches, the loss of every update.

The batches were sampled once, by the parts of `purestep train zorplex` (world, tokenizer, warm start, sampler, GRPO), while the
policy learned; they and the weights it began with stand in benchmarks/recorded/ranks_agree.safetensors. `--record` makes that
file anew, nothing else does. `torchrun` starts worlds of 1, 2 and 3 ranks (gloo, CPU) that train a sharded copy on it, and a
run that moves between worlds of 2, 3 and 1 ranks beside one that never stops.

A loss that is a small difference of large terms has few digits in float32, whoever computes it, so that those worlds add the
same parts in float64. Beside them stand ranks that add as usual, against the trainer of one process, and how far that trainer
is from itself with other micro-batches. Writes results/ranks_agree.json; exit code 1 where losses are further apart than asked.
"""

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from purestep.runtime.effects.checkpoint.tensor_file import read_tensors, write_tensors

from .. import evidence
from ..parts.ranks_agree_side import BATCHES, SHAPE, SIZES, arguments, compact

RECORDED = evidence.ROOT / "benchmarks" / "recorded" / "ranks_agree.safetensors"
ASKED, AGAIN = 1e-5, 1e-6  # relative differences of a loss: of ranks in float32, of a run that moved
OTHER = 2048  # tokens of the other micro-batches of one process
MOVES = ((2, 0, 7), (3, 7, 13), (1, 13, 20))  # ranks, and the batches from the first up to the last


def record(path: Path) -> None:
    """Trains a small run of the recipe in this process and writes down what its trainer was given."""
    from purestep.runtime.runs.training_machine import TrainChunk
    from purestep.runtime.text.components import text_components
    from purestep.runtime.text.sampling import run_sampler
    from purestep.runtime.text.training_loop import TextTrainingLoop, held_at, learning_components, phases

    own, held = arguments(), dict[str, Any]()
    parts = text_components(own)
    algorithm, train = learning_components(own, parts)

    def trainer(state: Any, said: Any, key: Any) -> Any:
        number = sum(name.endswith(".token") for name in held)
        if not number:
            held.update({f"policy.{name}": value for name, value in state.params.policy.items()})
        held.update({f"batch.{number}.{name}": column for name, column in compact(said).items()})
        print(f"batch {number + 1} of {BATCHES}", flush=True)
        return train(state, said, key)

    with tempfile.TemporaryDirectory() as place:
        samples = run_sampler(Path(place), own, parts, print)
        world = TextTrainingLoop(
            run=Path(place),
            arguments=own,
            parts=parts,
            algorithm=algorithm,
            trainer=trainer,
            ask=samples.ask,
            complete=samples.complete,
            publish=lambda number, rows: None,
            before=lambda state: None,
            evaluate=lambda *given: {},
            notice=print,
            held=held_at(own, parts, algorithm, 0),
        )
        for _ in range(phases(own).warm + phases(own).steps):
            world.train(TrainChunk(iterations=1))
    config = parts.config
    shape = {"vocabulary": config.vocab_size, "width": config.hidden_size, "layers": config.num_hidden_layers}
    shape |= {"heads": config.num_attention_heads, "kv_heads": config.num_key_value_heads}
    shape |= {"inner": config.intermediate_size, "window": config.max_position_embeddings}
    held["shape"] = torch.tensor([shape[name] for name in SHAPE])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, held)


def trained(out: Path, recorded: Path, *words: object, ranks: int = 0) -> list[float]:
    """The losses of a run in processes of its own: by torchrun on so many ranks, or by one trainer without any."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m"] if ranks else []
    plain = [] if ranks else ["--plain"]
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-m", *launcher, "benchmarks.parts.ranks_agree_side", str(recorded), str(out), *plain]
    subprocess.run(
        [*command, *map(str, words)], check=True, cwd=evidence.ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    losses: list[float] = json.loads((out / "losses.json").read_text())
    return losses


def apart(losses: list[float], wanted: list[float]) -> dict[str, Any]:
    """How far losses are from others: the largest relative difference, and where."""
    if len(losses) != len(wanted) or not losses:
        raise RuntimeError(f"{len(losses)} updates, {len(wanted)} wanted")
    if not all(map(math.isfinite, (*losses, *wanted))):  # no number is greater than one that is none
        raise RuntimeError("a loss is not finite")
    each = [abs(a - b) / abs(b) if b else math.inf * (a != b) for a, b in zip(losses, wanted, strict=True)]
    worst = max(range(len(each)), key=each.__getitem__)
    return {
        "updates": len(each),
        "largest relative difference": each[worst],
        "largest difference": max(abs(a - b) for a, b in zip(losses, wanted, strict=True)),
        "at update": worst + 1,
        "where the loss was": wanted[worst],
        "bit-equal losses": sum(a == b for a, b in zip(losses, wanted, strict=True)),
    }


def moved(place: Path, recorded: Path, dtype: str) -> dict[str, Any]:
    """A run of 20 batches that moves between worlds against one on one rank that never stops."""
    still = trained(place / f"still-{dtype}", recorded, "--last", 20, "--dtype", dtype, ranks=1)
    losses: list[float] = []
    for ranks, first, last in MOVES:
        words = ("--first", first, "--last", last, "--dtype", dtype)
        losses = trained(place / f"moved-{dtype}", recorded, *words, ranks=ranks)
    return apart(losses, still)


def compared(recorded: Path) -> dict[str, Any]:
    """Runs the worlds and holds their losses against each other; gives all figures."""
    held = read_tensors(recorded)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)

        def run(where: str, *words: object, ranks: int = 0) -> list[float]:
            return trained(place / where, recorded, *words, ranks=ranks)

        one, alone = run("one", ranks=1), run("alone")
        rows = {f"{ranks} ranks": apart(run(str(ranks), ranks=ranks), one) for ranks in (2, 3)}
        usual = {f"{ranks} ranks": apart(run(f"usual{ranks}", "--usual", ranks=ranks), alone) for ranks in (2, 3)}
        usual["one process, other micro-batches"] = apart(run("other", "--budget", OTHER), alone)
        moves = {dtype: moved(place, recorded, dtype) for dtype in ("float32", "float64")}
    if len(one) < BATCHES:
        raise RuntimeError(f"{len(one)} updates of {BATCHES} batches")
    sizes = sorted(abs(loss) for loss in one)
    return {
        "wanted, relative": {"ranks": ASKED, "a run that moves": AGAIN},
        "reached": {
            "ranks": max(row["largest relative difference"] for row in rows.values()) < ASKED,
            "a run that moves": max(row["largest relative difference"] for row in moves.values()) < AGAIN,
        },
        "recorded": {
            "sha256": hashlib.sha256(recorded.read_bytes()).hexdigest(),
            "batches": BATCHES,
            "sequences": sum(len(held[f"batch.{number}.token"]) for number in range(BATCHES)),
            "tokens": sum(int(held[f"batch.{number}.length"].sum()) for number in range(BATCHES)),
            **SIZES,
        },
        "|loss|, smallest, median, largest": [sizes[0], sizes[len(sizes) // 2], sizes[-1]],
        "against one rank, float32": rows,
        "adding as usual, against the trainer of one process, float32": usual,
        "20 batches on 2, 3 and 1 ranks, against one rank that never stops": moves,
    }


def main() -> int:
    """Compares and writes; 0 where all losses are as near as is asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines.ranks_agree", description=__doc__)
    parser.add_argument("--record", action="store_true", help="sample the batches anew, and do no more")
    parser.add_argument("--recorded", type=Path, default=RECORDED, help="the file of batches")
    options = parser.parse_args()
    if options.record:
        record(options.recorded)
        print(f"written: {options.recorded.name}, {options.recorded.stat().st_size:,} bytes")
        return 0
    begin, load = time.perf_counter(), [round(x, 2) for x in os.getloadavg()]
    machine = {"cores": os.cpu_count(), "load_before": load, "torch": torch.__version__}
    figures = {**machine, **compared(options.recorded)}
    print(json.dumps(figures, indent=1))
    evidence.write("ranks_agree", seconds=time.perf_counter() - begin, figures=figures)
    return 0 if all(figures["reached"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
