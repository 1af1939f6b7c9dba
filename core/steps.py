"""What an environment tells (TimeStep), what is learned from (Transition), and what an ending means for values."""

from typing import Any

import torch
from torch import Tensor

from .record import record, replace, tensor
from .tree import leaves, tree_map

PyTree = Any


@record
class TimeStep:
    """What `reset` and `step` tell of the world."""

    observation: PyTree  # [*, ...]  what the policy sees now; after auto-reset, of the new episode
    reward: Tensor = tensor("*", "float")  # what the last action earned; 0 at a reset
    terminated: Tensor = tensor("*", "bool")  # the world ended; nothing lies beyond
    truncated: Tensor = tensor("*", "bool")  # only the watching ended; the value beyond counts
    next_observation: PyTree  # [*, ...]  what followed the last action, before any reset


@record
class Transition:
    """One step of one stream, learnable on its own. A leading axis makes it a Trajectory."""

    observation: PyTree  # [*, ...]  what the policy saw
    action: Tensor  # [*, ...]  what it did
    reward: Tensor = tensor("*", "float")  # what followed
    terminated: Tensor = tensor("*", "bool")  # the world ended; nothing lies beyond
    truncated: Tensor = tensor("*", "bool")  # only the watching ended; the value beyond counts
    next_observation: PyTree  # [*, ...]  what followed, before any reset
    behaviour_log_prob: Tensor = tensor("*", "float")  # of `action`, when it was taken


Trajectory = Transition  # [T, ...] or [T, B, ...]: time first


def first(observation: PyTree) -> TimeStep:
    """The TimeStep of a reset of one world: reward 0, both flags false, next_observation = observation.

    >>> first(torch.ones(3)).reward
    tensor(0.)
    """
    leaf = leaves(observation)[0]
    no = torch.zeros((), dtype=torch.bool, device=leaf.device)
    return TimeStep(
        observation=observation,
        reward=torch.zeros((), device=leaf.device),
        terminated=no,
        truncated=no.clone(),
        next_observation=tree_map(torch.clone, observation),
    )


def following(observation: PyTree, reward: Tensor, terminated: Tensor, truncated: Tensor | None = None) -> TimeStep:
    """The TimeStep after an action, before any reset: next_observation = observation.

    >>> told = following(torch.tensor([3]), torch.tensor(1.0), torch.tensor(True))
    >>> told.next_observation, told.terminated, told.truncated
    (tensor([3]), tensor(True), tensor(False))
    """
    return TimeStep(
        observation=observation,
        reward=reward,
        terminated=terminated,
        truncated=torch.zeros_like(terminated) if truncated is None else truncated,
        next_observation=tree_map(torch.clone, observation),
    )


def restarted(old: TimeStep, observation: PyTree) -> TimeStep:
    """`old`, seen from the episode that begins now: only `observation` is the new one's.

    >>> told = restarted(first(torch.tensor(1)), torch.tensor(2))
    >>> told.observation, told.next_observation
    (tensor(2), tensor(1))
    """
    return replace(old, observation=observation)


def ended(terminated: Tensor, truncated: Tensor) -> Tensor:
    """Whether the episode is over, for either reason: bool [*].

    >>> ended(torch.tensor([True, False, False]), torch.tensor([False, True, False]))
    tensor([ True,  True, False])
    """
    return terminated | truncated


def bootstrap_mask(terminated: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """1 where the value of next_observation counts, 0 where the world ended: a truncation alone does not stop it.

    >>> bootstrap_mask(torch.tensor([True, False]))
    tensor([0., 1.])
    """
    return (~terminated).to(dtype)


def trace_mask(terminated: Tensor, truncated: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """1 where the next row belongs to the same episode, 0 across an ending of either kind.

    >>> trace_mask(torch.tensor([True, False, False]), torch.tensor([False, True, False]))
    tensor([0., 0., 1.])
    """
    return (~ended(terminated, truncated)).to(dtype)
