"""A task for actions of every space: repeat what the observation shows."""

from typing import Any

import torch
from torch import Tensor

from purestep.core.env import Env, time_limit
from purestep.core.spaces import Box, Discrete, Fields, MultiBinary, MultiDiscrete, Space, Tuple, contains, sample
from purestep.core.steps import TimeStep, first, following
from purestep.core.tree import leaves, tree_map

STEPS = 3  # of an episode
NESTED = Fields(
    (
        ("gear", MultiDiscrete((2, 3))),
        ("hands", Tuple((MultiBinary(2), Box(-1.0, 1.0, (1,))))),
        ("door", Fields((("open", Discrete(2)),))),
    )
)
SPACES: dict[str, Space] = {
    "numbers": MultiDiscrete((3, 2)),
    "bits": MultiBinary(3),
    "whole numbers": Box(0, 4, (2,), torch.int64),
    "positions": Tuple((Discrete(3), Box(-1.0, 1.0, (2,)))),
    "nested": NESTED,
}


def copying(space: Space, masked: bool = False) -> Env[Any, Any]:
    """Show a member of the space; the reward is the share of its numbers that the action repeats.

    Where `masked`, only the shown value of each number is legal.
    """

    def told(wanted: Any) -> Any:
        return {"features": wanted, "action_mask": masks(space, wanted)} if masked else wanted

    def reset(params: Any, key: Tensor) -> tuple[Any, TimeStep]:
        wanted = sample(space, key)
        return wanted, first(told(wanted))

    def step(params: Any, wanted: Any, action: Any, key: Tensor) -> tuple[Any, TimeStep]:
        close = tree_map(_closeness, action, wanted)
        reward = torch.stack([leaf.mean() for leaf in leaves(close)]).mean()
        reward = torch.where(contains(space, action), reward, -100.0)
        after = sample(space, key)
        return after, following(told(after), reward, torch.zeros_like(reward, dtype=torch.bool))

    seen = Fields((("features", space), ("action_mask", mask_space(space)))) if masked else space
    env: Env[Any, Any] = Env(params=(), reset=reset, step=step, observation_space=seen, action_space=space)
    return time_limit(env, STEPS)


def _closeness(action: Tensor, wanted: Tensor) -> Tensor:
    if wanted.is_floating_point():
        return 1.0 - (action - wanted).abs()
    return (action == wanted).to(torch.float32)


def masks(space: Space, wanted: Any) -> Any:
    if isinstance(space, Fields):
        return {name: masks(inner, wanted[name]) for name, inner in space.spaces if not isinstance(inner, Box)}
    if isinstance(space, Tuple):
        return tuple(masks(inner, one) for inner, one in zip(space.spaces, wanted, strict=True))
    if isinstance(space, Box):
        return ()
    sizes = (space.n,) if isinstance(space, Discrete) else getattr(space, "sizes", (2, 2))
    return torch.cat([torch.arange(n) == number for n, number in zip(sizes, wanted.reshape(-1).unbind(), strict=True)])


def mask_space(space: Space) -> Space:
    if isinstance(space, Fields):
        return Fields(tuple((name, mask_space(inner)) for name, inner in space.spaces if not isinstance(inner, Box)))
    if isinstance(space, Tuple):
        return Tuple(tuple(map(mask_space, space.spaces)))
    if isinstance(space, Box):
        return Tuple(())
    return MultiBinary(space.n if isinstance(space, Discrete) else sum(getattr(space, "sizes", (2, 2))))
