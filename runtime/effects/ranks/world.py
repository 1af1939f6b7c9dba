"""The processes that train together: how they meet, what they tell each other, and how they end when one is gone.

    with joined(timeout=60) as ranks:
        ...

Under `torchrun --nproc-per-node 8 program.py`, or any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, the
block is entered when all are there. A program that nobody launched so is a world of its own, and alone in it.
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
from ...ranks.putting import fingerprint
from ..ending import end_at_once
from .launched import RankError as RankError
from .launched import launched as launched
from .launched import number

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
# What gloo, NCCL and the store in which processes meet say when somebody is gone, in errors of no class of their own.
GONE = re.compile(r"gloo|connection|timed? ?out|peer|broken pipe|socket|nccl|clients joined", re.IGNORECASE)


AGAIN = "start all of them again from the last checkpoint"
GRACE = 5.0  # seconds behind its own time limit in which torch's store may still say what is wrong
T = TypeVar("T")


class SilenceError(RuntimeError):
    """A store does not answer in time."""


@frozen(kw_only=True, eq=False)
class Ranks:
    """This process among those that train together."""

    rank: int  # its number, from 0 on
    size: int  # how many there are
    device: torch.device  # where its tensors lie
    mesh: DeviceMesh  # all of them in a row, for tensors that are sharded
    timeout: float  # seconds after which one that does not answer is taken for gone
    store: Any = ()  # torch.distributed's, in which they have met


@contextlib.contextmanager
def joined(*, timeout: float = 600.0, device: str = "auto") -> Iterator[Ranks]:
    """The processes of a launcher's world as a block, which is entered when all are there and leaves the world at its end.

    `device` is "cpu" (gloo), "cuda" (NCCL; each process takes that of its LOCAL_RANK) or "auto": "cuda" where there is one.
    Inside, whoever waits for another longer than `timeout` seconds gets an error. Raises: ChoiceError; RankError, in one
    line, where not all come or one is gone later.
    """
    if not timeout > 0:
        raise ChoiceError(message("joined: timeout", got=timeout, wanted="seconds above 0", remedy="e.g. 600"))
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    backend = choose("joined: device", kind, BACKENDS)
    place = torch.device("cuda", number("LOCAL_RANK", range(2**15), "0")) if kind == "cuda" else torch.device("cpu")
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
            yield Ranks(rank=rank, size=size, device=place, mesh=meshes[0], timeout=timeout, store=store)
    finally:
        with contextlib.suppress(RuntimeError):  # what has come apart already
            dist.destroy_process_group()
        for mesh in meshes:  # whoever keeps a DTensor keeps its mesh, which would keep gloo's threads
            getattr(mesh, "_pg_registry", {}).clear()


def _met(rank: int, size: int, patience: timedelta) -> Any:
    """The store of this world, once all are there or, at the latest, when they have lost patience. Raises: RankError."""
    if not os.environ.get("WORLD_SIZE"):
        return HashStore()
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    another = "choose another MASTER_PORT, the same for all ranks"
    try:
        # In time, since torch waits without end for what takes its connection and never answers.
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
    """Return what `work()` returns. Raises: SilenceError after so many seconds, while the work goes on in its own thread.

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
        raise SilenceError(f"its store does not answer for {seconds:g} s") from None


@contextlib.contextmanager
def one_line(rank: int, size: int, when: str) -> Iterator[None]:
    """Errors of whoever has lost another as one line. Those of a program stay what they are."""
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
    """The first sentence of an error, without the place in somebody's source."""
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return re.sub(r"^\[[^\]]*\]\s*", "", line).split(". ")[0][:160]


def on_ranks(body: Callable[[Ranks], None], *, timeout: float = 600.0, device: str = "auto") -> int:
    """Runs `body` in the world this process was launched into; the exit code of its program.

    What purestep refuses is told in one line on standard error, and 1 is returned. So is the loss of another process told, and
    the process ends with 1 at once, without waiting for the rest and without what `atexit` would call. Whatever else goes
    wrong is raised. Either ends the others so.
    """
    try:
        with joined(timeout=timeout, device=device) as ranks:
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
    """Frees what is left of a world that is over, and so ends gloo's threads, before the process takes itself apart.

    They let go of their last tensors, for which they need Python: a process that ends meanwhile is aborted.
    """
    gc.collect()


def gathered(ranks: Ranks, value: Tensor) -> list[Tensor]:
    """A tensor of each process, in their order; all of one shape and dtype."""
    if ranks.size == 1:
        return [value]
    own = value.detach().to(ranks.device).contiguous()
    found = [torch.empty_like(own) for _ in range(ranks.size)]
    dist.all_gather(found, own)
    return [each.to(value.device) for each in found]


def summed(ranks: Ranks, value: Tensor) -> Tensor:
    """The sum of a tensor of each process, the same bits on all of them; where all but one have 0, that one's."""
    if ranks.size == 1:
        return value
    total = value.detach().to(ranks.device, copy=True)
    dist.all_reduce(total)
    return total.to(value.device)


def shared(ranks: Ranks, tree: Any = ()) -> Any:
    """What the first process passes, on all of them; what others pass is not looked at. Tensors come to their devices.

    For what one process has sampled or read. It travels pickled, so that only processes of one's own may be in the world.
    """
    box = [tree if ranks.rank == 0 else ()]
    if ranks.size > 1:
        dist.broadcast_object_list(box, src=0, device=ranks.device)
    return tree_map(lambda leaf: leaf.to(ranks.device) if isinstance(leaf, Tensor) else leaf, box[0])


def same_on_all(where: str, ranks: Ranks, tree: Any, remedy: str) -> None:
    """Raises StructureError on every process unless all have the same tensors in a tree, bit by bit."""
    numbers = torch.stack(gathered(ranks, fingerprint(tree)))
    other = (numbers != numbers[0]).nonzero()[:, 0].tolist()
    if other:
        got = f"another on rank {other[0]} than on rank 0"
        raise StructureError(message(where, got=got, wanted="the same on all ranks", remedy=remedy))
