"""Replicas of a service as members of a cluster, on any hosts.

    with opened("ray") as cluster, serving(on(cluster), 4) as service: ...

A replica makes the calls of `service.serving`, one at a time; one that hangs or dies is killed, and restarted on an available
host.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ....core.errors import message
from ..tools.calls import DIED, RAISED, TIMED_OUT, Perform, Returned, ToolError, ToolFailure
from ..tools.service import Begin
from .interface import LATE, Cluster, Done, EngineError

KILL = 10.0  # seconds in which a replica must be gone


class Replica:
    """The actor of a replica."""

    def perform(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Make a call."""
        return function(*arguments)


def on(cluster: Cluster, *, hosts: tuple[str, ...] = (), start: float = 60.0) -> Begin:
    """Return the function that starts replicas on the cluster's hosts, or on `hosts`; number i on available host i mod n.

    One that has not started within `start` seconds raises EngineError. Functions are imported by their module's name; a call
    raises ToolError for a function or arguments that cannot be sent.
    """

    @contextmanager
    def begin(number: int) -> Iterator[Perform]:
        there = [host for host in cluster.hosts() if not hosts or host in hosts]
        if not there:
            got, remedy = "none that is left", "add one"
            raise EngineError(message("replicas: hosts", got=got, wanted="at least 1", remedy=remedy))
        mesh = cluster.spawn(Replica, size=1, hosts=(there[number % len(there)],), timeout=start)

        def perform(function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Returned | ToolFailure:
            try:
                (answer,) = mesh.call("perform", (function, arguments), timeout=seconds)
            except EngineError as error:
                raise ToolError(str(error)) from error
            if isinstance(answer, Done):
                return Returned(answer.value)
            if answer.lost:
                return ToolFailure(DIED, answer.why)
            return ToolFailure(TIMED_OUT) if answer.why.startswith(LATE) else ToolFailure(RAISED, answer.why)

        try:
            yield perform
        finally:
            mesh.stop(timeout=KILL)

    return begin
