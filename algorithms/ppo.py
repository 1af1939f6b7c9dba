"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv:1707.06347)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core import keys
from ..core.keys import Key
from ..core.optim import Optimizer, apply_updates, global_norm
from ..core.policy import ActorCritic
from ..core.record import record, select, take, tensor
from ..core.scan import scan
from ..core.steps import Trajectory
from ..core.tree import tree_map
from .advantages import gae
from .algorithm import Algorithm, Metrics, TrainState
from .policy_losses import ppo_clip
from .value_losses import clipped, squared


@record
class Sample:
    """One row of a minibatch: what the loss reads of a transition."""

    observation: Any  # [*, ...]
    action: Tensor  # [*, ...]
    behaviour_log_prob: Tensor = tensor("*", "float")
    advantage: Tensor = tensor("*", "float")
    target: Tensor = tensor("*", "float")  # advantage + behaviour_value
    behaviour_value: Tensor = tensor("*", "float")  # V before the update
