"""PPO on CartPole-v1 with TorchRL's collector, GAE, replay buffer and clipped loss. Prints one line of JSON.

Environments: gymnasium's SyncVectorEnv without its own auto-reset, in one GymWrapper. With a random policy it made
10,000, 57,000 and 118,000 steps/s with 4, 64 and 1024 environments; SerialEnv made 5,000, 7,000 and 7,000, and
same-step auto-reset two thirds of the chosen. The policy and the minibatch update are compiled, as TorchRL's own
recipes allow: a tenth to a quarter faster than eager (`--eager`), after half a minute of compilation or more.
"""

import argparse
import json
import logging
import math
import platform
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import ExplorationType, GymWrapper, set_exploration_type
from torchrl.modules import MLP, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

PACKAGES = ("torchrl", "tensordict", "torch", "gymnasium", "numpy")
EPISODES = 16


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="PPO on CartPole-v1 with TorchRL", epilog="--steps is rounded up")
    for name, default in {"envs": 4, "horizon": 128, "steps": 50_000, "seed": 0, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--seeds", type=int, default=1, choices=[1], help="one seed in a process")
    return parser.parse_args()


def environments(count: int, seed: int) -> GymWrapper:
    """`count` CartPoles as one batched environment."""
    makers = [lambda: gymnasium.make("CartPole-v1", disable_env_checker=True)] * count
    worlds = GymWrapper(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED), categorical_action_encoding=True)
    worlds.set_seed(seed)
    return worlds


def networks() -> tuple[ProbabilisticActor, ValueOperator]:
    """Actor and critic, two tanh layers of 64 each, nothing shared."""

    policy, value = (MLP(4, outputs, num_cells=[64, 64], activation_class=nn.Tanh) for outputs in (2, 1))
    logits = TensorDictModule(policy, in_keys=["observation"], out_keys=["logits"])
    actor = ProbabilisticActor(logits, in_keys=["logits"], distribution_class=Categorical, return_log_prob=True)
    return actor, ValueOperator(value, in_keys=["observation"])


def updater(actor: ProbabilisticActor, critic: ValueOperator, eager: bool) -> Callable[[TensorDictBase], None]:
    """One step of Adam on one minibatch."""
    scales = {"clip_epsilon": 0.2, "entropy_coeff": 0.01, "critic_coeff": 0.5}
    loss = ClipPPOLoss(actor, critic, **scales, loss_critic_type="l2", normalize_advantage=True)
    parameters = list(loss.parameters())
    optimizer = torch.optim.Adam(parameters, lr=2.5e-4, fused=eager)

    def update(minibatch: TensorDictBase) -> None:
        terms = loss(minibatch)
        total: Tensor = terms["loss_objective"] + terms["loss_critic"] + terms["loss_entropy"]
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()

    return update if eager else torch.compile(update)


def iterations(arguments: argparse.Namespace, actor: ProbabilisticActor, critic: ValueOperator) -> Iterator[None]:
    """Train for ever: each item is one rollout and its four epochs of four minibatches."""
    batch = arguments.envs * arguments.horizon
    collector = Collector(
        environments(arguments.envs, arguments.seed),
        actor,
        frames_per_batch=batch,
        exploration_type=ExplorationType.RANDOM,
        track_traj_ids=False,
        compile_policy=None if arguments.eager else True,
    )
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=False)
    storage, sampler = LazyTensorStorage(batch), SamplerWithoutReplacement()
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=batch // 4)
    update = updater(actor, critic, arguments.eager)
    for rollout in collector:
        with torch.no_grad():
            advantage(rollout)
        buffer.extend(rollout.reshape(-1))
        for _ in range(4):
            for minibatch in buffer:
                update(minibatch)
        yield


def final_return(actor: ProbabilisticActor, seed: int) -> float:
    """Mean return of the first episode, with sampled actions, of EPISODES environments."""
    worlds = environments(EPISODES, seed + 1_000)
    with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
        steps = worlds.rollout(500, actor, break_when_any_done=False)["next"]
    ended_before = steps["done"].int().cumsum(1) - steps["done"].int() > 0
    return float((steps["reward"] * ~ended_before).sum(1).mean())


def main() -> None:
    arguments = parse()
    logging.disable(logging.WARNING)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    Distribution.set_default_validate_args(False)
    actor, critic = networks()
    training = iterations(arguments, actor, critic)
    began = time.perf_counter()
    next(training), next(training)
    compile_seconds = time.perf_counter() - began
    count = math.ceil(arguments.steps / (arguments.envs * arguments.horizon))
    began, began_cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        next(training)
    run_seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    steps = count * arguments.envs * arguments.horizon
    report = {
        "peer": "torchrl",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        **{name: getattr(arguments, name) for name in ("envs", "horizon", "seed", "seeds", "threads")},
        "compile_seconds": compile_seconds,
        "run_seconds": run_seconds,
        "cpu_seconds": cpu_seconds,
        "steps": steps,
        "steps_per_second": steps / run_seconds,
        "final_return": final_return(actor, arguments.seed),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
