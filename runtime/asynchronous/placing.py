"""Where generators work, and how weights reach them: threads or processes of this machine, or members on an engine's hosts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, field, frozen

from ...core.errors import message
from ..effects.engine import hands, opened
from ..effects.engine.interface import Cluster, Done, EngineError
from ..effects.engine.outward import outward
from ..effects.engine.processes_wire import parted
from ..effects.engine.rejoining import rejoining
from ..effects.engine.spots import Book
from ..effects.transfer import Host, Outlet, chosen, outlet, this_host
from ..effects.transfer.hosts import fresh_key
from ..effects.transfer.tcp_outlet import listening
from ..effects.weights_layout import WeightsError
from ..effects.workers_engines import Body, Engine, Hand, in_process, in_thread
from ..effects.workers_engines import Inbox as Box
from ..language.world import Notice
from ..recipes.asynchronous import Asynchronous
from .alike import Packages, packages, refuse_others

HERE = {"process": in_process, "thread": in_thread}
HOME = ("",)  # this machine, where it is the only host
WAIT = 60.0  # seconds for hosts to say what they have
START = 50.0  # seconds for a generator to begin: fewer than `working` gives it, so that it is told why one has not


@frozen
class Place:
    """Generators' engine, and how to publish weights for them."""

    engine: Engine
    publishing: Callable[[Any], AbstractContextManager[Outlet]] = field(repr=False)  # (params); it has the key, too
    key: bytes = field(default=b"", repr=False)  # of those who fetch; none where they see the same memory


class Look:
    """An actor that says what its host has."""

    def look(self) -> tuple[Host, Packages]:
        """For moving weights, and for working with us."""
        return this_host(), packages()


@contextmanager
def placed(given: Asynchronous, notice: Notice) -> Iterator[Place]:
    """The place of generators, each on its device; a lost host is taken in again when it is there.

    Weights go by `transfer`, else by shared memory where all hosts have the same, by RDMA where all have that and the engine is
    monarch, else over TCP; `notice` is told which. Raises: EngineError for an engine or a host that cannot be had, ChoiceError
    for a host with other packages or that cannot do what is asked for, WeightsError where nobody can fetch.
    """
    hosts = given.named_hosts()
    if given.engine == "processes" and not hosts:
        engine = on_devices(HERE[given.generator_engine], given.named_devices())
        yield Place(engine, partial(outlet, "shared"))
        return
    with (
        opened(given.engine, hosts=hosts, key=Path(given.key) if given.key else None) as cluster,
        rejoining(cluster, hosts, notice),
    ):
        engine = hands.on(cluster, start=START, devices=given.named_devices(), fitted=on_device)
        asked = "" if given.transfer == "auto" else given.transfer
        within = given.engine == "monarch"
        way = chosen([this_host(), *seen(cluster)], within=within, asked=asked, report=notice).way
        if way != "tcp":
            with outlet(way, (torch.zeros(1),)):
                pass  # what cannot be had is told before anything is learned
            yield Place(engine, partial(outlet, way))
            return
        key = fresh_key()
        host, port = served_at(given)
        listening(host, port).close()  # and so is an address
        yield Place(engine, partial(outlet, "tcp", key=key, host=host, port=port), key)


def served_at(given: Asynchronous) -> tuple[str, int]:
    """The address at which hosts fetch weights here, --weights or one that they can reach; port 0 is any.

    It is that which the first of them sees who is on another machine; this machine sees that one too.
    Raises: EngineError for a host to which no way leads, WeightsError where none has an address.

    >>> served_at(Asynchronous(hosts="127.0.0.1:7000")), served_at(Asynchronous(weights="10.0.0.1:7100"))
    (('127.0.0.1', 0), ('10.0.0.1', 7100))
    """
    if given.weights:
        return parted(given.weights)
    if not given.named_hosts():
        remedy = "name an address of this machine that all of them can reach"
        raise WeightsError(message("--weights", got="not given", wanted="HOST:PORT without --hosts", remedy=remedy))
    return _outer([outward(host) for host in given.named_hosts()]), 0


def _outer(numbers: Sequence[str]) -> str:
    """The first number that other machines may know, or the first.

    >>> _outer(["127.0.0.1", "10.0.0.1", "10.1.0.1"]), _outer(["::1", "127.0.0.1"])
    ('10.0.0.1', '::1')
    """
    return next((number for number in numbers if not ip_address(number).is_loopback), numbers[0])


def seen(cluster: Cluster) -> list[Host]:
    """What each host has for moving weights.

    Raises: EngineError where one does not say, ChoiceError where one has other packages than we have.
    """
    names = cluster.hosts()
    mesh = cluster.spawn(Look, size=len(names), hosts=names, timeout=WAIT)
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
    """A generator's arguments for that device."""
    (spec,) = arguments
    return (evolve(spec, device=device),)


def on_devices(start: Engine, devices: tuple[str, ...]) -> Engine:
    """The engine of this machine whose generators get these devices in turn; who is replaced gives its own to the next one."""
    book = Book(devices)

    def engine(number: int, body: Body, arguments: tuple[Any, ...], inbox: Box) -> Hand:
        owner = object()
        spot = book.take(owner, HOME)
        hand = start(number, body, on_device(arguments, spot.device) if spot else arguments, inbox)

        def end() -> None:
            book.leave(owner)
            hand.end()

        return evolve(hand, end=end)

    return engine
