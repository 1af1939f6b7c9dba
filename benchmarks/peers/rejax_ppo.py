"""PPO on CartPole-v1 with rejax (JAX). Prints one line of JSON.

The whole training is one jitted function, lowered and compiled ahead of time, then run once. rejax evaluates inside
its training loop; here the callback is replaced by one that does nothing and its period is the whole run, so no
evaluation is compiled or timed. The final policy is evaluated afterwards.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

PACKAGES = ("rejax", "gymnax", "jax", "jaxlib", "flax", "optax", "distrax")
EPISODES = 16


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="PPO on CartPole-v1 with rejax", epilog="--steps is rounded up")
    for name, default in {"envs": 4, "horizon": 128, "steps": 500_000, "seed": 0, "seeds": 1, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rates", type=int, default=0, help="learning rates of a sweep, each with every seed")
    parser.add_argument(
        "--lowest", type=float, default=1e-4, help="of the learning rates, which are evenly spaced logs"
    )
    parser.add_argument("--highest", type=float, default=1e-2)
    parser.add_argument("--cache", help="also measure a warm compilation, with JAX's cache in a new folder in here")
    parser.add_argument("--compile-only", metavar="FOLDER", help="compile with this cache, print the seconds, stop")
    return parser.parse_args()


def limit_threads(threads: int) -> None:
    """Size XLA's pool for running programs; call before jax is imported. Compilation still uses every core."""
    os.environ["NPROC"] = str(threads)
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"


def use_cache(folder: str) -> None:
    """Let JAX keep every compiled program in `folder`."""
    import jax

    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def build(arguments: argparse.Namespace) -> tuple[Any, Callable[[Any], Any], Any]:
    """The algorithm, its training function of one key (of a row of keys, of pairs of a rate and a key) and that input."""
    import jax
    import jax.numpy as jnp
    from rejax import PPO

    batch = arguments.envs * arguments.horizon
    steps = math.ceil(arguments.steps / batch) * batch
    algorithm = PPO.create(
        env="CartPole-v1",
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (64, 64)},
        num_envs=arguments.envs,
        num_steps=arguments.horizon,
        num_epochs=4,
        num_minibatches=4,
        learning_rate=2.5e-4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_eps=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda algorithm, state, key: ())

    def train(key: Any) -> Any:
        return algorithm.train(key)[0]

    key = jax.random.key(arguments.seed)
    if arguments.rates:
        rates = jnp.geomspace(arguments.lowest, arguments.highest, arguments.rates)
        keys = jnp.tile(jax.random.split(key, arguments.seeds), arguments.rates)
        pairs = jnp.repeat(rates, arguments.seeds), keys
        return algorithm, jax.vmap(lambda pair: algorithm.replace(learning_rate=pair[0]).train(pair[1])[0]), pairs
    if arguments.seeds == 1:
        return algorithm, train, key
    return algorithm, jax.vmap(train), jax.random.split(key, arguments.seeds)


def final_return(algorithm: Any, states: Any, arguments: argparse.Namespace) -> float:
    """Mean return of sampled episodes of the trained policy, of all the policies, or of those of the best learning rate."""
    import jax
    from rejax.evaluate import evaluate

    def returns(state: Any) -> Any:
        act = algorithm.make_act(state)
        return evaluate(act, state.rng, algorithm.env, algorithm.env_params, EPISODES)[1]

    if arguments.rates:
        means = jax.vmap(returns)(states).mean(-1).reshape(arguments.rates, arguments.seeds).mean(-1)
        return float(means.max())
    return float((returns if arguments.seeds == 1 else jax.vmap(returns))(states).mean())


def warm_compile_seconds(folder: str) -> float:
    """Compile the same program in a second process that finds it in the cache."""
    command = [sys.executable, *sys.argv, "--compile-only", folder]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["compile_seconds"])


def measure(arguments: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Compile, run once, evaluate. `folder` is a cache, or "" for none."""
    started = time.perf_counter()
    import jax
    import rejax  # noqa: F401

    report = {"import_seconds": time.perf_counter() - started}
    if folder:
        use_cache(folder)
    algorithm, train, key = build(arguments)
    began = time.perf_counter()
    compiled = jax.jit(train).lower(key).compile()
    report["compile_seconds"] = time.perf_counter() - began
    if arguments.compile_only:
        return report
    began, began_cpu = time.perf_counter(), time.process_time()
    states = jax.block_until_ready(compiled(key))
    report |= {"run_seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - began_cpu}
    report["steps"] = int(states.global_step.sum())
    report["steps_per_second"] = report["steps"] / report["run_seconds"]
    report["final_return"] = final_return(algorithm, states, arguments)
    return report


def main() -> None:
    arguments = parse()
    limit_threads(arguments.threads)
    if arguments.compile_only:
        print(json.dumps(measure(arguments, arguments.compile_only)))
        return
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    given = {name: getattr(arguments, name) for name in ("envs", "horizon", "seed", "seeds", "threads")}
    report = {"peer": "rejax", "versions": versions, **given}
    if arguments.cache:
        os.makedirs(arguments.cache, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=arguments.cache) as folder:
            report |= measure(arguments, folder)
            report["warm_compile_seconds"] = warm_compile_seconds(folder)
    else:
        report |= measure(arguments, "")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
