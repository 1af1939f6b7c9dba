"""How far our losses, gradients, advantages and whole updates are from those of TRL's GRPOTrainer, which is run for it.

The scripts of the peer (`benchmarks/peers/trl_losses.py` and `trl_step.py`) run TRL's own trainer and write what it was given
and what came out; the functions of test_trl.py and test_trl_step.py in `tests/unit/algorithms` compute the same of ours.
Losses and their gradients are in float64, whole updates with log-probs in float32, as TRL has them. Distances are relative:
of a loss to itself, of a gradient or a step of the weights to its norm. Writes results/trl_agreement.json.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from purestep.algorithms.language.learner import learner

from . import evidence
from .environments import environment

DOUBLE, SINGLE = 1e-6, 1e-5  # allowed of losses and gradients in float64, of updates whose log-probs are in float32
PEERS = evidence.ROOT / "benchmarks" / "peers"


def tests(name: str) -> ModuleType:
    """A module of the tests."""
    spec = importlib.util.spec_from_file_location(name, evidence.ROOT / "tests" / "unit" / "algorithms" / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(name)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def told(name: str, folder: Path) -> dict[str, Any]:
    """What TRL's trainer says now."""
    out = folder / f"{name}.json"
    subprocess.run([environment("trl"), PEERS / f"{name}.py", out], check=True, capture_output=True)
    said: dict[str, Any] = json.loads(out.read_text())
    return said


def off(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """|got - wanted| / |wanted|; 0 where both are 0."""
    distance, size = float((got - wanted).norm()), float(wanted.norm())
    return distance / size if size else distance


def losses(cases: ModuleType, said: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The largest distances over the micro-batches of each case."""
    found = {}
    for case, loss_of in cases.OURS.items():
        rows = []
        for given in said["losses"][case]["micro_batches"]:
            b = cases.batch(given, said["losses"][case]["settings"])
            loss = loss_of(b)
            (gradient,) = torch.autograd.grad(loss, b.log_prob)
            rows.append(
                (off(loss.detach(), cases.tensor(given["loss"])), off(gradient, cases.tensor(given["gradient"])))
            )
        found[case] = {"loss": max(one for one, _ in rows), "gradient": max(other for _, other in rows)}
    return found


def advantages(cases: ModuleType, said: dict[str, Any]) -> dict[str, float]:
    """The distance of the advantages of each case."""
    found = {}
    for case, ours in cases.ADVANTAGES.items():
        reward = cases.tensor(said["advantages"][case]["rewards"])
        group = torch.where(reward.isnan().any(0), -1, torch.arange(reward.shape[-1]) // said["group"])
        found[case] = off(ours(reward, group), cases.tensor(said["advantages"][case]["advantages"]))
    return found


def updates(cases: ModuleType, said: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Two steps of the optimiser: mean loss, mean norm of the gradients, and how far the weights moved."""
    cases.TOLD = said
    model = cases.model_of(said)
    found = {}
    for case, layout in cases.RUNS:
        step = said["steps"][case]
        given = step["settings"]
        algorithm = learner(model, cases.optimizer(given), cases.OBJECTIVES[case](given), proximal="recomputed")
        learned = cases.two_steps(algorithm, **cases.LAYOUTS[layout])
        after, before = cases.weights(step["weights"]), cases.weights(said["weights"])
        got = learned.state.params.policy
        means = {"loss": step["losses"], "gradient_norm": step["gradient_norms"]}
        found[f"{case}, {layout}"] = {
            **{
                name: off(torch.as_tensor(learned.figures[name]), torch.tensor(sum(two) / 2))
                for name, two in means.items()
            },
            "weights": max(off(got[name] - before[name], after[name] - before[name]) for name in after),
        }
    return found


def main() -> int:
    """Compares; 0 where all is as near as it should be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trl_agreement", description=__doc__)
    parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        said, steps = (told(name, Path(place)) for name in ("trl_losses", "trl_step"))
    figures: dict[str, Any] = {name: said[name] for name in ("trl", "transformers", "torch")}
    figures["losses and gradients"] = losses(tests("test_trl"), said)
    figures["advantages"] = advantages(tests("test_trl"), said)
    figures["two updates"] = updates(tests("test_trl_step"), steps)
    most = {
        "in float64": max(
            *(each for row in figures["losses and gradients"].values() for each in row.values()),
            *figures["advantages"].values(),
        ),
        "with log-probs in float32": max(each for row in figures["two updates"].values() for each in row.values()),
    }
    figures |= {"allowed": {"in float64": DOUBLE, "with log-probs in float32": SINGLE}, "largest": most}
    print(json.dumps(figures, indent=1))
    evidence.write("trl_agreement", seconds=time.perf_counter() - start, figures=figures)
    return 0 if most["in float64"] < DOUBLE and most["with log-probs in float32"] < SINGLE else 1


if __name__ == "__main__":
    sys.exit(main())
