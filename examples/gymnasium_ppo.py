"""A Gymnasium env, trained by our PPO: the world stays Gymnasium's, the policy's noise and the update are pure steps.

    python examples/gymnasium_ppo.py         # needs the extra `gym`

Any env with Discrete or Box actions goes in the same way, and so does a vector env: `gymnasium_world` says which.
"""

from collections.abc import Callable
from typing import Any

import gymnasium

from purestep.algorithms.ppo import ppo
from purestep.core import keys
from purestep.core.optim.optimizers import adam, chain, clip_by_global_norm, scale_by_schedule
from purestep.core.optim.schedules import linear
from purestep.core.policy import actor_critic_mlp, flat
from purestep.runtime.compile import program
from purestep.runtime.effects.gymnasium.env import gymnasium_trainer, gymnasium_world

Row = dict[str, float]
Lower = Callable[[Callable[..., Any]], Callable[..., Any]]
EPOCHS, MINIBATCHES = 8, 4


def learn(iterations: int = 120, seed: int = 0, lower: Lower = program) -> list[Row]:
    """PPO in 8 CartPoles, 64 steps an iteration: a row for each iteration in which an episode ended."""
    with gymnasium_world(lambda: gymnasium.make("CartPole-v1"), 8) as world:
        model = flat(actor_critic_mlp(world.env.observation_space, world.env.action_space))
        decay = scale_by_schedule(linear(1.0, 0.0, iterations * EPOCHS * MINIBATCHES))
        optimizer = chain(clip_by_global_norm(0.5), adam(1e-3), decay)
        algorithm = ppo(
            model,
            optimizer,
            gamma=0.98,
            gae_lambda=0.9,
            epochs=EPOCHS,
            minibatches=MINIBATCHES,
            entropy_coefficient=0.001,
        )
        run = gymnasium_trainer(world, model, algorithm, horizon=64, lower=lower)
        state, rows = run.init(keys.key(seed)), []
        for _ in range(iterations):
            state, metrics = run.iterate(state)
            if metrics["episodes"] > 0:
                mean_return = metrics["return_sum"] / metrics["episodes"]
                rows.append({"steps": float(state.env_steps), "episode_return": float(mean_return)})
        return rows


def main() -> dict[str, float]:
    """Trains and tells."""
    rows = learn()
    before = rows[0]["episode_return"]
    last = [row["episode_return"] for row in rows[-10:]]
    after = sum(last) / len(last)
    print(f"mean return {before:.0f} at first, {after:.0f} in the last iterations of {rows[-1]['steps']:,.0f} steps")
    return {"steps": rows[-1]["steps"], "return_before": before, "return_after": after}


if __name__ == "__main__":
    main()
