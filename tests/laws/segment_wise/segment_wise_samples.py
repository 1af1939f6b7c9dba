"""Simulated samples: the results of rollouts, and functions that read their fields.

A token's score depends on its place and the version alone, in numbers that floats represent exactly, so that a proximal
log-prob identifies its weights.
"""

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict

from purestep.runtime.effects import segment_wise
from purestep.runtime.effects.segment_wise.samples import MARK, PROXIMAL


def score(place: int, version: int) -> float:
    """The log-prob of the token at a place under a version.

    >>> score(3, 2)
    -2.1875
    """
    return -float(version) - place / 16


def columns(flight: Mapping[str, Any]) -> TensorDict:
    """A rollout that has ended, as a batch of one sequence."""
    ids, blank = torch.tensor([flight["input_ids"]]), len(flight["input_ids"]) - len(flight["output_version"])
    sample = {
        "input_ids": ids,
        "loss_mask": (torch.arange(ids.shape[1]) >= blank)[None],
        "versions": torch.tensor([[-1] * blank + flight["output_version"]]),
        PROXIMAL: torch.tensor([[0.0] * blank + flight[PROXIMAL]]),
    }
    if MARK in flight:
        sample[MARK] = torch.tensor([flight[MARK]])
    return TensorDict(sample, batch_size=[1])


def tokens(sample: Any) -> list[tuple[int, int, float]]:
    """Place, version and proximal log-prob of each token that was sampled."""
    if isinstance(sample, dict):
        places = range(len(sample["input_ids"]) - len(sample["output_version"]), len(sample["input_ids"]))
        return list(zip(places, sample["output_version"], sample[PROXIMAL], strict=True))
    found = zip(sample["versions"][0].tolist(), sample[PROXIMAL][0].tolist(), strict=True)
    return [(place, version, proximal) for place, (version, proximal) in enumerate(found) if version >= 0]


def number_of(sample: Any) -> int:
    """The number of the rollout that a sample belongs to."""
    return int(sample["input_ids"][0] if isinstance(sample, dict) else sample["input_ids"][0, 0])


def queued(queue: segment_wise.RolloutQueue) -> list[Any]:
    """The items of a queue; all of them are put back."""
    items = [queue.get_nowait() for _ in range(queue.qsize())]
    for item in items:
        queue.put_nowait(item)
    return items
