"""DQN, SAC or TD3 of Stable-Baselines3 with settings given as JSON, in one environment. Prints one line of JSON."""

import argparse
import json
import time
from importlib.metadata import version

import gymnasium
import stable_baselines3
import torch
from stable_baselines3.common.evaluation import evaluate_policy

PACKAGES = ("stable-baselines3", "torch", "gymnasium", "numpy")


def main() -> None:
    parser = argparse.ArgumentParser(description="one algorithm of Stable-Baselines3")
    for name in ("algorithm", "env", "settings"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("steps", "threads"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--rate", type=float, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    make = getattr(stable_baselines3, arguments.algorithm.upper())
    agent = make(
        "MlpPolicy",
        gymnasium.make(arguments.env, disable_env_checker=True),
        learning_rate=arguments.rate,
        gamma=0.99,
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
        device="cpu",
        **json.loads(arguments.settings),
    )
    began = time.perf_counter()
    agent.learn(arguments.steps)
    seconds = time.perf_counter() - began
    played, _ = evaluate_policy(
        agent, gymnasium.make(arguments.env, disable_env_checker=True), n_eval_episodes=20, warn=False
    )
    report = {
        "peer": "stable-baselines3",
        "versions": {name: version(name) for name in PACKAGES},
        "steps": arguments.steps,
        "run_seconds": seconds,
        "steps_per_second": arguments.steps / seconds,
        "returns": [float(played)],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
