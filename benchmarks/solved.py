"""What the recipes reach with their own defaults: many seeds of each as one program, 100 episodes of each final policy.

A seed begins as `purestep train RECIPE --env ENV --seed SEED` does and draws the same random numbers; rounding, which a
population shares out otherwise, lets the two drift apart. Its episodes are those of `purestep evaluate`. Prints a line for
each case; a run of all cases writes results/solved.json and .png. Ends with 1 where a seed stays below its case's target.
"""

import argparse
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen
from matplotlib.axes import Axes

from purestep.core import keys
from purestep.core.errors import NonFiniteError
from purestep.core.record import take
from purestep.runtime.compile import program
from purestep.runtime.effects.reporting.plot import COLOURS, FAINT, average, curve
from purestep.runtime.effects.reporting.progress import progress
from purestep.runtime.evaluate import Summary, summary
from purestep.runtime.machine.json_codec import encode
from purestep.runtime.population import population
from purestep.runtime.recipes.classic import RECIPES
from purestep.runtime.recipes.evaluate_policy import play_episodes
from purestep.runtime.recipes.pipeline import Pipeline, actor_critic_pipeline
from purestep.runtime.recipes.shared_settings import loop_of, run_steps
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.logging import RETURN
from purestep.runtime.runs.loop_state import iteration_rows
from purestep.runtime.train import RunState, train

from . import evidence
from .parts.pictures import look_of_curves, page, saved

EPISODES = 100  # for each seed
POPULATION = 80  # seeds in one program, of a run of many
POINTS = 100  # of a curve, each the mean of the iterations since the one before


@frozen
class Case:
    """What one recipe has to reach in one environment, on every seed."""

    recipe: str
    env: str
    target: float  # the least mean return
    seeds: int = 3


CASES: Mapping[str, Case] = {
    "ppo-cartpole": Case("ppo", "cartpole", 475.0, seeds=10),
    "ppo-acrobot": Case("ppo", "acrobot", -110.0),
    "ppo-pendulum": Case("ppo", "pendulum", -250.0),
    "a2c-cartpole": Case("a2c", "cartpole", 450.0),
    "reinforce-cartpole": Case("reinforce", "cartpole", 450.0),
    "dqn-cartpole": Case("dqn", "cartpole", 475.0, seeds=10),
    "dqn-acrobot": Case("dqn", "acrobot", -110.0, seeds=10),
    "td3-pendulum": Case("td3", "pendulum", -200.0, seeds=10),
    "sac-pendulum": Case("sac", "pendulum", -200.0, seeds=10),
    "ddpg-pendulum": Case("ddpg", "pendulum", -200.0, seeds=10),
}


@frozen
class Trained:
    """A population at the end of its training."""

    state: RunState  # [S, ...]
    rows: tuple[list[dict[str, float]], ...]  # of each member, one for each iteration
    compile_seconds: float
    train_seconds: float  # without compilation


@frozen
class Outcome:
    """What became of a case."""

    case: Case
    described: Mapping[str, Any]  # the recipe's arguments
    steps: int  # in the environment, of each seed
    scores: Mapping[int, Summary]  # by seed
    trained: Trained
    evaluate_seconds: float

    def reached(self) -> int:
        """How many seeds reached the target."""
        return sum(score.mean_return >= self.case.target for score in self.scores.values())

    def steps_per_second(self) -> float:
        """Of all seeds together."""
        return self.steps * len(self.scores) / self.trained.train_seconds

    def line(self, name: str) -> str:
        """It in one line."""
        returns = " ".join(f"{score.mean_return:.1f}" for score in self.scores.values())
        seconds = f"compile {self.trained.compile_seconds:.1f} s, train {self.trained.train_seconds:.1f} s"
        rate = f"{self.steps_per_second():,.0f} steps/s"
        verdict = f"{self.reached()} of {len(self.scores)} seeds reach {self.case.target:g}"
        return f"{name:18} {verdict}: {returns}; {seconds}, {rate}"


def standard_error(score: Summary) -> float:
    """Of the mean of independent episodes, from the deviation with divisor E.

    >>> standard_error(Summary(5, 2.0, 1.0, 1.0, 3.0, 5.0, 1.0))
    0.5
    """
    return score.return_deviation / math.sqrt(score.episodes - 1)


def trained(name: str, arguments: Any, pipeline: Pipeline, seeds: Sequence[int]) -> Trained:
    """All seeds of a pipeline as one program. Raises: NonFiniteError."""
    many, loop = population(pipeline.trainer), loop_of(arguments.experience, arguments.process)
    run = program(train(many, loop.chunk), name=name, backend=arguments.process.backend)
    state = many.init(torch.stack([keys.key(seed) for seed in seeds]))
    rows: tuple[list[dict[str, float]], ...] = tuple([] for _ in seeds)
    spent = 0.0
    with progress(run_steps(arguments) * len(seeds), show=(RETURN,)) as bar:
        for done in range(0, loop.iterations, loop.chunk):
            began = time.perf_counter()
            state, metrics = run(state)
            spent += time.perf_counter() - began
            run.settle()
            for member, seen in enumerate(rows):
                seen += iteration_rows({name: column[:, member] for name, column in metrics.items()}, done, many.steps)
            if not bool((metrics["finite"] == 1.0).all()):
                raise NonFiniteError(
                    f"{name}: NaN or infinite in parameters or rewards by iteration {done + loop.chunk}"
                )
            returns = [seen[-1][RETURN] for seen in rows if math.isfinite(seen[-1][RETURN])]
            mean = {RETURN: sum(returns) / len(returns)} if returns else {}
            bar({"steps": rows[0][-1]["steps"] * len(seeds), **mean})
    return Trained(state, rows, sum(run.seconds), spent - sum(run.seconds))


def outcome(name: str, first_seed: int, count: int = 0) -> Outcome:
    """Trains a case by its recipe's defaults and plays episodes with every seed's final policy; `count` replaces its seeds."""
    case = evolve(CASES[name], seeds=count or CASES[name].seeds)
    recipe = RECIPES[case.recipe]
    arguments = recipe.defaults(case.env)
    torch.set_num_threads(arguments.process.threads)
    pipeline = actor_critic_pipeline(arguments)
    seeds = range(first_seed, first_seed + case.seeds)
    ready = trained(name, arguments, pipeline, seeds)
    began = time.perf_counter()
    scores = {
        seed: summary(play_episodes(pipeline, take(ready.state, member), EPISODES, 0, "mode"))
        for member, seed in enumerate(seeds)
    }
    return Outcome(
        case, runs.run_record(recipe, arguments), run_steps(arguments), scores, ready, time.perf_counter() - began
    )


def figures(result: Outcome) -> dict[str, Any]:
    """A case as the results file holds it."""
    seeds = {
        str(seed): {
            "mean_return": round(score.mean_return, 2),
            "standard_error": round(standard_error(score), 2),
            "ended": score.ended,
            "reached": score.mean_return >= result.case.target,
        }
        for seed, score in result.scores.items()
    }
    return {
        "target": result.case.target,
        "reached": result.reached(),
        "wanted": len(result.scores),
        "environment_steps": result.steps,
        "compile_seconds": round(result.trained.compile_seconds, 1),
        "train_seconds": round(result.trained.train_seconds, 1),
        "evaluate_seconds": round(result.evaluate_seconds, 1),
        "steps_per_second": round(result.steps_per_second()),
        "seeds": seeds,
        "arguments": encode({name: value for name, value in result.described.items() if name != "seed"}),
    }


def picture(results: Mapping[str, Outcome], out: Path) -> Path:
    """Learning curves, a panel for each case: every seed, their mean in a band of one deviation, the target dashed."""
    columns = min(3, len(results))
    shape = -(-len(results) // columns), columns
    figure = page(4.2 * shape[1], 3.3 * shape[0])
    about = (
        "environment steps of each seed; thin: a seed, thick: their mean, band: one standard deviation, dashed: target"
    )
    figure.supxlabel(about, fontsize=9, color=FAINT)
    figure.supylabel("mean return of the episodes in training", fontsize=9, color=FAINT)
    for place, (name, result) in enumerate(results.items(), 1):
        panel(figure.add_subplot(*shape, place), name, result)
    return saved(figure, out)


def panel(axes: Axes, name: str, result: Outcome) -> None:
    """The curves of one case."""
    rows, colour = result.trained.rows, COLOURS[list(CASES).index(name) % len(COLOURS)]
    curves = [curve(member, "steps", RETURN, max(1, len(member) // POINTS)) for member in rows]
    grid, mean, deviation = average(curves)
    for xs, ys in curves:
        axes.plot(xs, ys, color=colour, linewidth=0.6, alpha=0.25)
    axes.fill_between(grid, mean - deviation, mean + deviation, color=colour, alpha=0.18, linewidth=0)
    axes.plot(grid, mean, color=colour, linewidth=2.0)
    axes.axhline(result.case.target, color=FAINT, linewidth=1.1, linestyle=(0, (5, 3)))
    title = f"{result.case.recipe} on {result.case.env}: {result.reached()} of {len(rows)} reach {result.case.target:g}"
    look_of_curves(axes, title, size=9.5)


def written(results: Mapping[str, Outcome], load: Sequence[float], seconds: float) -> None:
    """The results of a run of all cases, as a file and a picture."""
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "load_before": [round(x, 2) for x in load]}
    versions = {"python": platform.python_version(), "torch": version("torch")}
    cases = {name: figures(result) for name, result in results.items()}
    about = {"machine": machine, "versions": versions, "episodes": EPISODES, "cases": cases}
    path = evidence.write("solved", seconds=seconds, figures=about)
    picture(results, path.with_suffix(".png"))


def many(name: str, seeds: range, load: Sequence[float]) -> int:
    """Trains these seeds of a case in large populations and writes their returns; 0 when every seed reached the target."""
    began, scores = time.perf_counter(), dict[str, float]()
    for first in seeds[::POPULATION]:
        result = outcome(name, first, min(POPULATION, seeds.stop - first))
        scores |= {str(seed): round(score.mean_return, 2) for seed, score in result.scores.items()}
        print(result.line(name), flush=True)
    target, best = CASES[name].target, max(scores.values())
    short = {seed: score for seed, score in scores.items() if score < best}
    reached = sum(score >= target for score in scores.values())
    print(f"{reached} of {len(seeds)} seeds reach {target:g}, {len(seeds) - len(short)} {best:g}; the others: {short}")
    about = {
        "case": name,
        "target": target,
        "reached": reached,
        "of": len(seeds),
        "best": best,
        "below the best": short,
    }
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "load_before": [round(x, 2) for x in load]}
    rest = {"population": POPULATION, "episodes": EPISODES, "returns": scores}
    seconds = time.perf_counter() - began
    evidence.write("solved_seeds", seconds=seconds, figures={**about, "machine": machine, **rest})
    return 0 if reached == len(seeds) else 1


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solved", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), help="cases (default: all)")
    parser.add_argument("--first-seed", type=int, default=0, help="of each case (default: 0)")
    parser.add_argument(
        "--seeds",
        type=int,
        default=0,
        help=f"of the first case alone, {POPULATION} in a program, into solved_seeds.json",
    )
    return parser.parse_args(words)


def main() -> int:
    """Runs the cases one after the other, each compiled anew; 0 when every seed of each reached its target."""
    given, load, began = parse(), os.getloadavg(), time.perf_counter()
    results: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        if given.seeds:
            return many(given.only[0], range(given.first_seed, given.first_seed + given.seeds), load)
        for name in given.only:
            print(f"{name} ...", file=sys.stderr, flush=True)
            results[name] = outcome(name, given.first_seed)
            print(results[name].line(name), flush=True)
    if results.keys() == CASES.keys():
        written(results, load, time.perf_counter() - began)
    else:
        print("not written: a results file holds all cases of one commit, so leave out --only")
    return 0 if all(result.reached() == len(result.scores) for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
