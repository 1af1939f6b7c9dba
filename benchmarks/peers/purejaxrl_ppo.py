"""PPO on CartPole-v1 with PureJaxRL (JAX). Prints one line of JSON.

PureJaxRL is no package: `--checkout` names a folder with its repository. The whole training is one jitted function, lowered
and compiled ahead of time, then run once. Its network, losses and settings are its own (peers/README.md).
"""

import argparse
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = ("gymnax", "jax", "jaxlib", "flax", "optax", "distrax")


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="PPO on CartPole-v1 with PureJaxRL")
    for name, default in {"envs": 4, "horizon": 128, "steps": 500_000, "seed": 0, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--memory", type=int, default=0, help="1: a GRU, `ppo_rnn.py`")
    parser.add_argument("--checkout", type=Path, required=True, help="folder with PureJaxRL's repository")
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compile and run once. The return is that of the last 16 episodes to end, sampled actions, while it trains."""
    started = time.perf_counter()
    import jax

    sys.path.insert(0, str(arguments.checkout))
    brax = ModuleType("brax")  # the module of its wrappers imports it, for other worlds than CartPole
    brax.envs = None  # type: ignore[attr-defined]
    sys.modules.setdefault("brax", brax)
    if arguments.memory:
        sys.path.insert(0, str(arguments.checkout / "purejaxrl"))  # its wrappers are imported by their bare name
        from purejaxrl.ppo_rnn import make_train  # type: ignore[import-not-found, unused-ignore]
    else:
        from purejaxrl.ppo import make_train  # type: ignore[import-not-found, no-redef, unused-ignore]

    report: dict[str, Any] = {"import_seconds": time.perf_counter() - started}
    batch = arguments.envs * arguments.horizon
    steps = -(-arguments.steps // batch) * batch
    train = make_train(
        {
            "ENV_NAME": "CartPole-v1",
            "NUM_ENVS": arguments.envs,
            "NUM_STEPS": arguments.horizon,
            "TOTAL_TIMESTEPS": steps,
            "UPDATE_EPOCHS": 4,
            "NUM_MINIBATCHES": 4,
            "LR": 2.5e-4,
            "ANNEAL_LR": True,
            "GAMMA": 0.99,
            "GAE_LAMBDA": 0.95,
            "CLIP_EPS": 0.2,
            "ENT_COEF": 0.01,
            "VF_COEF": 0.5,
            "MAX_GRAD_NORM": 0.5,
            "ACTIVATION": "tanh",
        }
    )
    key = jax.random.key(arguments.seed)
    began = time.perf_counter()
    compiled = jax.jit(train).lower(key).compile()
    report["compile_seconds"] = time.perf_counter() - began
    began, began_cpu = time.perf_counter(), time.process_time()
    trained = jax.block_until_ready(compiled(key))
    report |= {"run_seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - began_cpu}
    metrics = trained["metric" if arguments.memory else "metrics"]
    ended, returns = metrics["returned_episode"], metrics["returned_episode_returns"]
    last = returns[ended][-16:]  # in the order of time
    return {
        **report,
        "steps": steps,
        "steps_per_second": steps / report["run_seconds"],
        "final_return": float(last.mean()),
    }


def main() -> None:
    arguments = parse()
    os.environ["NPROC"] = str(arguments.threads)  # size of XLA's pool; before jax is imported
    if arguments.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    given = {name: getattr(arguments, name) for name in ("envs", "horizon", "seed", "threads")}
    print(json.dumps({"peer": "purejaxrl", "versions": versions, **given, "seeds": 1, **measure(arguments)}))


if __name__ == "__main__":
    main()
