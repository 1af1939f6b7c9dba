"""The fields of a sample. A TensorDict has columns over all tokens of its sequences, prompts included:

    input_ids             int [*, L]
    loss_mask             bool or number [*, L]   which tokens were sampled
    versions              int [*, L]              of the weights that sampled each; below 0 for none
    proximal_logprobs_t   float [*, L]            initially the log-probs when they were sampled
    attention_mask        bool or number [*, L]   0 for padding; without it, there is none
    _recompute_version    int [*]                 the version that last recomputed proximal log-probs; below 0 or missing: none

A dict has lists: input_ids (prompt and all); output_version and proximal_logprobs_t, one entry for each of the N sampled
tokens; and _recompute_version, a number.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from tensordict import TensorDictBase
from torch import Tensor

from ....core.errors import StructureError, message
from ....core.transcript.record import ABSENT
from .interfaces import Sample

MARK = "_recompute_version"
PROXIMAL = "proximal_logprobs_t"


@frozen
class FinishedSample:
    """The versions of the weights that made a sample: all its tokens in one row."""

    version: Tensor  # int [N]
    mask: Tensor  # bool [N]  True for tokens that were sampled
    recomputed: Tensor  # int []  the version that recomputed proximal log-probs, or ABSENT


def is_sample(value: Any) -> bool:
    """Return whether this has the type of a sample.

    >>> is_sample({"input_ids": [1]}), is_sample([1])
    (True, False)
    """
    return isinstance(value, TensorDictBase | Mapping)


def finished_sample(sample: Sample) -> FinishedSample:
    """Return the versions of a sample's tokens. Raises: StructureError if they are missing or cannot be versions.

    >>> finished_sample({"output_version": [4, 5]}).version
    tensor([4, 5])
    """
    mark = sample.get(MARK, None)
    if not isinstance(sample, TensorDictBase):
        version = torch.tensor(_list(sample, "output_version"), dtype=torch.int64)
        return FinishedSample(version, torch.ones(len(version), dtype=torch.bool), _mark(mark))
    version, mask = column(sample, "versions"), column(sample, "loss_mask")
    if version.shape != mask.shape or version.is_floating_point() or not version.ndim:
        got, wanted = f"{list(version.shape)} {version.dtype}", f"{list(mask.shape)}, integers"
        raise StructureError(message("sample: versions", got=got, wanted=wanted, remedy="one for each token"))
    return FinishedSample(version.reshape(-1).to(torch.int64), mask.reshape(-1).bool(), _mark(mark))


def column(sample: TensorDictBase, name: str) -> Tensor:
    """Return a tensor of the sample. Raises: StructureError if there is none.

    >>> from tensordict import TensorDict
    >>> column(TensorDict({"versions": torch.tensor([0])}), "versions")
    tensor([0])
    """
    found = sample.get(name, None)
    if not isinstance(found, Tensor):
        got, wanted = f"among {sorted(map(str, sample.keys()))}", f"{name}, a tensor"
        raise StructureError(message("sample", got=got, wanted=wanted, remedy="let the workflow set it"))
    return found


def with_version(sample: Sample) -> Sample:
    """Return the sample; a TensorDict without a recompute version gets ABSENT, so that the samples of a batch can be stacked.

    >>> from tensordict import TensorDict
    >>> with_version(TensorDict({"versions": torch.tensor([[0, 0]])}, batch_size=[1]))[MARK]
    tensor([-1])
    """
    if isinstance(sample, TensorDictBase) and MARK not in sample:
        sample.set(MARK, torch.full(sample.batch_size, ABSENT, device=sample.device))
    return sample


def unlocked(sample: Sample) -> Sample:
    """Return the sample; for a TensorDict, another one of the same tensors, in which keys can be set.

    A TensorDict in shared memory, or mapped from a file, is locked, and so is one that a workflow locked itself.

    >>> from tensordict import TensorDict
    >>> locked = TensorDict({"versions": torch.tensor([[0]])}, batch_size=[1]).lock_()
    >>> with_version(unlocked(locked))[MARK], MARK in locked
    (tensor([-1]), False)
    """
    return sample.clone(recurse=False) if isinstance(sample, TensorDictBase) else sample


def finite_numbers(values: Any, count: int) -> list[float]:
    """Return the values as numbers. Raises: StructureError unless there are that many, all finite.

    >>> finite_numbers((0.5, -1), 2)
    [0.5, -1]
    """
    listed = list(values) if isinstance(values, Sequence) else values
    right = isinstance(listed, list) and all(isinstance(one, int | float) and math.isfinite(one) for one in listed)
    if not right or len(listed) != count:
        got, wanted = repr(values)[:80], f"{count} finite numbers"
        raise StructureError(
            message("log-probs", got=got, wanted=wanted, remedy="score the tokens from start_index on")
        )
    found: list[float] = listed
    return found


def patched(old: Sequence[float], new: Sequence[float], version: Sequence[int], current: int) -> list[float]:
    """Return the proximal log-probs, replaced for tokens of the version before the current one.

    >>> patched([0.9, 0.8, 0.7], [0.1, 0.2, 0.3], [0, 1, 2], 2)
    [0.9, 0.2, 0.7]
    """
    rows = zip(old, new, version, strict=True)
    return [fresh if token == current - 1 else before for before, fresh, token in rows]


def _list(sample: Mapping[str, Any], name: str) -> list[Any]:
    found = sample.get(name)
    if not isinstance(found, Sequence) or not all(type(one) is int for one in found):
        remedy = "one number for each token that was sampled"
        raise StructureError(message(f"sample: {name}", got=repr(found)[:80], wanted="a list of ints", remedy=remedy))
    return list(found)


def _mark(mark: Any) -> Tensor:
    """Return the recompute version, ABSENT for None; every number is a version, 0 included."""
    return torch.as_tensor(ABSENT if mark is None else mark, dtype=torch.int64).max()


def lists(sample: Mapping[str, Any]) -> tuple[list[int], list[int], list[float]]:
    """Return the ids, versions and proximal log-probs of a dict. Raises: StructureError if they are not valid.

    >>> lists({"input_ids": [7, 8], "output_version": [0], "proximal_logprobs_t": [-0.5]})
    ([7, 8], [0], [-0.5])
    """
    ids, version = _list(sample, "input_ids"), _list(sample, "output_version")
    proximal = finite_numbers(sample.get(PROXIMAL), len(version))
    if len(ids) < len(version):
        got, wanted = f"{len(version)} long", f"at most {len(ids)}, as input_ids"
        raise StructureError(message("sample: output_version", got=got, wanted=wanted, remedy="count sampled tokens"))
    return ids, version, proximal
