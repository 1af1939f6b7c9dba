"""Staleness of samples, the number of samples that may be started, and the test for samples too old to train on.

A token carries the version of the weights that sampled it, from 0 on; ABSENT means no version. With v the version being
trained, over the tokens of a sample that are in the mask and have a version,

    head staleness = v - the smallest        tail staleness = v - the largest        0 for a sample without any

Other entries, including versions in the padding, are ignored. `capacity` limits the number of samples and bounds their age on
average only, since a long one may start early and finish late; `runtime.async_rl.scheduler.machine` bounds the age of each.
Staleness refers to the update about to be made: measure it before the version is incremented.

Sources: Fu et al. 2025, arXiv:2505.24298 (AReaL), sections 4 and 5; its segment-wise decoupled PPO for `segment_wise`.
"""

import torch
from torch import Tensor

from ..core.errors import ChoiceError, DtypeError, message
from ..core.shapes import boolean, same_shape
from ..core.transcript.record import ABSENT


def capacity(
    *, running: int, accepted: int, version: int, batch: int, concurrency: int, staleness: int, filtered: int = 0
) -> int:
    """Return the number of samples that may be started now; less than 1 means none.

    min(max(1, c) - r, (n + v + 1) max(1, B) - (a - f + r))

    c is `concurrency`, r the number of running samples, a of all accepted so far, f of accepted ones that were later
    filtered out. Filtered samples enter no batch, so they are added back to the second term; the first one limits running
    samples only. Rejected samples were never accepted and are not counted. n is `staleness`, v `version`, B `batch`.
    Raises: ChoiceError for a staleness, version or number below 0, and for more filtered than accepted.

    >>> capacity(running=2, accepted=4, version=0, batch=4, concurrency=8, staleness=1)
    2
    >>> capacity(running=2, accepted=4, version=0, batch=4, concurrency=8, staleness=1, filtered=3)
    5
    """
    given = {"running": running, "accepted": accepted, "version": version, "staleness": staleness, "filtered": filtered}
    for name, value in given.items():
        if value < 0:
            raise ChoiceError(message(f"capacity: {name}", got=value, wanted="0 or more", remedy="count from 0"))
    if filtered > accepted:
        wanted, remedy = f"at most {accepted}, those accepted", "count a sample as accepted first"
        raise ChoiceError(message("capacity: filtered", got=filtered, wanted=wanted, remedy=remedy))
    budget = (staleness + version + 1) * max(1, batch)
    return min(max(1, concurrency) - running, budget - (accepted - filtered + running))


def head_version(version: Tensor, mask: Tensor) -> Tensor:
    """Return the oldest version among a sample's tokens: int, bool [*, L] -> int [*], ABSENT if there is none.

    Raises: ShapeError, DtypeError.

    >>> version, mask = torch.tensor([[3, 0, 9], [4, -1, 2]]), torch.tensor([[True, True, False], [False, True, False]])
    >>> head_version(version, mask)
    tensor([ 0, -1])
    """
    present = _present("head_version", version, mask)
    largest = torch.iinfo(version.dtype).max
    return torch.where(present.any(-1), torch.where(present, version, largest).amin(-1), ABSENT)


def tail_version(version: Tensor, mask: Tensor) -> Tensor:
    """Return the newest version among a sample's tokens: int, bool [*, L] -> int [*], ABSENT if there is none.

    Raises: ShapeError, DtypeError.

    >>> tail_version(torch.tensor([3, 0, 9]), torch.tensor([True, True, False]))
    tensor(3)
    """
    return torch.where(_present("tail_version", version, mask), version, ABSENT).amax(-1)


def head_staleness(version: Tensor, mask: Tensor, current: Tensor | int) -> Tensor:
    """Return the age of the oldest token, in updates: int, bool [*, L], a number or int [*] -> int [*].

    Raises: ShapeError, DtypeError.

    >>> head_staleness(torch.tensor([[3, 0], [-1, -1]]), torch.ones(2, 2, dtype=torch.bool), 4)
    tensor([4, 0])
    """
    return _since(head_version(version, mask), current)


def tail_staleness(version: Tensor, mask: Tensor, current: Tensor | int) -> Tensor:
    """Return the age of the newest token, in updates: int, bool [*, L], a number or int [*] -> int [*].

    Raises: ShapeError, DtypeError.

    >>> tail_staleness(torch.tensor([[3, 0], [-1, -1]]), torch.ones(2, 2, dtype=torch.bool), 4)
    tensor([1, 0])
    """
    return _since(tail_version(version, mask), current)


def standard(version: Tensor, mask: Tensor, recomputed: Tensor, current: Tensor | int, *, bound: int) -> Tensor:
    """Return False for every sample: the strategy without an age limit; see `segment_wise` for the arguments. bool [*].

    Staleness is limited by `capacity` only, and no finished sample is dropped. Raises: ShapeError, DtypeError.

    >>> standard(torch.tensor([[0, 0]]), torch.ones(1, 2, dtype=torch.bool), torch.tensor([-1]), 9, bound=1)
    tensor([False])
    """
    del current, bound
    _present("standard", version, mask)
    same_shape("standard", recomputed=recomputed, samples=version[..., 0])
    return torch.zeros_like(recomputed, dtype=torch.bool)


def segment_wise(version: Tensor, mask: Tensor, recomputed: Tensor, current: Tensor | int, *, bound: int) -> Tensor:
    """Return whether each sample is too old for segment-wise decoupled PPO: bool [*].

    tail staleness > 1                     where proximal log-probs were never recomputed
    head staleness > max(1, bound)         where they were

    Recomputing gives each segment a proximal policy one version after its behaviour's, so the tail limit applies only to
    samples that were never recomputed. Shapes: version int and mask bool [*, L], recomputed int [*], the version that
    recomputed it or ABSENT, current a number or int [*]. Raises: ShapeError, DtypeError.

    >>> version, mask = torch.tensor([[4, 4], [3, 3], [3, 3]]), torch.ones(3, 2, dtype=torch.bool)
    >>> segment_wise(version, mask, torch.tensor([-1, -1, 0]), 5, bound=2)
    tensor([False,  True, False])
    """
    same_shape("segment_wise", recomputed=recomputed, samples=version[..., 0])
    late = tail_staleness(version, mask, current) > 1
    return torch.where(recomputed >= 0, head_staleness(version, mask, current) > max(1, bound), late)


def proximal_version(version: Tensor, current: Tensor | int) -> Tensor:
    """Return the version of the weights for a token's proximal log-prob: int [*, L], a number or int [*] -> int [*, L].

    min(v_t + 1, v), the weights one update after those that sampled it, at most the current ones; ABSENT stays ABSENT.
    Source: arXiv:2505.24298, section 5, segment by segment.

    >>> proximal_version(torch.tensor([0, 2, 3, -1]), 3)
    tensor([ 1,  3,  3, -1])
    """
    newest = torch.zeros_like(version) + _each(current, version)
    return torch.where(version >= 0, torch.minimum(version + 1, newest), ABSENT)


def recompute_due(version: Tensor, mask: Tensor, current: Tensor | int) -> Tensor:
    """Return the tokens to recompute proximal log-probs of, under weights v before an update: int, bool [*, L] -> bool [*, L].

    v_t = v - 1

    Done before every update this keeps each token at `proximal_version`: older tokens already have theirs, the newest have
    none yet.
    Raises: ShapeError, DtypeError.

    >>> recompute_due(torch.tensor([0, 1, 2, -1]), torch.ones(4, dtype=torch.bool), 2)
    tensor([False,  True, False, False])
    """
    return _present("recompute_due", version, mask) & (version == _each(current, version) - 1)


def _each(current: Tensor | int, version: Tensor) -> Tensor | int:
    """Return `current`, with a token axis if it has one entry per sample."""
    return current[..., None] if isinstance(current, Tensor) and current.ndim == version.ndim - 1 else current


def _since(version: Tensor, current: Tensor | int) -> Tensor:
    return torch.where(version >= 0, current - version, 0)


def _present(where: str, version: Tensor, mask: Tensor) -> Tensor:
    """Return the tokens that are in the mask and have a version. Raises: ShapeError, DtypeError."""
    same_shape(where, version=version, mask=mask)
    boolean(where, mask=mask)
    if version.dtype != torch.int64:
        got, remedy = version.dtype, "convert it with .to(torch.int64)"
        raise DtypeError(message(f"{where}: version", got=got, wanted="torch.int64", remedy=remedy))
    return mask & (version >= 0)
