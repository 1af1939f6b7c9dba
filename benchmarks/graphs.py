"""One graph for each program, compiled once: a whole PPO run on CartPole, and every named env in one process.

Graphs, breaks and recompilations are counted by torch's compiler, which sees none of a program that is traced directly;
compilations by the program, from before the first call to after the last. What is counted can be seen: a function with a
graph break, one with another shape, and a settled program with another shape stand beside as controls. Prints a table and
writes benchmarks/results/graphs.json; exit code 1 for a break, a recompilation, or a difference from the uncompiled function.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from attrs import frozen
from torch import Tensor
from torch._dynamo.utils import clear_compilation_metrics, counters, get_compilation_metrics

from purestep.core import keys
from purestep.core.envs import ENVS
from purestep.core.errors import RecompileError
from purestep.core.tree import all_finite, leaves
from purestep.runtime.compile import Program, program
from purestep.runtime.recipes.classic import RECIPES
from purestep.runtime.recipes.pipeline import actor_critic_pipeline, lowered
from purestep.runtime.recipes.shared_settings import loop_of
from purestep.runtime.runs.arguments import changed
from purestep.runtime.train import train

from . import evidence

CALLS = 4
SMALL = {"envs": 4, "horizon": 16, "epochs": 2, "minibatches": 2}
# There all advantages are one number, so that normalising them divides rounding by rounding: nothing that could be compared.
UNLIKE: Mapping[str, Mapping[str, Any]] = {"probe_constant": {"advantages": "none"}}
TOLERANCE = 1e-5  # of one iteration, per number: |compiled - eager| / (1 + |eager|)


@frozen
class Seen:
    """What the compiler has counted since `forget`."""

    graphs: int  # captured, none where a program is traced directly
    lowered: int  # of them turned into code
    compilations: int  # noted; a program's are two, of its graph and of its code
    recompilations: int  # of them with a guard that failed
    breaks: int


def forget() -> None:
    """Sets the compiler's counts to 0."""
    counters.clear()
    clear_compilation_metrics()


def seen() -> Seen:
    """The compiler's counts."""
    rows = get_compilation_metrics()
    return Seen(
        graphs=counters["stats"]["unique_graphs"],
        lowered=counters["aot_autograd"]["total"],
        compilations=len(rows),
        recompilations=sum(bool(row.recompile_reason) for row in rows),
        breaks=sum(counters["graph_break"].values()),
    )


def whole_run(steps: int) -> dict[str, Any]:
    """The recipe's own run of PPO on CartPole, with its defaults, settled after the first chunk."""
    arguments = changed(RECIPES["ppo"].defaults(), {"steps": steps})
    pipeline, loop = actor_critic_pipeline(arguments), loop_of(arguments.experience, arguments.process)
    trainer = pipeline.trainer
    torch.set_num_threads(arguments.process.threads)
    begun = trainer.init(keys.key(arguments.experience.seed))
    run = compiled(lowered("ppo", arguments, pipeline, loop, begun))
    forget()
    began = time.perf_counter()
    state, metrics = run(begun)
    run.settle()
    warm, warmed = seen(), time.perf_counter()
    for _ in range(loop.iterations // loop.chunk - 1):
        state, metrics = run(state)
    after, returns = seen(), metrics["return_sum"].sum() / metrics["episodes"].sum().clamp(min=1.0)
    return {
        "steps": int(state.env_steps),
        "calls": loop.iterations // loop.chunk,
        "warm_up_seconds": round(warmed - began, 1),
        "seconds_after": round(time.perf_counter() - warmed, 1),
        "last_return": round(float(returns), 1),
        "compilations": len(run.seconds),
        "warm": attrs.asdict(warm),
        "end": attrs.asdict(after),
        "kept": len(run.seconds) == 1 and after == warm and warm.graphs <= 1 and not warm.breaks,
    }


def compiled(run: object) -> Program[Any, Any]:
    """The program, without the form of it that an earlier process may have kept: here it must compile."""
    assert isinstance(run, Program)
    run.artefact = None
    return run


def one_env(name: str) -> dict[str, Any]:
    """A small PPO of the recipe, an iteration a call; each call is compared with the same one uncompiled."""
    arguments = changed(RECIPES["ppo"].defaults(name), {**SMALL, **UNLIKE.get(name, {})})
    trainer = actor_critic_pipeline(arguments).trainer
    eager = train(trainer, 1)
    run = program(train(trainer, 1), name=name)
    forget()
    state, off, same, finite, moved = trainer.init(keys.key(0)), 0.0, True, True, 0.0
    for _ in range(CALLS):
        before, (state, metrics) = state, run(state)
        run.settle()
        got, wanted = (state, metrics), eager(before)
        same = same and exact(got, wanted)
        off, moved = max(off, apart(got, wanted)), max(moved, apart(state.learner.params, before.learner.params))
        finite = finite and bool(all_finite((got, wanted)))
    count = seen()
    once = len(run.seconds) == 1 and count.graphs <= 1 and not (count.breaks or count.recompilations)
    return {
        "calls": CALLS,
        "compilations": len(run.seconds),
        "compile_seconds": round(sum(run.seconds), 1),
        **{name: value for name, value in attrs.asdict(count).items() if name != "compilations"},
        "finite": finite,
        "integers_equal": same,
        "off": off,
        "moved": moved,
        "kept": once and finite and same and off <= TOLERANCE < moved,
    }


def exact(got: Any, wanted: Any) -> bool:
    """Whether the leaves that are no floating-point numbers are the same: keys, counters, flags."""
    pairs = zip(leaves(got), leaves(wanted), strict=True)
    return all(torch.equal(one, other) for one, other in pairs if not one.is_floating_point())


def apart(got: Any, wanted: Any) -> float:
    """The largest |got - wanted| / (1 + |wanted|) of the floating-point leaves.

    >>> apart({"x": torch.tensor([1.0, 3.5])}, {"x": torch.tensor([1.0, 3.0])})
    0.125
    """
    pairs = zip(leaves(got), leaves(wanted), strict=True)
    return max(_off(one, other) for one, other in pairs if one.is_floating_point())


def _off(got: Tensor, wanted: Tensor) -> float:
    return float(((got - wanted).abs() / (1.0 + wanted.abs())).max()) if got.numel() else 0.0


def controls() -> dict[str, Any]:
    """What must be seen: a graph break, a recompilation, and a settled program that is given another shape."""
    forget()
    torch.compile(_broken, backend="eager", dynamic=False)(torch.ones(2))
    broken = seen()
    forget()
    again = torch.compile(_twice, backend="eager", dynamic=False)
    for length in (2, 3):
        again(torch.ones(length))
    repeated, run = seen(), program(_twice, name="twice")
    run(torch.ones(2))
    run.settle()
    forget()
    refused = refusal(lambda: run(torch.ones(3)))
    return {
        "break": attrs.asdict(broken),
        "recompilation": attrs.asdict(repeated),
        "refusal": refused,
        "kept": broken.breaks == 1
        and (repeated.graphs, repeated.recompilations) == (2, 1)
        and bool(refused)
        and seen().compilations == 0,
    }


def refusal(call: Callable[[], object]) -> str:
    """What a settled program says of the call, empty if it takes it."""
    try:
        call()
    except RecompileError as error:
        return str(error)
    return ""


def _broken(x: Tensor) -> Tensor:
    x = x + 1.0
    torch._dynamo.graph_break()
    return x * 2.0


def _twice(x: Tensor) -> Tensor:
    return x * 2.0


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graphs", description=__doc__)
    parser.add_argument("--steps", type=int, default=500_000, help="of the whole run (default: 500000)")
    names = list(ENVS)
    parser.add_argument("--envs", nargs="*", choices=names, default=names, help="the small programs (default: all)")
    return parser.parse_args(words)


def main() -> int:
    given, began = parse(), time.perf_counter()
    torch.set_num_threads(1)
    checked = controls()
    print(f"controls: {'seen' if checked['kept'] else 'NOT SEEN'}; {checked['refusal']}", flush=True)
    run = whole_run(given.steps)
    print(
        f"PPO on CartPole, {run['steps']:,} steps in {run['calls']} calls: {run['end']['breaks']} breaks,"
        f" {run['end']['compilations'] - run['warm']['compilations']} compilations after the first call"
        f" {'' if run['kept'] else 'FAILED'}",
        flush=True,
    )
    columns = ("calls", "compilations", "graphs", "recompilations", "breaks", "compile_seconds")
    print(f"{'env':26}" + "".join(f"{name:>17}" for name in columns) + f"{'off':>12}{'moved':>12}")
    envs = {}
    for name in given.envs:
        envs[name] = row = one_env(name)
        numbers = "".join(f"{row[column]:17}" for column in columns) + f"{row['off']:12.1e}{row['moved']:12.1e}"
        print(f"{name:26}{numbers} {'' if row['kept'] else 'FAILED'}", flush=True)
    kept = all(part["kept"] for part in (checked, run, *envs.values()))
    figures = {
        "kept": kept,
        "controls": checked,
        "whole_run": run,
        "envs": envs,
        "envs_kept": sum(row["kept"] for row in envs.values()),
        "tolerance": TOLERANCE,
    }
    evidence.write("graphs", seconds=time.perf_counter() - began, figures=figures)
    print("kept" if kept else "FAILED")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
