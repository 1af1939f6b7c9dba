"""The process group of a training: its start, its collectives, and its end when a process is gone.

    with joined(timeout=60) as ranks:
        ...

Under `torchrun --nproc-per-node 8 program.py`, or any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, the
block is entered when all processes have joined. A program without a launcher is a group of one process.
"""

import contextlib
import gc
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from attrs import frozen
from torch import Tensor
from torch._C._distributed_c10d import HashStore, PrefixStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from ....core.errors import ChoiceError, PurestepError, StructureError, choose, message
from ....core.tree import tree_map
from ...distributed.reduce import tree_hash
from ..signals import end_at_once
from .launched import RankError as RankError
from .launched import launched as launched
from .launched import launcher_number

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
# Words of gloo, NCCL and the store in errors for a lost process, which have no class of their own.
GONE = re.compile(r"gloo|connection|timed? ?out|peer|broken pipe|socket|nccl|clients joined", re.IGNORECASE)


AGAIN = "start all of them again from the last checkpoint"
GRACE = 5.0  # seconds after its own time limit in which torch's store may still raise a more precise error
T = TypeVar("T")


class SilenceError(RuntimeError):
    """Error for a store that does not answer in time."""


@frozen(kw_only=True, eq=False)
class ProcessGroup:
    """This process in its process group."""

    rank: int  # its number, from 0 on
    size: int  # number of processes
    device: torch.device  # of its tensors
    mesh: DeviceMesh  # one-dimensional, of all processes, for sharded tensors
    timeout: float  # seconds after which a process that does not answer counts as gone
    store: Any = ()  # torch.distributed's, by which the processes have met


@contextlib.contextmanager
def join_processes(*, timeout: float = 600.0, device: str = "auto") -> Iterator[ProcessGroup]:
    """Join the launcher's process group in a block, which is entered when all processes are there; leave the group at its end.

    `device` is "cpu" (gloo), "cuda" (NCCL; each process takes that of its LOCAL_RANK) or "auto": "cuda" if there is one.
    Inside, a process that waits for another longer than `timeout` seconds gets an error. Raises: ChoiceError; RankError, in
    one line, if a process does not join or is gone later.
    """
    if not timeout > 0:
        raise ChoiceError(message("joined: timeout", got=timeout, wanted="seconds above 0", remedy="e.g. 600"))
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    backend = choose("joined: device", kind, BACKENDS)
    place = (
        torch.device("cuda", launcher_number("LOCAL_RANK", range(2**15), "0"))
        if kind == "cuda"
        else torch.device("cpu")
    )
    if kind == "cuda":
        torch.cuda.set_device(place)
    rank, size = launched()
    patience = timedelta(seconds=timeout)
    with one_line(rank, size, "while they met"):
        store = _met(rank, size, patience)
        own = PrefixStore("purestep-world", store)
        dist.init_process_group(backend, rank=rank, world_size=size, timeout=patience, store=own)
    meshes: list[DeviceMesh] = []
    try:
        with one_line(rank, size, "in training"):
            meshes.append(init_device_mesh(kind, (size,)))
            yield ProcessGroup(rank=rank, size=size, device=place, mesh=meshes[0], timeout=timeout, store=store)
    finally:
        with contextlib.suppress(RuntimeError):  # the group may be broken already
            dist.destroy_process_group()
        for mesh in meshes:  # a DTensor that is still referenced keeps its mesh, which would keep gloo's threads
            getattr(mesh, "_pg_registry", {}).clear()


def _met(rank: int, size: int, patience: timedelta) -> Any:
    """Return the group's store, once all processes are there, or after the time-out. Raises: RankError."""
    if not os.environ.get("WORLD_SIZE"):
        return HashStore()
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    another = "choose another MASTER_PORT, the same for all ranks"
    try:
        # With a time limit, since torch waits for ever for a server that accepts the connection and never answers.
        meeting = partial(next, rendezvous("env://", rank, size, timeout=patience))
        store, *_ = in_time(meeting, patience.total_seconds() + GRACE)
    except dist.DistNetworkError as cause:
        if "EADDRINUSE" not in str(cause):
            raise
        got = f"{os.environ['MASTER_PORT']}, which another program has taken"
        raise RankError(message("ranks: MASTER_PORT", got=got, wanted="a free port", remedy=another)) from None
    except SilenceError:
        got = f"without an answer from {place}, where something listens"
        remedy = f"see what rank 0 says, or {another}"
        raise RankError(message(f"ranks: rank {rank}", got=got, wanted="rank 0 there", remedy=remedy)) from None
    store.set_timeout(patience)
    return store


def in_time(work: Callable[[], T], seconds: float) -> T:
    """Return `work()`. Raises: SilenceError after so many seconds, while the work goes on in its own thread.

    A client of torch's store blocks for ever if its host cannot be reached any more, whatever time-out it was given.

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
        raise SilenceError(f"its store does not answer for {seconds:g} s") from None


@contextlib.contextmanager
def one_line(rank: int, size: int, when: str) -> Iterator[None]:
    """Turn errors for a lost process into a RankError of one line. A program's own errors are unchanged."""
    try:
        yield
    except (PurestepError, AssertionError):
        raise
    except RuntimeError as cause:
        text = _first_words(cause)
        if size == 1 or not (isinstance(cause, dist.DistError) or GONE.search(str(cause))):
            raise
        got = f"without another {when} ({text})"
        raise RankError(message(f"ranks: rank {rank}", got=got, wanted=f"all {size} at work", remedy=AGAIN)) from None


def _first_words(error: Exception) -> str:
    """Return the first sentence of an error, without the source location in front."""
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return re.sub(r"^\[[^\]]*\]\s*", "", line).split(". ")[0][:160]


def on_ranks(body: Callable[[ProcessGroup], None], *, timeout: float = 600.0, device: str = "auto") -> int:
    """Run `body` in the process group that this process was launched into; return the exit code of its program.

    A PurestepError is written in one line to standard error, and 1 is returned. The loss of another process is written
    likewise, and the process exits with 1 at once, without waiting for anything and without calling `atexit` functions. Any
    other error is raised. Each of these ends the other processes in the same way.
    """
    try:
        with join_processes(timeout=timeout, device=device) as ranks:
            body(ranks)
    except RankError as error:
        end_at_once(str(error))
    except PurestepError as error:
        print(error, file=sys.stderr, flush=True)
        code = 1
    else:
        code = 0
    let_go()
    return code


def let_go() -> None:
    """Free the remains of a process group that is over, and so end gloo's threads, before the process shuts down.

    The threads free their last tensors, for which they need Python: a process that shuts down meanwhile is aborted.
    """
    gc.collect()


def gather_tensor(ranks: ProcessGroup, value: Tensor) -> list[Tensor]:
    """Return a tensor of each process, in their order; all of one shape and dtype."""
    if ranks.size == 1:
        return [value]
    own = value.detach().to(ranks.device).contiguous()
    found = [torch.empty_like(own) for _ in range(ranks.size)]
    dist.all_gather(found, own)
    return [each.to(value.device) for each in found]


def summed(ranks: ProcessGroup, value: Tensor) -> Tensor:
    """Return the sum of a tensor of each process, the same bits on all of them; if all but one have 0, that one's."""
    if ranks.size == 1:
        return value
    total = value.detach().to(ranks.device, copy=True)
    dist.all_reduce(total)
    return total.to(value.device)


def shared(ranks: ProcessGroup, tree: Any = ()) -> Any:
    """Broadcast rank 0's tree: return it on all processes; other ranks' arguments are ignored. Tensors are on their devices.

    For data that one process has sampled or read. It is sent as a pickle, so all processes of the group must be trusted.
    """
    box = [tree if ranks.rank == 0 else ()]
    if ranks.size > 1:
        dist.broadcast_object_list(box, src=0, device=ranks.device)
    return tree_map(lambda leaf: leaf.to(ranks.device) if isinstance(leaf, Tensor) else leaf, box[0])


def same_on_all(where: str, ranks: ProcessGroup, tree: Any, remedy: str) -> None:
    """Raise StructureError on every process unless all have the same tensors in a tree, bit by bit."""
    numbers = torch.stack(gather_tensor(ranks, tree_hash(tree)))
    other = (numbers != numbers[0]).nonzero()[:, 0].tolist()
    if other:
        got = f"another on rank {other[0]} than on rank 0"
        raise StructureError(message(where, got=got, wanted="the same on all ranks", remedy=remedy))
