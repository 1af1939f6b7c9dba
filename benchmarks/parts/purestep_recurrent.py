"""PPO with a memory on one of `memory_worlds`. Prints one line of JSON; the caches of the compiler are in a new folder."""

import argparse
import json
import os
import tempfile
import time
from typing import Any

STARTED = time.perf_counter()
EPISODES, CALLS = 100, 10
LEARNING: dict[str, dict[str, Any]] = {  # of PPO, by environment
    "cartpole": {"rate": 1e-3, "gamma": 0.99, "entropy_coefficient": 0.01},
    "pendulum": {"rate": 1e-3, "gamma": 0.9, "entropy_coefficient": 0.0, "epochs": 10},
    "recall": {"rate": 1e-3, "gamma": 0.99, "entropy_coefficient": 0.01},
    "whole_cartpole": {"rate": 2.5e-4, "gamma": 0.99, "entropy_coefficient": 0.01},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="PPO with a memory")
    add = parser.add_argument
    add("--world", required=True)
    add("--cell", default="gru")
    for name, default in {"envs": 4, "horizon": 128, "steps": 100_000, "size": 128, "seeds": 1, "threads": 1}.items():
        add(f"--{name}", type=int, default=default)
    add("--plain", type=int, default=0, help="1: no scaling of observations and rewards")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        print(json.dumps(measured(arguments)))


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """The report of a run."""
    import torch

    import purestep as ps
    from purestep.runtime.evaluate import evaluate
    from purestep.runtime.population import each, population

    from .memory_worlds import WORLDS

    torch.set_num_threads(arguments.threads)
    env, size = WORLDS[arguments.world](), arguments.size
    settings = dict(LEARNING[arguments.world])
    optimizer = ps.chain(ps.clip_by_global_norm(0.5), ps.adam(settings.pop("rate")))
    spaces = env.observation_space, env.action_space
    model = ps.recurrent_actor_critic(*spaces, (size,), cell=arguments.cell, size=size, product="auto")
    scales = None if arguments.plain else ps.running(gamma=settings["gamma"])
    one = ps.trainer(
        env,
        model,
        ps.ppo(model, optimizer, **settings),
        envs=arguments.envs,
        horizon=arguments.horizon,
        normalizer=scales,
    )
    seeds = torch.stack([ps.keys.key(seed) for seed in range(arguments.seeds)])
    trainer, key = (population(one), seeds) if arguments.seeds > 1 else (one, seeds[0])
    iterations = -(-arguments.steps // (one.steps * CALLS))
    run = ps.program(ps.train(trainer, iterations))
    run(trainer.init(key))
    first = time.perf_counter() - STARTED
    state, began = trainer.init(key), time.perf_counter()
    for _ in range(CALLS):
        state, _ = run(state)
    seconds = time.perf_counter() - began
    play = evaluate(env, model, episodes=EPISODES, steps=500, normalizer=scales)
    played = (each(play) if arguments.seeds > 1 else play)(state.learner.params, state.normalizer, ps.keys.key(2**31))
    steps = int(state.env_steps.sum())
    return {
        "compile_seconds": sum(run.seconds),
        "first_call_seconds": first,
        "steps": steps,
        "run_seconds": seconds,
        "steps_per_second": steps / seconds,
        "returns": played.returns.reshape(arguments.seeds, -1).mean(-1).tolist(),
    }


if __name__ == "__main__":
    main()
