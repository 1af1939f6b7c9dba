"""How long an engine takes for what everybody waits for: to start, to call, to tell of a death, to end. Part of `engines`."""

import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import Answer, Cluster, Done, Mesh

from .engine_actor import Echo

MEMBERS = 3
WAIT = 60.0  # seconds after which something is wrong
Figures = dict[str, float]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that it took, and what came of it."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def given(answers: Sequence[Answer]) -> list[Any]:
    """The values of a call. Raises: RuntimeError where a member gave none."""
    failed = [answer for answer in answers if not isinstance(answer, Done)]
    if failed:
        raise RuntimeError(f"a call failed: {failed[0]}")
    return [answer.value for answer in answers if isinstance(answer, Done)]


def measured(engine: str, calls: int) -> Figures:
    """One cluster on this machine from its start to its end; seconds, and calls a second where it says so.

    A time to start ends with the first answers of all members, for which no work was given before.
    """
    began = time.perf_counter()
    with open_cluster(engine) as cluster:
        mesh = cluster.spawn(Echo, size=MEMBERS, timeout=WAIT)
        given(mesh.call("pid", timeout=WAIT))
        started = time.perf_counter() - began
        again, other = timed(lambda: _begun(cluster))
        one = mesh.slice((0,))
        latency = sorted(timed(lambda: given(one.call("echo", (0,), timeout=WAIT)))[0] for _ in range(calls))
        all_ = sorted(timed(lambda: given(mesh.call("echo", (0,), timeout=WAIT)))[0] for _ in range(calls // 4))
        piped, _ = timed(
            lambda: [given(wait()) for wait in [one.ask("echo", (0,), timeout=WAIT) for _ in range(calls)]]
        )
        told = _death(cluster, other)
        began = time.perf_counter()
    return {
        "start of an engine with 3 members": started,
        "start of 3 more members": again,
        "a call": statistics.median(latency),
        "a call, 99 of 100": latency[len(latency) * 99 // 100],
        "a call of 3 members": statistics.median(all_),
        "calls a second, asked ahead": calls / piped,
        "a death is told after": told,
        "its end": time.perf_counter() - began,
    }


def _begun(cluster: Cluster) -> Mesh:
    mesh = cluster.spawn(Echo, size=MEMBERS, timeout=WAIT)
    given(mesh.call("pid", timeout=WAIT))
    return mesh


def _death(cluster: Cluster, mesh: Mesh) -> float:
    """Seconds from a SIGKILL to the engine's word of it. Raises: RuntimeError where there is none."""
    victim = given(mesh.slice((1,)).call("pid", timeout=WAIT))[0]
    began = time.perf_counter()
    os.kill(victim, signal.SIGKILL)
    failure = cluster.failure(WAIT)
    if not failure or failure.member != 1:
        raise RuntimeError(f"member 1 was killed, and what was told is {failure}")
    return time.perf_counter() - began
