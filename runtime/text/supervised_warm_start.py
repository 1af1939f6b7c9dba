"""A warm start: a new model is trained on noisy demonstrations of the possible actions.

Matrices between hidden layers follow Muon and all else AdamW, which brings a small model in two hundred steps to where
AdamW alone has not begun to read the question.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...algorithms.algorithm import TrainState
from ...algorithms.language.packing import trimmed
from ...algorithms.supervised import Supervised
from ...core import keys
from ...core.keys import Key
from ...core.language.codec import Codec, Ids
from ...core.language.protocol import Protocol
from ...core.language.requests import expand, requests, rollouts, task_keys
from ...core.language.task import Script
from ...core.language.types import Rollout, Transcript
from ...core.language.zorplex.demonstrate import demonstrate
from ...core.optim.interface import Optimizer
from ...core.optim.muon import by_label, muon
from ...core.optim.optimizers import adamw, chain, scale_by_schedule
from ...core.optim.schedules import linear, warmup
from ...core.record import take

WARM_UP = 0.1  # share of the steps in which the learning rate rises
EACH = 4  # demonstrations of one task
OUTER = ("embed", "wte", "wpe", "lm_head")  # parts of names of matrices that are not hidden ones


@frozen(kw_only=True)
class WarmStartSettings:
    """Settings of demonstrations."""

    rules: Protocol[Any, Any]
    codec: Codec
    spell: Callable[[str], Ids]
    script: Script
    skill: float  # the share of correct ones
    capacity: int
    max_new_tokens: int


def draw_demonstrations(settings: WarmStartSettings, key: Key, number: int) -> tuple[Rollout[Any], ...]:
    """Return demonstrations of tasks of the training stream, `EACH` of a task: other keys, other tasks."""
    tasks, samples, scripts = keys.split(key, 3)
    asked = requests(task_keys(tasks, "training", -(-number // EACH)), samples)
    each = [attempt for request in asked for attempt in expand(request, EACH, samples)][:number]
    how: dict[str, Any] = {"script": settings.script, "skill": settings.skill, "capacity": settings.capacity}
    how["max_new_tokens"] = settings.max_new_tokens
    return tuple(
        demonstrate(settings.rules, settings.codec, settings.spell, rollouts(one)[0], own, **how)
        for one, own in zip(each, keys.split(scripts, number), strict=True)
    )


def optimizer_label(name: str, leaf: Tensor) -> str:
    """Return the optimiser of a leaf of this name: "muon" for matrices between hidden layers, else "adamw".

    >>> import torch
    >>> names = "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"
    >>> tuple(optimizer_label(name, torch.zeros(2, 2)) for name in names)
    ('adamw', 'muon')
    """
    return "muon" if leaf.ndim == 2 and not any(word in name for word in OUTER) else "adamw"


def warm_optimizer(
    params: Any, steps: int, *, muon_rate: float, adamw_rate: float, precision: torch.dtype = torch.float32
) -> Optimizer:
    """Return the optimiser of a warm start: its rates rise for a tenth of the steps and fall to 0 at the last.

    Muon's orthogonal directions are computed in `precision`. Params that are no dict of tensors, such as those of adapters,
    follow AdamW alone.
    """
    rise = max(1, round(WARM_UP * steps))
    schedule = scale_by_schedule(warmup(rise, linear(1.0, 0.0, max(1, steps - rise))))
    if not all(isinstance(leaf, Tensor) for leaf in params.values()):
        return chain(adamw(adamw_rate), schedule)
    return chain(
        by_label(optimizer_label, {"muon": muon(muon_rate, precision=precision), "adamw": adamw(adamw_rate)}), schedule
    )


def draw_indices(key: Key, pool: int, number: int) -> list[int]:
    """Return `number` indices into a pool: one permutation of it after the other.

    >>> sorted(draw_indices(keys.key(0), 3, 6))
    [0, 0, 1, 1, 2, 2]
    """
    rounds = -(-number // pool)
    return [place for own in keys.split(key, rounds) for place in keys.permutation(own, pool).tolist()][:number]


def taught(
    learner: Supervised, state: TrainState, demonstrations: Transcript, batches: Sequence[Sequence[int]]
) -> tuple[TrainState, dict[str, float]]:
    """Return the state after a step on each batch (indices into the demonstrations [N]), and the learner's mean figures."""
    rows: list[dict[str, float]] = []
    for places in batches:
        some = take(demonstrations, list(places))
        state, metrics = learner.update(state, trimmed(some, int(some.length.max())))
        rows.append({name: float(value) for name, value in metrics.items()})
    return state, {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
