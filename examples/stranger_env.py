"""A world of one's own: written here from nothing, held against the laws, and solved by PPO.

    pytest examples/stranger_env.py          # the laws, one test each (needs the extra `properties`)
    python examples/stranger_env.py          # trains, prints the return before and after, draws it

A lander falls onto the moon. It can burn or drift, has fuel for eight seconds, and is paid for coming down softly.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from purestep.algorithms.ppo import ppo
from purestep.core import keys
from purestep.core.env import Env, time_limit
from purestep.core.keys import Key
from purestep.core.optim.optimizers import adam, chain, clip_by_global_norm
from purestep.core.policy import actor_critic_mlp, flat
from purestep.core.record import record, tensor
from purestep.core.spaces import Box, Discrete
from purestep.core.steps import TimeStep, first, following
from purestep.properties import check, env_laws
from purestep.runtime.effects.reporting.plot import learning_curve
from purestep.runtime.train import train, trainer

Row = dict[str, float]
Lower = Callable[[Callable[..., Any]], Callable[..., Any]]


@record
class Moon:
    """What vmap may vary: another moon, another engine."""

    gravity: Tensor = tensor("*", "float")
    engine: Tensor = tensor("*", "float")  # the acceleration while it burns


@record
class Lander:
    """A lander above the ground, in metres and seconds."""

    height: Tensor = tensor("*", "float")
    speed: Tensor = tensor("*", "float")  # upwards
    fuel: Tensor = tensor("*", "float")  # seconds of burning that are left


def lander() -> Env[Moon, Lander]:
    """Observation [3]: height, speed, fuel. Action: 0 drifts, 1 burns. Reward: 10 / (1 + |speed|) at touch-down."""

    def observe(state: Lander) -> Tensor:
        return torch.stack([state.height / 10.0, state.speed / 3.0, state.fuel / 8.0], -1)

    def reset(moon: Moon, key: Key) -> tuple[Lander, TimeStep]:
        height_key, speed_key = keys.split(key)
        height = 8.0 + 4.0 * keys.uniform(height_key)
        speed = -2.0 * keys.uniform(speed_key)
        state = Lander(height=height, speed=speed, fuel=torch.full_like(height, 8.0))
        return state, first(observe(state))

    def step(moon: Moon, state: Lander, action: Tensor, key: Key) -> tuple[Lander, TimeStep]:
        del key
        burns = (action == 1) & (state.fuel > 0.0)
        speed = state.speed + 0.1 * (torch.where(burns, moon.engine, 0.0) - moon.gravity)
        height = torch.clamp(state.height + 0.1 * speed, 0.0, 20.0)
        fuel = torch.where(burns, torch.clamp_min(state.fuel - 0.1, 0.0), state.fuel)
        landed = height <= 0.0
        moved = Lander(height=height, speed=speed, fuel=fuel)
        return moved, following(observe(moved), torch.where(landed, 10.0 / (1.0 + speed.abs()), 0.0), landed)

    moon = Moon(gravity=torch.tensor(1.6), engine=torch.tensor(2.6))
    return Env(params=moon, reset=reset, step=step, observation_space=Box(-9.0, 9.0, (3,)), action_space=Discrete(2))


test_lander = check(env_laws, lander())


def learn(iterations: int = 80, lower: Lower = lambda function: function) -> list[Row]:
    """PPO in 32 landers, 64 steps an iteration: a row for every fourth. `lower=program` compiles, which long runs pay for."""
    env = time_limit(lander(), 200)
    model = flat(actor_critic_mlp(env.observation_space, env.action_space))
    algorithm = ppo(model, chain(clip_by_global_norm(0.5), adam(1e-3)), gamma=0.995)
    run = trainer(env, model, algorithm, envs=32, horizon=64)
    four_more = lower(train(run, 4))
    state, rows = run.init(keys.key(0)), []
    for _ in range(iterations // 4):
        state, metrics = four_more(state)
        mean_return = metrics["return_sum"].sum() / metrics["episodes"].sum()
        rows.append({"steps": float(state.env_steps), "episode_return": float(mean_return)})
    return rows


def main(picture: Path = Path("runs/stranger_env.png")) -> dict[str, float]:
    """Trains, draws and tells."""
    rows = learn()
    before, after = rows[0]["episode_return"], rows[-1]["episode_return"]
    learning_curve([rows], picture, title="A lander of one's own, PPO")
    print(f"mean return {before:.1f} at first, {after:.1f} after {rows[-1]['steps']:,.0f} steps; see {picture}")
    return {"steps": rows[-1]["steps"], "return_before": before, "return_after": after}


if __name__ == "__main__":
    main()
