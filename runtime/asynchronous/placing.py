"""Where generators work, and how weights reach them: threads or processes of this machine, or members on an engine's hosts."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from ...core.errors import message
from ..effects.engine import hands, opened
from ..effects.engine.interface import Cluster, Done, EngineError
from ..effects.engine.rejoining import rejoining
from ..effects.transfer import Host, Outlet, chosen, outlet, this_host
from ..effects.transfer.hosts import Look, own_address
from ..effects.workers_engines import Body, Engine, Hand, in_process, in_thread
from ..effects.workers_engines import Inbox as Box
from ..language.world import Notice
from ..recipes.asynchronous import Asynchronous

HERE = {"process": in_process, "thread": in_thread}
WAIT = 60.0  # seconds for hosts to say what they have
KEY = 32  # bytes


@frozen
class Place:
    """Generators' engine, and how to publish weights for them."""

    engine: Engine
    publishing: Callable[[Any], AbstractContextManager[Outlet]]  # (params)
    key: bytes = b""  # of those who fetch; none where they see the same memory


@contextmanager
def placed(given: Asynchronous, notice: Notice) -> Iterator[Place]:
    """The place for a phase's generators, each on its device; a lost host is taken in again when it is there.

    Weights go by shared memory where all hosts have the same, else over TCP; `notice` is told which. Raises: EngineError,
    WeightsError.
    """
    hosts = given.named_hosts()
    if given.engine == "processes" and not hosts:
        engine = on_devices(HERE[given.generator_engine], given.named_devices())
        yield Place(engine, lambda params: outlet("shared", params))
        return
    with (
        opened(given.engine, hosts=hosts, key=Path(given.key) if given.key else None) as cluster,
        rejoining(cluster, hosts, notice),
    ):
        engine = on_devices(hands.on(cluster), given.named_devices())
        way = chosen([this_host(), *_seen(cluster)], report=notice).way
        if way == "shared":
            yield Place(engine, lambda params: outlet("shared", params))
            return
        key = secrets.token_bytes(KEY)
        name, _, port = given.weights.rpartition(":")
        here = {"host": name or own_address(hosts[0]), "port": int(port or 0)}
        yield Place(engine, lambda params: outlet("tcp", params, key=key, **here), key)


def _seen(cluster: Cluster) -> list[Host]:
    """What each host has for moving weights. Raises: EngineError where one does not say."""
    names = cluster.hosts()
    mesh = cluster.spawn(Look, size=len(names), hosts=names, timeout=WAIT)
    answers = mesh.call("look", timeout=WAIT)
    mesh.stop(timeout=WAIT)
    for name, answer in zip(names, answers, strict=True):
        if not isinstance(answer, Done):
            remedy = "see that it has the packages that are here"
            raise EngineError(message(f"host {name}", got=answer.why, wanted="what it has", remedy=remedy))
    return [
        evolve(answer.value, verbs=False) for answer in answers if isinstance(answer, Done)
    ]  # no RDMA in this recipe


def on_devices(start: Engine, devices: tuple[str, ...]) -> Engine:
    """The engine whose generators get these devices in turn."""

    def engine(number: int, body: Body, arguments: tuple[Any, ...], inbox: Box) -> Hand:
        (spec,) = arguments
        return start(number, body, (evolve(spec, device=devices[number % len(devices)]),), inbox)

    return engine
