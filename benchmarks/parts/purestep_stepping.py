"""CartPole of purestep, stepped alone: random actions, auto-reset, one compiled scan. Prints one line of JSON.

As in benchmarks/peers/gymnax_stepping.py every observation, reward and flag is kept, and the state goes from call to call.
"""

import argparse
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

PACKAGES = ("purestep", "torch")
DEFAULTS = {"envs": 64, "horizon": 128, "steps": 5_000_000, "seed": 0, "threads": 1}


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    about = {
        "envs": "worlds side by side",
        "horizon": "steps of each in one call of the program",
        "steps": "environment steps to time, rounded up to whole calls",
        "seed": "of worlds and actions",
        "threads": "of PyTorch",
    }
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.parts.purestep_stepping",
        description="Step CartPole-v1 of purestep; prints one line of JSON",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=about[name])
    return parser.parse_args()


def stepping(envs: int, horizon: int) -> tuple[Callable[[Any, "Tensor"], Any], Callable[["Tensor"], Any]]:
    """`(state, key) -> (state, key, what was seen)` for `horizon` steps, and the first state of a key."""
    import torch

    import purestep as ps
    from purestep.core.env import halves

    env = ps.batched(ps.auto_reset(ps.make("cartpole")), envs)
    parts = halves(env)

    def one(state: Any, drawn: tuple[Any, Any]) -> tuple[Any, Any]:
        state, told = parts.step(env.params, state, drawn[0], drawn[1])
        return state, (told.next_observation, told.reward, told.terminated, told.truncated)

    def run(state: Any, key: "Tensor") -> Any:
        action_key, env_key, key = ps.keys.split(key, 3)
        actions = ps.keys.randint(action_key, (horizon, envs), 0, 2)
        noise = torch.vmap(lambda k: parts.draw(env.params, k))(ps.keys.split(env_key, horizon))
        state, seen = ps.scan(one, state, (actions, noise))
        return state, key, seen

    return run, lambda key: env.reset(env.params, key)[0]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compile, call once, then time calls for the steps asked for."""
    import torch

    import purestep as ps

    torch.set_num_threads(arguments.threads)
    function, begin = stepping(arguments.envs, arguments.horizon)
    run = ps.program(function)
    reset_key, key = ps.keys.split(ps.keys.key(arguments.seed))
    state, key, seen = run(begin(reset_key), key)
    run.settle()
    calls = math.ceil(arguments.steps / (arguments.envs * arguments.horizon))
    began, began_cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        state, key, seen = run(state, key)
    run_seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    steps = calls * seen[1].numel()
    return {
        "compile_seconds": sum(run.seconds),
        "run_seconds": run_seconds,
        "cpu_seconds": cpu_seconds,
        "steps": steps,
        "steps_per_second": steps / run_seconds,
    }


def main() -> None:
    arguments = parse()
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        report = measure(arguments)
    print(json.dumps({"peer": "purestep", "versions": versions, **vars(arguments), **report}))


if __name__ == "__main__":
    main()
