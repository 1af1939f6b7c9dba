"""Environments of PettingZoo's parallel interface as one environment of Gymnasium, for `gym_laws`."""

import copy
from collections.abc import Callable
from typing import Any


class Joint:
    """All agents as one: dicts of actions and observations, the sum of rewards, and the end when no agent is left.

    The observation of an agent that has left is its last one.
    """

    def __init__(self, env: Any) -> None:
        from gymnasium import spaces

        self.env, self.last = env, dict[str, Any]()
        self.observation_space = spaces.Dict({name: env.observation_space(name) for name in env.possible_agents})
        self.action_space = spaces.Dict({name: env.action_space(name) for name in env.possible_agents})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode of all agents."""
        self.last, infos = self.env.reset(seed=seed, options=options)
        return dict(self.last), infos

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take one step with the actions of the agents that are left."""
        living = {name: action[name] for name in self.env.agents}
        seen, rewards, terminated, truncated, infos = self.env.step(living)
        self.last = {**self.last, **seen}
        over = not self.env.agents
        cut = over and any(truncated.values())
        del terminated
        return dict(self.last), float(sum(rewards.values())), over and not cut, cut, infos

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def joint(make: Any, **options: Any) -> Callable[[], Joint]:
    """Return `make()` for a class, a function or an example of parallel environments, for `gym_laws`; it copies an example."""
    return lambda: Joint(make(**options) if callable(make) else copy.deepcopy(make))
