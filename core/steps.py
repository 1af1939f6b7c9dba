"""The output of an environment (TimeStep), training data (Transition), and bootstrap masks at the end of episodes."""

from typing import Any

import torch
from torch import Tensor

from .record import record, replace, tensor
from .tree import leaves, tree_map

PyTree = Any


@record
class TimeStep:
    """The result of `reset` and `step`."""

    observation: PyTree  # [*, ...]  input of the policy; after auto-reset, of the new episode
    reward: Tensor = tensor("*", "float")  # of the last action; 0 at a reset
    terminated: Tensor = tensor("*", "bool")  # the episode terminated: no value beyond
    truncated: Tensor = tensor("*", "bool")  # the episode was cut: bootstrap from the value beyond
    next_observation: PyTree  # [*, ...]  after the last action, before any reset


@record
class Transition:
    """One step of one stream, complete for training. With a leading axis it is a Trajectory."""

    observation: PyTree  # [*, ...]  input of the policy
    action: PyTree  # [*, ...]  a tensor, or a tree of them
    reward: Tensor = tensor("*", "float")  # after the action
    terminated: Tensor = tensor("*", "bool")  # the episode terminated: no value beyond
    truncated: Tensor = tensor("*", "bool")  # the episode was cut: bootstrap from the value beyond
    next_observation: PyTree  # [*, ...]  after the action, before any reset
    behaviour_log_prob: Tensor = tensor("*", "float")  # of `action`, when it was taken


Trajectory = Transition  # [T, ...] or [T, B, ...]: time first


@record
class Remembered:
    """A trajectory of a policy with memory, and the memory that it was played from: what its algorithm learns from.

    Later memories are not stored: `apply_to_sequences` computes them again from the first, as the rollout did.
    """

    trajectory: Trajectory  # [T, B]
    memory: PyTree  # [B, ...]  before the first step
    fresh: PyTree  # [B, ...]  at the beginning of an episode


def first(observation: PyTree) -> TimeStep:
    """Return the TimeStep of a reset of one env: reward 0, both flags false, next_observation = observation.

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
    """Return the TimeStep after an action, before any reset: next_observation = observation.

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
    """Return `old` with the `observation` of the new episode that starts at this step.

    >>> told = restarted(first(torch.tensor(1)), torch.tensor(2))
    >>> told.observation, told.next_observation
    (tensor(2), tensor(1))
    """
    return replace(old, observation=observation)


def ended(terminated: Tensor, truncated: Tensor) -> Tensor:
    """Return whether the episode is over, for either reason: bool [*].

    >>> ended(torch.tensor([True, False, False]), torch.tensor([False, True, False]))
    tensor([ True,  True, False])
    """
    return terminated | truncated


def bootstrap_mask(terminated: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 1 where to bootstrap from the value of next_observation, 0 at a termination; a truncation bootstraps.

    >>> bootstrap_mask(torch.tensor([True, False]))
    tensor([0., 1.])
    """
    return (~terminated).to(dtype)


def trace_mask(terminated: Tensor, truncated: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 1 where the next row belongs to the same episode, 0 at a termination or truncation.

    >>> trace_mask(torch.tensor([True, False, False]), torch.tensor([False, True, False]))
    tensor([0., 0., 1.])
    """
    return (~ended(terminated, truncated)).to(dtype)
