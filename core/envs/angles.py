"""Wrapping of angles."""

import math

import torch
from torch import Tensor


def wrap(angle: Tensor) -> Tensor:
    """Return the angle wrapped into [-pi, pi), a - 2 pi floor((a + pi) / (2 pi)): [*] -> [*]; unchanged if already inside.

    >>> wrap(torch.tensor([0.5, 4.0]))
    tensor([ 0.5000, -2.2832])
    """
    turns = torch.floor((angle + math.pi) * (0.5 / math.pi))
    return angle - (2.0 * math.pi) * turns
