"""What every engine keeps to: one list of claims, tried on each that is installed.

    from .engine_contract import CONTRACT, Bench, Claim, name_of

@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]: ...                    # one open cluster serves all claims

@pytest.mark.parametrize("claim", CONTRACT, ids=name_of)
def test_the_contract(claim: Claim, bench: Bench, tmp_path: Path) -> None:
    claim(bench, tmp_path)
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from engine_actors import Counter, Plain  # type: ignore[import-not-found]

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.cluster.interface import Cluster, Done, EngineError, MemberLost, Mesh, Unanswered, late

SOON = 30.0  # seconds for what works; nobody waits for so long
FOUND = 3.0  # within so many seconds a death is told


@frozen
class Bench:
    """An engine as the claims use it."""

    cluster: Cluster  # open, on this machine
    host: Callable[[], AbstractContextManager[str]] | None  # a further host, for a block; gives its address
    opened: Callable[[], AbstractContextManager[Cluster]]  # another cluster on this machine
    nowhere: str  # an address at which nobody listens
    start: float = 8.0  # seconds within which a member has begun for sure
    quiet: float = 1.0  # seconds after which nobody tells anything more of what has happened


Claim = Callable[[Bench, Path], None]


def name_of(claim: Claim) -> str:
    """As a test's id."""
    return claim.__name__


def running(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not asked about does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def path_with(folder: Path) -> str:
    """The path for imports of a process: this folder before those that ours has been told."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def left(pids: set[int], seconds: float = 5.0) -> set[int]:
    """Those that still run after at most so many seconds; none is the sooner told."""
    until = time.monotonic() + seconds
    while (still := {pid for pid in pids if running(pid)}) and time.monotonic() < until:
        time.sleep(0.02)
    return still


def descendants(root: int = 0) -> set[int]:
    """What a process, or this one, has started, and what that has."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
    found, more = set[int](), {root or os.getpid()}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more} - found
        found |= more
    return {pid for pid in found if running(pid)}


def values(mesh: Mesh, method: str, *arguments: Any) -> list[Any]:
    """What all members give."""
    answers = mesh.call(method, arguments, timeout=SOON)
    assert all(isinstance(one, Done) for one in answers), answers
    return [one.value for one in answers if isinstance(one, Done)]


def counters(bench: Bench, size: int = 2, *arguments: Any) -> Mesh:
    return bench.cluster.spawn(Counter, arguments, size=size, timeout=SOON)


# --- calls ---


def a_call_reaches_every_member(bench: Bench, _: Path) -> None:
    mesh = counters(bench, 3, 10)
    assert mesh.members == (0, 1, 2)
    assert mesh.hosts == ("local",) * 3
    assert mesh.call("add", (5,), timeout=SOON) == (Done(15),) * 3
    assert mesh.call("add", timeout=SOON) == (Done(16),) * 3
    assert len({*values(mesh, "pid"), os.getpid()}) == 4  # each in a process of its own
    assert values(mesh, "echo", ("a", b"\0", 1.5, None)) == [("a", b"\0", 1.5, None)] * 3
    mesh.stop(timeout=SOON)


def calls_are_made_one_by_one_in_order(bench: Bench, _: Path) -> None:
    mesh = counters(bench, 2)
    asked = [mesh.ask("add", (1,), timeout=SOON) for _ in range(20)]
    assert [waiting() for waiting in reversed(asked)] == [(Done(n),) * 2 for n in range(20, 0, -1)]
    assert asked[3]() == asked[3]() == (Done(4),) * 2
    mesh.stop(timeout=SOON)


def many_threads_may_call(bench: Bench, _: Path) -> None:
    mesh, got = counters(bench, 2), list[Any]()

    def call(name: int) -> None:
        for i in range(10):
            got.append(mesh.call("echo", ((name, i),), timeout=SOON) == (Done((name, i)),) * 2)

    threads = [threading.Thread(target=call, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SOON)
    assert got == [True] * 40
    mesh.stop(timeout=SOON)


def what_a_method_raises_comes_back(bench: Bench, _: Path) -> None:
    mesh = counters(bench, 2)
    for method, arguments, why in [
        ("fail", ("dosk",), "KeyError: 'dosk'"),
        ("leave", (), "SystemExit: 3"),
        ("absent", (), "AttributeError"),
        ("add", (1, 2, 3), "TypeError"),
        ("strange", (), ""),
    ]:
        for answer in mesh.call(method, arguments, timeout=SOON):
            assert isinstance(answer, Unanswered), (method, answer)
            assert why in answer.why, (method, answer)
            assert not answer.lost, (method, answer)
    assert values(mesh, "add", 1) == [1, 1]  # they live on
    mesh.stop(timeout=SOON)


def time_runs_out(bench: Bench, _: Path) -> None:
    mesh = counters(bench, 2)
    start = time.monotonic()
    assert mesh.call("nap", (1.5, "late"), timeout=0.5) == (late(0.5),) * 2
    assert 0.5 <= time.monotonic() - start < 1.5
    assert mesh.call("add", (1,), timeout=SOON) == (Done(1),) * 2  # the late answer is nobody's
    mesh.stop(timeout=SOON)


def a_busy_member_delays_nobody_else(bench: Bench, _: Path) -> None:
    mesh = counters(bench, 3)
    busy = values(mesh, "pid")[1]
    start = time.monotonic()
    answers = mesh.call("nap_if", (busy, 3.0), timeout=1.0)
    assert time.monotonic() - start < 2.0
    assert answers == (Done("awake"), late(1.0), Done("awake"))
    assert mesh.slice((0, 2)).call("add", (1,), timeout=1.0) == (Done(1),) * 2
    waiting = mesh.slice((1,)).ask("add", (1,), timeout=0.2)
    assert mesh.slice((0,)).call("add", (1,), timeout=SOON) == (Done(2),)
    assert waiting() == (late(0.2),)
    mesh.stop(timeout=SOON)


def a_slice_is_some_of_the_members(bench: Bench, _: Path) -> None:
    mesh = counters(bench, 3)
    pids = values(mesh, "pid")
    part = mesh.slice((2, 0))
    assert (part.number, part.members, part.hosts) == (mesh.number, (2, 0), ("local",) * 2)
    assert values(part, "pid") == [pids[2], pids[0]]
    assert values(part.slice((0,)), "pid") == [pids[0]]
    for members in [(), (3,), (0, 0), (-1,)]:
        with pytest.raises(ChoiceError, match="slice: members is"):
            mesh.slice(members)
    with pytest.raises(ChoiceError, match="slice: members is"):
        part.slice((1,))
    part.stop(timeout=SOON)
    assert left({pids[0], pids[2]}) == set()
    assert values(mesh.slice((1,)), "add", 1) == [1]  # of a slice its members alone are stopped
    assert [getattr(one, "lost", "") for one in mesh.call("add", (1,), timeout=SOON)] == [True, "", True]
    mesh.stop(timeout=SOON)
    assert left({*pids}) == set()


# --- deaths ---


def a_member_that_is_killed_is_told_once(bench: Bench, _: Path) -> None:
    mesh, other = counters(bench, 3), counters(bench, 1, 7)
    pids = values(mesh, "pid")
    part = mesh.slice((1,))
    values(part, "add", 1)
    waiting = part.ask("nap", (SOON,), timeout=SOON)
    os.kill(pids[1], signal.SIGKILL)
    told = bench.cluster.failure(FOUND)
    assert isinstance(told, MemberLost)
    assert (told.host, told.mesh, told.member) == ("local", mesh.number, 1)
    assert told.why
    for answer in (*waiting(), *part.call("add", (1,), timeout=SOON), mesh.call("add", (1,), timeout=SOON)[1]):
        assert isinstance(answer, Unanswered)
        assert answer.lost
    assert values(mesh.slice((0, 2)), "add", 1) == [2, 2]  # the call of all reached them
    assert values(other, "add", 1) == [8]
    again = counters(bench, 1)
    assert values(again, "add", 1) == [1]
    assert bench.cluster.failure(bench.quiet) == ()
    for one in (mesh, other, again):
        one.stop(timeout=SOON)
    assert left({*pids}) == set()


def what_was_stopped_is_no_failure(bench: Bench, _: Path) -> None:
    mesh = counters(bench, 3)
    pids, used, fresh = {*values(mesh, "pid")}, mesh.slice((0,)), mesh.slice((1,))
    values(used, "add", 1)
    under_way = used.ask("nap", (SOON,), timeout=SOON)
    mesh.stop(timeout=SOON)
    assert left(pids) == set()
    mesh.stop(timeout=SOON)
    used.stop(timeout=SOON)
    start = time.monotonic()
    for one in (mesh, used, fresh, mesh.slice((2,))):
        answers = one.call("add", (1,), timeout=SOON)
        assert len(answers) == len(one.members)
        assert all(isinstance(answer, Unanswered) and answer.lost for answer in answers), answers
    ended = under_way()[0]
    assert isinstance(ended, Unanswered)
    assert ended.lost
    assert time.monotonic() - start < SOON / 2  # none of them hangs
    assert bench.cluster.failure(bench.quiet) == ()


def what_answers_may_be_stopped(bench: Bench, _: Path) -> None:
    mesh = counters(bench, 2)
    asked = [mesh.ask("add", (1,), timeout=SOON) for _ in range(400)]
    asked[40]()  # the others' answers are coming
    stopping = threading.Thread(target=mesh.stop, kwargs={"timeout": SOON}, daemon=True)
    stopping.start()
    stopping.join(2 * SOON)
    assert not stopping.is_alive()
    for n, waiting in enumerate(asked, start=1):
        assert all(answer == Done(n) or (isinstance(answer, Unanswered) and answer.lost) for answer in waiting())


# --- starts ---


def setup_is_done_once_on_each(bench: Bench, folder: Path) -> None:
    mesh = counters(bench, 2, 0, str(folder))
    assert {path.name for path in folder.iterdir()} == {str(pid) for pid in values(mesh, "pid")}
    assert values(mesh, "prepared") == [1, 1]
    assert values(mesh, "setup") == [None, None]
    assert values(mesh, "prepared") == [1, 1]
    mesh.stop(timeout=SOON)
    plain = bench.cluster.spawn(Plain, size=1, timeout=SOON)
    assert values(plain, "word") == ["plain"]
    plain.stop(timeout=SOON)


def what_does_not_begin_leaves_nothing(bench: Bench, folder: Path) -> None:
    for fault, seconds, why in [
        ("raises", SOON, "no such model"),
        ("exits", SOON, "spawn"),
        ("hangs", bench.start, "timed out"),
    ]:
        with pytest.raises(EngineError, match=why):
            bench.cluster.spawn(Counter, (0, str(folder), fault), size=2, timeout=seconds)
    with pytest.raises(EngineError, match="ValueError: no room"):
        bench.cluster.spawn(Plain, ("no room",), size=2, timeout=SOON)
    pids = {int(path.name) for path in folder.iterdir()}
    assert pids  # some were there
    assert left(pids) == set()
    assert bench.cluster.failure(bench.quiet) == ()


def what_is_no_call_is_refused(bench: Bench, _: Path) -> None:
    mesh, spawn = counters(bench, 1), bench.cluster.spawn
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ChoiceError, match=r"timeout is .* wanted a number of seconds above 0"):
            mesh.call("add", timeout=seconds)
        with pytest.raises(ChoiceError, match="timeout is"):
            spawn(Counter, size=1, timeout=seconds)
    with pytest.raises(EngineError, match="add"):
        mesh.call("add", (threading.Lock(),), timeout=SOON)
    with pytest.raises(ChoiceError, match="size is 0"):
        spawn(Counter, size=0, timeout=SOON)
    with pytest.raises(ChoiceError, match="elsewhere"):
        spawn(Counter, size=1, hosts=("elsewhere",), timeout=SOON)

    class Inner:
        """Has no name in a module."""

    with pytest.raises(EngineError, match="Inner"):
        spawn(Inner, size=1, timeout=SOON)
    with pytest.raises(EngineError):
        spawn(Counter, (threading.Lock(),), size=1, timeout=SOON)
    assert values(mesh, "add", 1) == [1]
    mesh.stop(timeout=SOON)


# --- hosts ---


def a_host_may_join(bench: Bench, _: Path) -> None:
    if bench.host is None:
        pytest.skip("this engine has no further hosts here")
    with bench.opened() as cluster, bench.host() as address:
        assert cluster.hosts() == ("local",)
        early = cluster.spawn(Counter, (1,), size=1, timeout=SOON)
        name = cluster.add_host(address, timeout=SOON)
        assert cluster.hosts() == ("local", name)
        mesh = cluster.spawn(Counter, size=3, timeout=SOON)
        assert mesh.hosts == ("local", name, "local")
        there = cluster.spawn(Counter, size=2, hosts=(name,), timeout=SOON)
        assert there.hosts == (name, name)
        assert [values(one, "add", 1) for one in (early, mesh, there)] == [[2], [1, 1, 1], [1, 1]]
        pids = values(there, "pid")
        os.kill(pids[0], signal.SIGKILL)
        told = cluster.failure(FOUND)
        assert isinstance(told, MemberLost)
        assert (told.host, told.mesh, told.member) == (name, there.number, 0)
        assert values(there.slice((1,)), "add", 1) == [2]
        assert cluster.failure(bench.quiet) == ()
        pids += values(mesh, "pid")
    assert left({*pids}) == set()


def a_host_that_is_not_there_is_refused(bench: Bench, _: Path) -> None:
    start = time.monotonic()
    with pytest.raises(EngineError, match="host"):
        bench.cluster.add_host(bench.nowhere, timeout=3.0)
    assert time.monotonic() - start < SOON
    mesh = counters(bench, 1)
    assert bench.cluster.hosts() == ("local",)
    assert values(mesh, "add", 1) == [1]
    mesh.stop(timeout=SOON)


def a_cluster_that_is_stopped_leaves_nothing(bench: Bench, _: Path) -> None:
    before = descendants()
    with bench.opened() as cluster:
        mesh, other = (cluster.spawn(Counter, size=1, timeout=SOON) for _ in range(2))
        pids = {*values(mesh, "pid"), *values(other, "pid")}
        mesh.ask("nap", (SOON,), timeout=SOON)
        started = descendants() - before
        cluster.stop(timeout=SOON)
        assert left(pids | started) == set()
        cluster.stop(timeout=SOON)
        for one in (mesh, other):
            answer = one.call("add", timeout=SOON)[0]
            assert isinstance(answer, Unanswered)
            assert answer.lost
        with pytest.raises(EngineError, match="stopped"):
            cluster.spawn(Counter, size=1, timeout=SOON)
        assert cluster.failure(bench.quiet) == ()


CONTRACT: tuple[Claim, ...] = (
    a_call_reaches_every_member,
    calls_are_made_one_by_one_in_order,
    many_threads_may_call,
    what_a_method_raises_comes_back,
    time_runs_out,
    a_busy_member_delays_nobody_else,
    a_slice_is_some_of_the_members,
    a_member_that_is_killed_is_told_once,
    what_was_stopped_is_no_failure,
    what_answers_may_be_stopped,
    setup_is_done_once_on_each,
    what_does_not_begin_leaves_nothing,
    what_is_no_call_is_refused,
    a_host_may_join,
    a_host_that_is_not_there_is_refused,
    a_cluster_that_is_stopped_leaves_nothing,
)
