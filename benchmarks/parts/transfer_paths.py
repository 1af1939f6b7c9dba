"""Every transport of weights from one process to another, in parts of the speed of a plain copy, at two sizes.

For each size and transport a publisher in a process of its own opens a publisher; this process fetches, into the same memory,
and looks at every number. Ray's store maps what it has on this host; its fetch is made with the copy into that memory. For
another host its publisher works on a second node, with a store of its own, on this machine: what a network would add, or
limit, is not in it. NIXL, over TCP, with and without a check of the bytes, stands beside them where it is installed. Fetches
and `copy_` between two buffers take turns, one transport after the other; the first versions, which go through memory that was
never used before, are not counted. Transports that cannot be run here are named with the reason. A number that is not what
was published, and Ray's store on this host below its floor, are faults. Part of `engines`.
"""

import importlib.util
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.addresses import outward
from purestep.runtime.effects.weight_sync import weight_reader
from purestep.runtime.effects.weight_sync.ray import ROOM, store_for
from purestep.runtime.effects.weight_sync.shared_memory.layout import layout

from . import ray_nodes, transfer_nixl, transfer_paths_sides
from .engine_calls import given
from .transfer_paths_sides import ELSEWHERE, MONARCH, PEERS, RAY, SHARED, VERSIONS, Publisher
from .transfer_sides import Params, params_of, size, whole

Publish = Callable[[int], float]  # publishes a version; returns its seconds
WARM = ROOM + 2  # versions that are not counted: until then stores use memory that was never used before
FLOORS = {100.0: 0.35, 1000.0: 0.6}  # megabytes: of a copy, for Ray's store on this host


def runnable() -> tuple[list[str], dict[str, str]]:
    """The transports that can be run here, and why the others cannot."""
    missing = {}
    if importlib.util.find_spec("ray") is None:
        missing |= dict.fromkeys((RAY, ELSEWHERE), "ray is not installed")
    if importlib.util.find_spec("monarch") is None:
        missing[MONARCH] = "torchmonarch is not installed"
    if importlib.util.find_spec(transfer_nixl.PACKAGE) is None:
        missing |= dict.fromkeys(PEERS, "nixl-cu12 is not installed")
    return [name for name in (SHARED, RAY, ELSEWHERE, MONARCH, *PEERS) if name not in missing], missing


@contextmanager
def process(serve: Any, megabytes: float) -> Iterator[tuple[Any, Publish]]:
    """A publisher in a process of its own: its address, and how it is asked to publish."""
    ours, theirs = multiprocessing.Pipe()
    side = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, megabytes), daemon=True)
    side.start()

    def publish(version: int) -> float:
        ours.send((version,))
        return float(ours.recv())

    yield ours.recv(), publish
    ours.send(())
    side.join(30.0)


@contextmanager
def on_ray(megabytes: float, *, elsewhere: bool) -> Iterator[tuple[str, Publish]]:
    """The same by Ray's store, on this host or on another node."""
    size_of = store_for(layout(params_of(megabytes)).size) + ray_nodes.STORE
    ours = outward("192.0.2.1:9")
    with ray_nodes.first(ours, store=size_of) as address:
        words = ["--address", address, "--node-name", "another"]
        other = ray_nodes.started([], words, store=size_of) if elsewhere else None
        try:
            with open_cluster("ray") as cluster:
                host = cluster.add_host("another", timeout=120.0) if elsewhere else cluster.hosts()[0]
                mesh = cluster.spawn(Publisher, (megabytes,), size=1, hosts=(host,), timeout=120.0)
                yield (
                    given(mesh.call("address", timeout=60.0))[0],
                    lambda version: float(given(mesh.call("publish", (version,), timeout=600.0))[0]),
                )
                mesh.call("close", timeout=60.0)
        finally:
            if other is not None:
                ray_nodes.ended(other)


@contextmanager
def actor(megabytes: float) -> Iterator[tuple[Any, Publish]]:
    """The same, as an actor of Monarch."""
    import monarch.actor

    monarch.actor.unhandled_fault_hook = lambda failure: None  # by default it ends this process
    procs = monarch.actor.this_host().spawn_procs(per_host={"gpus": 1})
    trainer = procs.spawn("trainer", transfer_paths_sides.trainer(), megabytes)

    def publish(version: int) -> float:
        return float(trainer.publish.call_one(version).get(timeout=600.0))

    yield trainer.address.call_one().get(timeout=600.0), publish
    procs.stop().get(timeout=60.0)


@contextmanager
def readers(address: Any, into: Params) -> Iterator[Callable[[], Params]]:
    """Yield a function that fetches the next version into those tensors."""
    with weight_reader(address, into) as reader:
        version = -1

        def fetch() -> Params:
            nonlocal version
            while not (found := reader.fetch(version, into, 600.0)):
                time.sleep(0.0005)
            version = found[0]
            return found[1]

        yield fetch


def table(megabytes: float, rounds: int, names: Sequence[str]) -> dict[str, Any]:
    """The table for one size: one way after the other, each beside copies of its own, since memory would not do for all."""
    spent, publishing, copies = dict[str, list[float]](), dict[str, list[float]](), dict[str, list[float]]()
    wrong: list[str] = []
    for name in names:
        spent[name], publishing[name], copies[name] = [], [], []
        for version, (copied, taken, told, is_whole) in enumerate(_rounds(megabytes, rounds, name)):
            wrong += [] if is_whole else [f"{name}: version {version} is not whole"]
            if version >= WARM:
                copies[name].append(copied)
                spent[name].append(taken)
                publishing[name].append(told)
    found = _figures(params_of(megabytes), spent, publishing, copies)
    if found["of a copy"].get(RAY, 1.0) < FLOORS.get(megabytes, 0.0):
        wrong.append(f"{RAY} is {found['of a copy'][RAY]} of a copy, wanted {FLOORS[megabytes]}")
    return found | {"faults": wrong}


def _rounds(megabytes: float, rounds: int, name: str) -> Iterator[tuple[float, float, float, bool]]:
    """Of each version: seconds of a plain copy, of the fetch and of its publication, and whether it came whole."""
    flat = [torch.cat([leaf.flatten() for leaf in params_of(megabytes).values()]) for _ in range(2)]
    with ExitStack() as stack:
        sides = {
            SHARED: lambda: process(transfer_paths_sides.serve, megabytes),
            RAY: lambda: on_ray(megabytes, elsewhere=False),
            ELSEWHERE: lambda: on_ray(megabytes, elsewhere=True),
            MONARCH: lambda: actor(megabytes),
            **{name: lambda: process(transfer_nixl.serve, megabytes) for name in PEERS},
        }
        address, publish = stack.enter_context(sides[name]())
        into: Any = params_of(megabytes)
        peer = name in PEERS
        reading = transfer_nixl.reader(address, into, checked=name == PEERS[1]) if peer else readers(address, into)
        fetch = stack.enter_context(reading)
        for version in range(rounds + WARM):
            start = time.perf_counter()
            flat[1].copy_(flat[0])
            copied = time.perf_counter() - start
            told = publish(version)
            start = time.perf_counter()
            into = fetch()
            taken = time.perf_counter() - start
            yield copied, taken, told, whole(into, version % VERSIONS)


def _figures(
    params: Params, spent: dict[str, list[float]], publishing: dict[str, list[float]], copies: dict[str, list[float]]
) -> dict[str, Any]:
    taken, told, copied = (
        {name: statistics.median(times) for name, times in each.items()} for each in (spent, publishing, copies)
    )
    return {
        "bytes": size(params),
        "tensors": len(params),
        "seconds of a fetch": {name: round(value, 5) for name, value in taken.items()},
        "seconds of a copy": {name: round(value, 5) for name, value in copied.items()},
        "bytes a second": {name: round(size(params) / value) for name, value in taken.items()},
        "of a copy": {name: round(copied[name] / value, 3) for name, value in taken.items()},
        "publishing, of a copy": {name: round(copied[name] / value, 3) for name, value in told.items()},
    }
