"""The ranks that save and load together, as seen by one of them: an operation that fails on one fails on all."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed
from attrs import frozen

from ....core.errors import CheckpointError, message
from .atomic_files import lock
from .layout import first_error

T = TypeVar("T")
PLACE = r"^\[\S+\] "  # the location in torch's source where an error was raised


@frozen
class RankGroup:
    """Ranks 0 to size - 1. Rank 0 makes folders and manifests; each rank writes its own shards."""

    rank: int
    size: int
    handle: Any = ()  # torch.distributed's own, for objects and tensors on the CPU; () for a single process


ALONE = RankGroup(rank=0, size=1)


class LostError(CheckpointError):
    """Error for a rank that cannot be reached."""


def join_ranks(*, seconds: float = 600.0) -> RankGroup:
    """Return the group of all ranks of torch.distributed, with its own communicator; `ALONE` if that was never initialised.

    Every rank calls it, once. The communicator is gloo's whatever training uses, so that a thread can save during training.
    A rank that does not answer for `seconds` counts as lost.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return ALONE
    handle = torch.distributed.new_group(backend="gloo", timeout=timedelta(seconds=seconds))
    return RankGroup(torch.distributed.get_rank(), torch.distributed.get_world_size(), handle)


def gather_values(group: RankGroup, value: T) -> list[T]:
    """Return the values of all ranks, in order, on each. They are pickled. Raises: CheckpointError when a rank is lost."""
    if group.size == 1:
        return [value]
    values: list[Any] = [()] * group.size
    try:
        torch.distributed.all_gather_object(values, value, group=group.handle)
    except RuntimeError as cause:
        raise lost(cause) from cause
    return values


def lost(cause: RuntimeError) -> LostError:
    """Return the error for ranks that cannot be reached.

    >>> str(lost(RuntimeError("[/a/b.cc:5] Connection closed by peer")))
    'a rank is lost (Connection closed by peer), wanted all of them; start them again from the newest checkpoint'
    """
    got, remedy = f"lost ({re.sub(PLACE, '', _said(cause))})", "start them again from the newest checkpoint"
    return LostError(message("a rank", got=got, wanted="all of them", remedy=remedy))


def all_or_none(group: RankGroup, work: Callable[[], T]) -> T:
    """Return `work()` of this rank, after it has succeeded on every rank.

    Raises: its exception on this rank, or CheckpointError with that of another rank: on every rank, or on none.

    >>> all_or_none(ALONE, lambda: 7)
    7
    """
    try:
        value = work()
    except Exception as error:
        gather_values(group, _said(error))
        raise
    fault = first_error(gather_values(group, ""))
    if fault:
        raise CheckpointError(fault)
    return value


def together(group: RankGroup, work: Callable[[], T]) -> list[T]:
    """Return `work()` of each rank, on every rank. Raises: as `all_or_none`.

    >>> together(ALONE, lambda: 7)
    [7]
    """
    return gather_values(group, all_or_none(group, work))


def by_first(group: RankGroup, work: Callable[[], T]) -> T:
    """Return `work()` of rank 0, which alone runs it, on every rank. Raises: as `together`.

    >>> by_first(ALONE, lambda: "done")
    'done'
    """
    value: Any = together(group, work if group.rank == 0 else lambda: ())[0]
    return value  # type: ignore[no-any-return]


@contextmanager
def locked(run: Path, group: RankGroup) -> Iterator[None]:
    """Lock the run's folder, made if absent, until the block or the processes end, however they end.

    Raises, on every rank: CheckpointError, with the holder's process id, when another run holds it.
    """
    with ExitStack() as held:
        by_first(group, lambda: held.enter_context(lock(run)))
        yield


def _said(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
