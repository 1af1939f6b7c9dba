"""Two agents with different parts learn a game that pays only if both are right: MAPPO, the critic seeing both.

Run: `python examples/two_agents.py`, or `purestep train ppo --env examples/two_agents.py:GAME --critic all`.
"""

from typing import Any

import torch
from torch import Tensor

import purestep as ps
from purestep import keys

STEPS = 8


def reset(params: Tensor, key: Tensor) -> tuple[Tensor, ps.TimeStep]:
    """Give each agent a bit, which it alone sees."""
    bits = (keys.uniform(key, (2, 1)) > 0.5).to(torch.float32)
    return bits, ps.first(bits.clone())


def step(params: Tensor, bits: Tensor, action: Tensor, key: Tensor) -> tuple[Tensor, ps.TimeStep]:
    """Pay `params` to both if the first agent repeated its bit and the second inverted its own."""
    wanted = torch.stack([bits[0, 0], 1.0 - bits[1, 0]])
    after, _ = reset(params, key)
    return after, ps.following(after.clone(), params * (action == wanted).all(), torch.tensor(False))


GAME: ps.Env[Any, Any] = ps.time_limit(
    ps.Env(torch.tensor(1.0), reset, step, ps.Box(0.0, 1.0, (1,)), ps.Discrete(2), agents=2), STEPS
)


def main(iterations: int = 60) -> list[float]:
    """Train both agents; print and return the mean return of each over 100 episodes."""
    env = ps.agent_views(GAME, critic="all")
    model = ps.flat(ps.central_critic(ps.actor_critic_mlp, env.observation_space, env.action_space))
    trainer = ps.trainer(env, model, ps.ppo(model, ps.adam(1e-2), minibatches=2), envs=8, horizon=2 * STEPS)
    state, _ = ps.train(trainer, iterations)(trainer.init(keys.key(0)))
    returns = ps.evaluate(env, model, episodes=100, steps=STEPS)(state, keys.key(1)).returns
    means: list[float] = ps.by_agent(returns, 2).mean(0).tolist()
    print(
        f"mean return of {STEPS} steps: {means[0]:.2f} and {means[1]:.2f}; the best is {STEPS}, by chance {STEPS / 4}"
    )
    return means


if __name__ == "__main__":
    main()
