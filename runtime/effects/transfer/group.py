"""One group of processes that receive what its first member broadcasts, made without the default group of torch.distributed.

A group belongs to a generation: when a member is lost it is broken for all, and another generation makes another group.
"""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from attrs import frozen
from torch import Tensor

from ....core.errors import ChoiceError, message
from ..weights_layout import WeightsError

DISTRIBUTED: Any = dist  # whose stores and groups are there, and not among what it lists as public
T = TypeVar("T")


class SilenceError(RuntimeError):
    """A store does not answer in time."""


@frozen
class Group:
    """The calls of one member; those of all members have to match."""

    backend: Any

    def broadcast(self, tensor: Tensor) -> None:
        """Everybody gets what the first member has."""
        how = DISTRIBUTED.BroadcastOptions()
        how.rootRank, how.rootTensor = 0, 0
        self.backend.broadcast([tensor], how).wait()

    def gather(self, tensor: Tensor) -> None:
        """Waits until everybody is here; the sum of all."""
        self.backend.allreduce([tensor], DISTRIBUTED.AllreduceOptions()).wait()


def formed(store: Any, generation: int, rank: int, size: int, *, backend: str, near: str, seconds: float) -> Group:
    """Meets the others of this generation. Raises: RuntimeError where they do not come within the seconds."""
    own = DISTRIBUTED.PrefixStore(f"group/{generation}", store)
    if backend == "nccl":
        options = DISTRIBUTED.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=seconds)
        return Group(DISTRIBUTED.ProcessGroupNCCL(own, rank, size, options))
    gloo = DISTRIBUTED.ProcessGroupGloo
    choices = gloo._Options()
    choices._timeout = timedelta(seconds=seconds)
    choices._devices = [gloo.create_device(hostname=near)]
    return Group(gloo(own, rank, size, choices))


def backend_of(tensors: list[Tensor]) -> str:
    """NCCL where all weights are on GPUs, else gloo."""
    on_gpus = bool(tensors) and all(leaf.is_cuda for leaf in tensors)
    return "nccl" if on_gpus and dist.is_nccl_available() else "gloo"


def store_at(host: str, port: int, *, master: bool, seconds: float) -> Any:
    """The store by which members meet; the first member serves it. Raises: WeightsError."""
    if not dist.is_available():
        raise ChoiceError(
            message("broadcast: torch.distributed", got="absent", wanted="built in", remedy="take the way 'tcp'")
        )
    limit = timedelta(seconds=seconds)
    try:
        return DISTRIBUTED.TCPStore(host, port, is_master=master, wait_for_workers=False, timeout=limit)
    except RuntimeError as cause:
        remedy = "name a free port" if master else "start the publisher, and see that this machine reaches it"
        got = f"not to be had ({first_line(cause)})"
        raise WeightsError(message(f"broadcast: {host}:{port}", got=got, wanted="a store", remedy=remedy)) from cause


def in_time(work: Callable[[], T], seconds: float) -> T:
    """What `work()` gives. Raises: SilenceError behind so many seconds, while the work goes on in a thread of its own.

    A client of torch's store waits without end for a host that is not reached any more, whatever time it was given.

    >>> in_time(lambda: 7, 5.0)
    7
    """
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name="purestep-store", daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError:
        raise SilenceError(f"its store says nothing for {seconds:g} s") from None


def near_to(host: str, port: int) -> str:
    """The address of this machine as that place sees it."""
    family = socket.getaddrinfo(host, port)[0][0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        found: str = probe.getsockname()[0]
    return found


def first_line(error: BaseException) -> str:
    """What an error says, in one line, without where in torch it was raised.

    >>> first_line(RuntimeError("[/a/b.cc:5] Connection closed by peer [::1]:7. This is"))
    'Connection closed by peer [::1]:7'
    """
    said = next(iter(str(error).splitlines()), "") or type(error).__name__
    return re.sub(r"^\[\S+\] ", "", said).split(". ")[0][:200]


@contextmanager
def broken(where: str, remedy: str) -> Iterator[None]:
    """Errors of a group or its store as WeightsError, in one line."""
    try:
        yield
    except WeightsError:
        raise
    except RuntimeError as cause:
        got = f"broken ({first_line(cause)})"
        raise WeightsError(message(where, got=got, wanted="all members", remedy=remedy)) from cause


def buckets(room: Tensor, size: int) -> Iterator[Tensor]:
    """Runs of at most so many bytes.

    >>> import torch
    >>> [len(part) for part in buckets(torch.zeros(5, dtype=torch.uint8), 2)]
    [2, 2, 1]
    """
    return (room[start : start + size] for start in range(0, room.numel(), size))
