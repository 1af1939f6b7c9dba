"""An algorithm of rejax (JAX) with settings given as JSON. Prints one line of JSON.

The whole training is one jitted function, compiled ahead of time, then run once; its evaluation inside of the loop is left out,
as in rejax_ppo.py. The final policies are evaluated afterwards as rejax does.
"""

import argparse
import json
import math
import os
import time
from importlib.metadata import version
from typing import Any

PACKAGES = ("rejax", "gymnax", "jax", "jaxlib", "flax", "optax", "distrax")
EPISODES = 100


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="one algorithm of rejax")
    parser.add_argument("--algorithm", required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--settings", required=True, help="JSON")
    for name in ("steps", "seeds", "threads"):
        parser.add_argument(f"--{name}", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    os.environ["NPROC"] = str(arguments.threads)
    if arguments.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import jax
    import rejax
    from rejax.evaluate import evaluate

    settings: dict[str, Any] = json.loads(arguments.settings)
    batch = settings["num_envs"] * settings.get("num_steps", 1)
    steps = math.ceil(arguments.steps / batch) * batch
    algorithm = rejax.get_algo(arguments.algorithm).create(
        env=arguments.env, total_timesteps=steps, eval_freq=steps, skip_initial_evaluation=True, **settings
    )
    algorithm = algorithm.replace(eval_callback=lambda algorithm, state, key: ())

    def train(key: Any) -> Any:
        return algorithm.train(key)[0]

    def returns(state: Any) -> Any:
        return evaluate(algorithm.make_act(state), state.rng, algorithm.env, algorithm.env_params, EPISODES)[1].mean()

    keys = jax.random.split(jax.random.key(0), arguments.seeds)
    function, given = (jax.vmap(train), keys) if arguments.seeds > 1 else (train, keys[0])
    began = time.perf_counter()
    compiled = jax.jit(function).lower(given).compile()
    report: dict[str, Any] = {"peer": "rejax", "versions": {name: version(name) for name in PACKAGES}}
    report["compile_seconds"] = time.perf_counter() - began
    began = time.perf_counter()
    states = jax.block_until_ready(compiled(given))
    report["run_seconds"] = time.perf_counter() - began
    report["steps"] = int(states.global_step.sum())
    report["steps_per_second"] = report["steps"] / report["run_seconds"]
    played = jax.jit(jax.vmap(returns) if arguments.seeds > 1 else returns)(states)
    report["returns"] = [float(one) for one in played.reshape(-1)]
    print(json.dumps(report))


if __name__ == "__main__":
    main()
