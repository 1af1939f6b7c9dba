"""PPO on CartPole-v1 with Stable-Baselines3. Prints one line of JSON.

DummyVecEnv, because a CartPole step costs less than a message to another process; no Monitor, no environment checker,
no logging, the CPU. One untimed iteration comes first; nothing is compiled.
"""

import argparse
import json
import platform
import time
from importlib.metadata import version

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

PACKAGES = ("stable-baselines3", "torch", "gymnasium", "numpy")
EPISODES = 16


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(
        description="PPO on CartPole-v1 with Stable-Baselines3", epilog="--steps is rounded up"
    )
    for name, default in {"envs": 4, "horizon": 128, "steps": 100_000, "seed": 0, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seeds", type=int, default=1, choices=[1], help="one seed in a process")
    return parser.parse_args()


def environments(count: int) -> DummyVecEnv:
    """`count` CartPoles stepped in a Python loop of this process."""
    return DummyVecEnv([lambda: gymnasium.make("CartPole-v1", disable_env_checker=True)] * count)


def build(arguments: argparse.Namespace) -> PPO:
    """The agent with the hyper-parameters that all sides share."""
    network = {"pi": [64, 64], "vf": [64, 64]}
    return PPO(
        "MlpPolicy",
        environments(arguments.envs),
        n_steps=arguments.horizon,
        batch_size=arguments.envs * arguments.horizon // 4,
        n_epochs=4,
        learning_rate=2.5e-4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        normalize_advantage=True,
        policy_kwargs={"activation_fn": torch.nn.Tanh, "net_arch": network},
        seed=arguments.seed,
        device="cpu",
    )


def final_return(agent: PPO, seed: int) -> float:
    """Mean return of the first episode, with sampled actions, of EPISODES environments."""
    worlds = environments(EPISODES)
    worlds.seed(seed + 1_000)
    observation = worlds.reset()
    returns = torch.zeros(EPISODES)
    alive = torch.ones(EPISODES, dtype=torch.bool)
    while alive.any():
        action, _ = agent.predict(observation, deterministic=False)
        observation, reward, ended, _ = worlds.step(action)
        returns += alive * torch.as_tensor(reward)
        alive &= ~torch.as_tensor(ended)
    return float(returns.mean())


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    agent = build(arguments)
    agent.learn(arguments.envs * arguments.horizon, log_interval=None)
    warm = agent.num_timesteps
    began, began_cpu = time.perf_counter(), time.process_time()
    agent.learn(arguments.steps, log_interval=None, reset_num_timesteps=False)
    run_seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    steps = agent.num_timesteps - warm
    report = {
        "peer": "stable-baselines3",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        **{name: getattr(arguments, name) for name in ("envs", "horizon", "seed", "seeds", "threads")},
        "compile_seconds": 0.0,
        "run_seconds": run_seconds,
        "cpu_seconds": cpu_seconds,
        "steps": steps,
        "steps_per_second": steps / run_seconds,
        "final_return": final_return(agent, arguments.seed),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
