"""CartPole of gymnax, stepped alone: random actions, auto-reset, one jitted scan. Prints one line of JSON."""

import argparse
import json
import math
import os
import platform
import time
from importlib.metadata import version
from typing import Any

PACKAGES = ("gymnax", "jax", "jaxlib")


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="Step CartPole-v1 of gymnax", epilog="--steps is rounded up")
    for name, default in {"envs": 64, "horizon": 128, "steps": 5_000_000, "seed": 0, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def measure(envs: int, horizon: int, calls: int, seed: int) -> dict[str, Any]:
    """Compile a scan of `horizon` steps, then call it `calls` times, handing the state on."""
    import gymnax
    import jax

    env, params = gymnax.make("CartPole-v1")
    step = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def one(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], tuple[Any, Any, Any]]:
        state, key = carry
        key, action_key, step_key = jax.random.split(key, 3)
        action = jax.random.randint(action_key, (envs,), 0, 2)
        observation, state, reward, done, _info = step(jax.random.split(step_key, envs), state, action, params)
        return (state, key), (observation, reward, done)

    def scan(state: Any, key: Any) -> Any:
        return jax.lax.scan(one, (state, key), None, horizon)

    key, reset_key = jax.random.split(jax.random.key(seed))
    _, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(reset_key, envs), params)
    began = time.perf_counter()
    compiled = jax.jit(scan).lower(state, key).compile()
    compile_seconds = time.perf_counter() - began
    (state, key), _ = jax.block_until_ready(compiled(state, key))

    began, began_cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        (state, key), steps = jax.block_until_ready(compiled(state, key))
    run_seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    taken = calls * steps[1].size
    return {
        "compile_seconds": compile_seconds,
        "run_seconds": run_seconds,
        "cpu_seconds": cpu_seconds,
        "steps": taken,
        "steps_per_second": taken / run_seconds,
    }


def main() -> None:
    arguments = parse()
    os.environ["NPROC"] = str(arguments.threads)
    if arguments.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    given = {name: getattr(arguments, name) for name in ("envs", "horizon", "seed", "threads")}
    calls = math.ceil(arguments.steps / (arguments.envs * arguments.horizon))
    report = measure(arguments.envs, arguments.horizon, calls, arguments.seed)
    print(json.dumps({"peer": "gymnax", "versions": versions, **given, **report}))


if __name__ == "__main__":
    main()
