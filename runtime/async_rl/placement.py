"""Placement of generators and transport of weights: threads or processes of this machine, or members on an engine's hosts."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from attrs import evolve, field, frozen

from ...core.errors import message
from ..effects.cluster import open_cluster, worker_handles
from ..effects.cluster.addresses import parted
from ..effects.cluster.device_assignment import DeviceAssignment
from ..effects.cluster.interface import Cluster, Done, EngineError
from ..effects.cluster.rejoining import rejoining
from ..effects.cluster.security import describe_security, monarch_scheme, refuse_network
from ..effects.weight_sync import Host, WeightPublisher, choose_transport, this_host, weight_publisher
from ..effects.weight_sync.ray import store_for
from ..effects.workers.pool import Body, Engine, WorkerHandle, in_process, in_thread
from ..effects.workers.pool import Inbox as Box
from ..runs.recipe import Notice
from ..text.async_config import AsyncConfig
from .version_check import Packages, packages, refuse_others

HERE = {"process": in_process, "thread": in_thread}
HOME = ("",)  # this machine, where it is the only host
WAIT = 60.0  # time-out in seconds for the probe of a host
START = 50.0  # seconds for a generator to start: less than the limit of `working`, so that the cause is reported


@frozen
class Placement:
    """The engine of generators, and the function that opens a publisher of weights for them."""

    engine: Engine
    publishing: Callable[[Any], AbstractContextManager[WeightPublisher]] = field(repr=False)  # (params)


class HostProbe:
    """An actor that reports the properties of its host."""

    def look(self) -> tuple[Host, Packages]:
        """Return the host's means of moving weights, and the versions of its packages."""
        return this_host(), packages()


@contextmanager
def assign_generators(given: AsyncConfig, notice: Notice, weights: Callable[[], int] = int) -> Iterator[Placement]:
    """Yield the placement of generators, each on its device; a lost host is added again once it is reachable.

    Weights go by `transfer`, else by shared memory if all hosts share it, else by the engine's transport; `notice` is called
    with the transport. `weights` returns the size of the weights in bytes, for which Ray's object store needs room.
    Raises: EngineError for an engine or a host that is not available, ChoiceError for a host with other packages or without a
    capability that is asked for, WeightsError where a store is too small.
    """
    hosts = given.named_hosts()
    if given.engine == "processes":
        engine = on_devices(HERE[given.generator_engine], given.named_devices())
        yield Placement(engine, partial(weight_publisher, "shared"))
        return
    store = store_for(weights()) if given.engine == "ray" else 0
    if line := describe_security(given.engine, given.hosts):
        notice(line)
    own = hosts if given.engine == "monarch" else ()
    with open_cluster(given.engine, hosts=own, store=store) as cluster, ExitStack() as stack:
        for host in hosts if given.engine == "ray" else ():
            cluster.add_host(host, timeout=WAIT)
        stack.enter_context(rejoining(cluster, cluster.hosts(), notice))
        engine = worker_handles.on(cluster, hosts=hosts, start=START, devices=given.named_devices(), fitted=on_device)
        asked = "" if given.transfer == "auto" else given.transfer
        way = choose_transport(
            [this_host(), *probe_hosts(cluster, hosts)], engine=given.engine, asked=asked, report=notice
        )
        if way.fallback and monarch_scheme() == "tcp" and not given.trust_network:
            refuse_network("Monarch's buffers over TCP", [parted(host)[0] for host in hosts])
        with weight_publisher(way.way, (torch.zeros(1),)):
            pass  # a transport that does not work is reported before training
        yield Placement(engine, partial(weight_publisher, way.way))


def probe_hosts(cluster: Cluster, hosts: tuple[str, ...] = ()) -> list[Host]:
    """Return the means of each host, or of each of these, for moving weights.

    Raises: EngineError for a host that does not answer, ChoiceError for one whose packages differ from ours.
    """
    names = hosts or cluster.hosts()
    mesh = cluster.spawn(HostProbe, size=len(names), hosts=names, timeout=WAIT)
    answers = mesh.call("look", timeout=WAIT)
    mesh.stop(timeout=WAIT)
    found = list[Host]()
    for name, answer in zip(names, answers, strict=True):
        if not isinstance(answer, Done):
            remedy = "see that it has the packages that are here"
            raise EngineError(message(f"host {name}", got=answer.why, wanted="what it has", remedy=remedy))
        host, has = answer.value
        refuse_others(packages(), has, name)
        found.append(evolve(host, name=name))
    return found


def on_device(arguments: tuple[Any, ...], device: str) -> tuple[Any, ...]:
    """Return a generator's arguments with its device set."""
    (spec,) = arguments
    return (evolve(spec, device=device),)


def on_devices(start: Engine, devices: tuple[str, ...]) -> Engine:
    """Return this machine's engine with devices assigned to generators in turn; a replacement gets the freed device."""
    book = DeviceAssignment(devices)

    def engine(number: int, body: Body, arguments: tuple[Any, ...], inbox: Box) -> WorkerHandle:
        owner = object()
        spot = book.take(owner, HOME)
        handle = start(number, body, on_device(arguments, spot.device) if spot else arguments, inbox)

        def end() -> None:
            book.leave(owner)
            handle.end()

        return evolve(handle, end=end)

    return engine
