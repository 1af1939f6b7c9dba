"""PPO on CartPole-v1 with purestep. Prints one line of JSON, as the peers' scripts do.

Compilation is always cold, with the compiler's caches in a new folder; with --cache a second process then finds them, and
the compiled program itself, there. The timed run begins with the parameters' initialisation and makes every step anew.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from purestep.runtime.compile import Program
    from purestep.runtime.train import Trainer

STARTED = time.perf_counter()
PACKAGES = ("purestep", "torch")
EPISODES = 16
DEFAULTS = {"envs": 4, "horizon": 128, "steps": 500_000, "seed": 0, "seeds": 1, "threads": 1}


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    about = {
        "envs": "worlds side by side",
        "horizon": "steps in each from one update to the next",
        "steps": "environment steps of each seed, rounded up to whole chunks of iterations",
        "seed": "of the first run",
        "seeds": "runs in one program; `steps` and `steps_per_second` in the report count all of them",
        "threads": "of PyTorch while it runs; compilation may use every core",
    }
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.parts.purestep_ppo",
        description="PPO on CartPole-v1 with purestep; prints one line of JSON",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=about[name])
    parser.add_argument("--cache", help="also measure a warm compilation, with the caches in a new folder in here")
    parser.add_argument("--compile-only", metavar="FOLDER", help="compile with these caches, print the seconds, stop")
    return parser.parse_args()


def build(arguments: argparse.Namespace) -> tuple["Trainer", "Tensor", int, int]:
    """The trainer, its key (or keys [S, 2]), the iterations of the run and those of one call of the program."""
    import torch

    import purestep as ps
    from purestep.runtime.population import population
    from purestep.runtime.runs.training_machine import plan

    torch.set_num_threads(arguments.threads)
    env = ps.make("cartpole")
    model = ps.flat(ps.actor_critic_mlp(env.observation_space, env.action_space, (64, 64), "tanh", product="auto"))
    algorithm = ps.ppo(
        model,
        ps.chain(ps.clip_by_global_norm(0.5), ps.adam(2.5e-4, eps=1e-5)),
        gamma=0.99,
        gae_lambda=0.95,
        clip=0.2,
        epochs=4,
        minibatches=4,
        value_coefficient=0.5,
        entropy_coefficient=0.01,
    )
    trainer = ps.trainer(env, model, algorithm, envs=arguments.envs, horizon=arguments.horizon)
    loop = plan(-(-arguments.steps // trainer.steps), 1)
    if arguments.seeds == 1:
        return trainer, ps.keys.key(arguments.seed), loop.iterations, loop.chunk
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    return population(trainer), torch.stack([ps.keys.key(seed) for seed in seeds]), loop.iterations, loop.chunk


def final_return(params: Any, seeds: int) -> float:
    """Mean return of sampled episodes of the trained policy, or of all the policies [S]."""
    import purestep as ps
    from purestep.runtime.evaluate import evaluate
    from purestep.runtime.population import each

    env = ps.make("cartpole")
    model = ps.flat(ps.actor_critic_mlp(env.observation_space, env.action_space, (64, 64)))
    play = evaluate(env, model, episodes=EPISODES, steps=500, action="sample")
    played = (play if seeds == 1 else each(play))(params, (), ps.keys.key(2**31))
    return float(played.returns.mean())


def compiled(trainer: "Trainer", key: "Tensor", chunk: int, artefact: Path) -> tuple["Program[Any, Any]", float]:
    """The program for `chunk` iterations, and what of its first call was no compilation."""
    import purestep as ps

    run = ps.program(ps.train(trainer, chunk), artefact=artefact)
    state = trainer.init(key)
    began = time.perf_counter()
    run(state)
    return run, time.perf_counter() - began - sum(run.seconds)


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compile, run once, evaluate; `folder` holds the caches and the compiled program.

    first_update_seconds: from the start of this process to the end of the program's first call.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    import purestep  # noqa: F401

    report: dict[str, Any] = {"import_seconds": time.perf_counter() - STARTED}
    trainer, key, iterations, chunk = build(arguments)
    run, first_call = compiled(trainer, key, chunk, folder / "program")
    report |= {"compile_seconds": sum(run.seconds), "first_call_seconds": first_call}
    report["first_update_seconds"] = time.perf_counter() - STARTED
    if arguments.compile_only:
        return {**report, "loaded": run.loaded}
    run.settle()
    began, began_cpu = time.perf_counter(), time.process_time()
    state = trainer.init(key)
    for _ in range(iterations // chunk):
        state, _ = run(state)
    report |= {"run_seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - began_cpu}
    report["steps"] = int(state.env_steps.sum())
    report["steps_per_second"] = report["steps"] / report["run_seconds"]
    report["final_return"] = final_return(state.learner.params, arguments.seeds)
    return report


def warm(folder: Path) -> dict[str, Any]:
    """Load the same program in a second process. Raises: RuntimeError when it compiled instead."""
    command = [sys.executable, "-m", "benchmarks.parts.purestep_ppo", *sys.argv[1:], "--compile-only", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    report = json.loads(done.stdout)
    if not report["loaded"]:
        raise RuntimeError("purestep_ppo: the second process did not find the compiled program")
    return {f"warm_{name}": report[name] for name in ("compile_seconds", "first_update_seconds")}


def main() -> None:
    arguments = parse()
    if arguments.compile_only:
        print(json.dumps(measure(arguments, Path(arguments.compile_only))))
        return
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    given = {name: getattr(arguments, name) for name in ("envs", "horizon", "seed", "seeds", "threads")}
    report = {"peer": "purestep", "versions": versions, **given}
    if arguments.cache:
        os.makedirs(arguments.cache, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.cache) as folder:
        report |= measure(arguments, Path(folder))
        if arguments.cache:
            report |= warm(Path(folder))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
