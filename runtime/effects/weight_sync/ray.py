"""Weights by Ray's object store: one flat buffer in one `put` for each version, mapped by its readers without a copy.

Both ends live in processes of one job of Ray: its driver and its actors. An actor beside the publisher lists references to the
newest versions. A host pulls a version once, whatever the number of its readers, and these map it read-only: a tensor of a
fetched tree on the CPU must not be written to. Authentication and encryption are Ray's. Ray does not verify the bytes that it
pulls from another host: a reader there compares them with their digest, made beside the publisher with Ray's token as its key,
and has altered bytes pulled again. Without TLS, an attacker who reads the traffic also reads the token, and can forge both.
"""

import hmac
import importlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ....core.errors import ChoiceError, message
from ....core.tree import leaves
from ..cluster.security import ray_token
from ..cluster.version import installed
from . import ray_board
from .interface import WeightPublisher, WeightReader, refuse_closed
from .packing import handed, leaves_like
from .shared_memory.layout import WeightLayout, WeightsError, layout, same_architecture, text, views

SCHEME = "ray://"
KEEP = 3  # versions that stay in the store for readers
ROOM = KEEP + 2  # a store's size in weights: KEEP, one being put, one that a slow reader still maps
SECONDS = 60.0  # for the store to take a version, and for the board to answer
LEAVE = 5.0  # seconds for the board to end
AGAIN = 0.2  # seconds between two attempts to reach a board that is restarting, or to fetch altered bytes again
ENCRYPT = "see who alters what goes between the hosts, and have Ray encrypt it: RAY_USE_TLS=1 on all nodes"
T = TypeVar("T")


def store_for(size: int) -> int:
    """Return the required bytes of a store for the transfer of weights of `size` bytes.

    >>> store_for(100)
    500
    """
    return ROOM * size


def refuse_small(stores: dict[str, int], size: int) -> None:
    """Refuse the first host whose store is too small for weights of `size` bytes. Raises: WeightsError.

    >>> refuse_small({"10.0.0.1": 500}, 100)
    >>> refuse_small({"10.0.0.1": 500, "10.0.0.2": 80}, 100)
    Traceback (most recent call last):
    purestep.runtime.effects.weight_sync.shared_memory.layout.WeightsError: Ray's object store on 10.0.0.2 is \
80 bytes, wanted at least 500 for weights of 100; ray start --object-store-memory=500, and as much shared memory
    """
    need = store_for(size)
    for host, store in stores.items():
        if store < need:
            remedy = f"ray start --object-store-memory={need}, and as much shared memory"
            wanted = f"at least {need} for weights of {size}"
            raise WeightsError(
                message(f"Ray's object store on {host}", got=f"{store} bytes", wanted=wanted, remedy=remedy)
            )


@contextmanager
def ray_publisher(params: Any) -> Iterator[WeightPublisher]:
    """Publish weights like `params`, for processes of this job of Ray, to which this process is connected.

    Raises: EngineError if Ray is missing or has another version, WeightsError if this process is not connected to it or a
    store is too small, StructureError.
    """
    own, tensors = layout(params), leaves_like(params)
    publisher = _Publisher(_connected("publish"), own)
    try:
        publisher.begin()
        yield WeightPublisher(
            "ray", publisher.address, lambda version, tree: publisher.put(version, tensors("publish", tree))
        )
    finally:
        publisher.close()


@contextmanager
def ray_reader(address: str, like: Any) -> Iterator[WeightReader]:
    """Yield a reader for the publisher of that address; `like` is a tree of the architecture, on the devices to fetch to.

    Raises: EngineError if Ray is missing; WeightsError if this process is not one of Ray's, or there is no publisher.
    """
    reader = _RayReader(_connected("fetch"), address.removeprefix(SCHEME), like)
    yield WeightReader("ray", reader.fetch, reader.closed)


def _connected(where: str) -> Any:
    """Return the module of Ray. Raises: EngineError, WeightsError if this process is not connected to it."""
    installed("ray")
    ray: Any = importlib.import_module("ray")
    if not ray.is_initialized():
        remedy = "open the engine ray first, or take another transport"
        raise WeightsError(message(f"{where}: Ray", got="not connected", wanted="a process of Ray", remedy=remedy))
    return ray


class _Publisher:
    """The publisher's side: a buffer that is filled and put, and the board."""

    def __init__(self, ray: Any, own: WeightLayout) -> None:
        self.ray, self.own, self.letters = ray, own, text(own)
        self.name = f"purestep-weights-{secrets.token_hex(8)}@{ray.get_runtime_context().get_node_id()}"
        self.address, self.key = SCHEME + self.name, ray_token()
        self.lock, self.over = threading.Lock(), threading.Event()
        self.room = torch.zeros(own.size, dtype=torch.uint8)
        self.held: list[Any] = []
        self.version = -1
        self.board: Any = None

    def begin(self) -> None:
        """Start the board, beside this process."""
        stores = {
            str(node["NodeName"]): int(node["Resources"].get("object_store_memory", 0))
            for node in self.ray.nodes()
            if node["Alive"]
        }
        refuse_small(stores, self.own.size)
        self.ray.cloudpickle.register_pickle_by_value(ray_board)
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        here = strategies.NodeAffinitySchedulingStrategy(self.ray.get_runtime_context().get_node_id(), soft=False)
        self.board = (
            self.ray.remote(num_cpus=0, max_restarts=-1)(ray_board.Board)
            .options(name=self.name, scheduling_strategy=here)
            .remote()
        )
        ask_board(self.ray, "publish", lambda: self.board.offer.remote(-1), SECONDS)
        threading.Thread(target=self.watch, name="purestep-ray-board", daemon=True).start()

    def put(self, version: int, tensors: list[Tensor]) -> None:
        """Put the leaves into the store as one buffer, and list it."""
        with self.lock:
            refuse_closed(self.over.is_set())
            if version <= self.version:
                wanted = f"at least {self.version + 1}"
                remedy = "versions never go back: count on from the last one, from 0 at first"
                raise ChoiceError(message("publish: version", got=version, wanted=wanted, remedy=remedy))
            with torch.no_grad():
                for target, source in zip(views(self.own, self.room), tensors, strict=True):
                    target.copy_(source)
            reference = in_one_line("publish", lambda: self.ray.put(self.room.numpy()))
            self.held, self.version = [*self.held, reference][-KEEP:], version
            self.list()

    def list(self) -> None:
        """Make the board list the versions in the store."""
        hold = self.board.hold.remote
        ask_board(self.ray, "publish", lambda: hold(self.version, self.letters, self.held, self.key), SECONDS)

    def watch(self) -> None:
        """List the versions again if the board was restarted, and is empty."""
        while not self.over.wait(1.0):
            with suppress(Exception), self.lock:
                empty = not self.ray.get(self.board.offer.remote(-1), timeout=SECONDS)
                if empty and self.held and not self.over.is_set():
                    self.list()

    def close(self) -> None:
        """End the board, and release the versions."""
        self.over.set()
        with self.lock:
            self.held = []
            if self.board is not None and self.ray.is_initialized():
                with suppress(Exception):
                    self.ray.get(self.board.end.remote(), timeout=LEAVE)
                    self.ray.kill(self.board)


class _RayReader:
    """The reader's side."""

    def __init__(self, ray: Any, name: str, like: Any) -> None:
        self.ray, self.like, self.own, self.same = ray, like, layout(like), leaves_like(like)
        self.lock, self.key = threading.Lock(), ray_token()
        self.board = in_one_line("fetch", lambda: ray.get_actor(name))
        self.near = name.endswith(f"@{ray.get_runtime_context().get_node_id()}")  # same store as the publisher's

    def closed(self) -> bool:
        """Return whether the publisher has ended or does not answer."""
        try:
            return bool(self.ray.get(self.board.closed.remote(), timeout=SECONDS))
        except Exception:
            return True

    def fetch(self, newer_than: int = -1, into: Any = (), seconds: float = 60.0) -> tuple[Any, ...]:
        """Return (version, params) or (), see `WeightReader`; without `into`, CPU tensors are read-only views of the store."""
        given = self.same("fetch: into", into) if leaves(into) else []
        until = time.monotonic() + seconds
        with self.lock:
            self.refused, forged = "", None
            while True:
                try:
                    found = in_one_line("fetch", lambda: self.read(newer_than, until))
                except WeightsError as error:
                    if not self.near and altered(self.ray, error):
                        forged = error
                    if forged is not error or time.monotonic() > until:
                        raise forged or error from error.__cause__
                    time.sleep(AGAIN)
                else:
                    return (found[0], handed(self.own, tensor_of_bytes(found[1]), self.like, given)) if found else ()

    def read(self, newer_than: int, until: float) -> tuple[Any, ...]:
        """Return the latest version with its bytes as an array, or () if none is newer. Raises: WeightsError.

        Bytes from another host are compared with their digest, which the board computes while they are transferred.
        """
        board, left = self.board, max(0.1, until - time.monotonic())
        offer = ask_board(self.ray, "fetch", lambda: board.offer.remote(newer_than, self.refused), left)
        if not offer:
            return ()
        version, letters, (reference,) = offer
        self.refused = "" if self.near else reference.hex()
        signature = () if self.near else board.signature.remote(version)
        room = self.given(reference, until)
        if not self.near:
            digest = self.given(signature, until)
            if not digest:  # a newer version was published meanwhile
                return self.read(newer_than, until)
            refuse_forged(self.key, version, letters, room, digest)
        same_architecture("fetch: ray", letters, self.own)
        return version, room

    def given(self, reference: Any, until: float) -> Any:
        """Return the value of a reference. Raises: WeightsError."""
        return in_one_line("fetch", lambda: self.ray.get(reference, timeout=max(0.1, until - time.monotonic())))


class ForgedError(WeightsError):
    """Error for weights from another host that are not those that were published."""


def refuse_forged(key: bytes, version: int, letters: str, room: Any, digest: bytes) -> None:
    """Refuse bytes with another digest. Raises: ForgedError.

    >>> right = ray_board.publication_mac(b"", 3, "[]", b"12")
    >>> refuse_forged(b"", 3, "[]", b"12", right)
    >>> refuse_forged(b"", 3, "[]", b"13", right)
    Traceback (most recent call last):
    purestep.runtime.effects.weight_sync.ray.ForgedError: fetch: ray: version 3 is of the digest 2f3a1568614a3fc1, \
wanted f10624204d85660a; see who alters what goes between the hosts, and have Ray encrypt it: RAY_USE_TLS=1 on all nodes
    """
    found = ray_board.publication_mac(key, version, letters, room)
    if not hmac.compare_digest(found, digest):
        got, wanted = f"of the digest {found.hex()[:16]}", digest.hex()[:16]
        raise ForgedError(message(f"fetch: ray: version {version}", got=got, wanted=wanted, remedy=ENCRYPT))


def altered(ray: Any, error: WeightsError) -> bool:
    """Return whether an error is due to bytes altered in transit: refused here, or impossible to unpickle."""
    cause, errors = error.__cause__, ray.exceptions
    if cause is None:
        return isinstance(error, ForgedError)
    return isinstance(cause, errors.RaySystemError) or not isinstance(cause, errors.RayError)


def tensor_of_bytes(room: Any) -> Tensor:
    """Return a read-only array of bytes as a tensor that shares its memory, without torch's warning that it is writable.

    >>> bytes_ = np.arange(3, dtype=np.uint8)
    >>> bytes_.setflags(write=False)
    >>> tensor_of_bytes(bytes_).tolist(), tensor_of_bytes(bytes_).data_ptr() == bytes_.ctypes.data
    ([0, 1, 2], True)
    """
    return torch.from_numpy(np.asarray(_Shared(room)))


class _Shared:
    """The memory of an array, which it keeps alive."""

    def __init__(self, array: Any) -> None:
        self.array = array
        own = dict(array.__array_interface__)
        self.__array_interface__ = {**own, "data": (own["data"][0], False)}


def ask_board(ray: Any, where: str, ask: Callable[[], Any], seconds: float) -> Any:
    """Return the board's answer to a call, waiting for a board that is restarting. Raises: WeightsError."""
    until = time.monotonic() + seconds
    while True:
        try:
            return in_one_line(where, lambda: ray.get(ask(), timeout=max(0.1, until - time.monotonic())))
        except WeightsError as error:
            if not isinstance(error.__cause__, ray.exceptions.ActorUnavailableError) or time.monotonic() > until:
                raise
        time.sleep(AGAIN)


def in_one_line(where: str, act: Callable[[], T]) -> T:
    """Return `act()`. Raises: WeightsError, in one line, for an error of Ray.

    >>> in_one_line("fetch", lambda: 1)
    1
    """
    try:
        return act()
    except WeightsError:
        raise
    except Exception as cause:
        said = (str(cause).strip().splitlines() or [""])[0][:120]
        name, got = type(cause).__name__, f"not to be had ({type(cause).__name__}: {said})"
        remedy = "see that the publisher's process and its node of Ray are alive"
        if name in ("GetTimeoutError", "ObjectStoreFullError", "OutOfMemoryError"):
            remedy = "see that hosts reach each other, and give Ray a larger store: ray start --object-store-memory"
        if name == "RaySystemError":
            remedy = ENCRYPT
        raise WeightsError(message(f"{where}: ray", got=got, wanted="an answer", remedy=remedy)) from cause
