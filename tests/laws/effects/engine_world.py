"""A simulated cluster for the laws: the subject, stories of callers, members, hosts and time, and their results."""

from collections.abc import Callable
from typing import Any

from attrs import Factory, frozen
from hypothesis import strategies as st

from purestep.runtime.effects.cluster import interface
from purestep.runtime.effects.cluster.local import rules
from purestep.runtime.effects.cluster.local.rules import (
    CallAnswered,
    CallStarted,
    Clock,
    DeliverAnswer,
    FailCall,
    HostAdded,
    HostLost,
    MemberEnded,
    MembersStopped,
    MeshReady,
    MeshStarted,
    Seat,
)

HOSTS = ("a", "b")
Acts = tuple[tuple[str, int, int], ...]


@frozen
class Clustering:
    """The machine, and functions for completeness, placement and slices."""

    step: Callable[[rules.ClusterState, rules.Event], tuple[rules.ClusterState, rules.Actions]]
    whole: Callable[[rules.ClusterState, int, int], bool]
    placed: Callable[[int, tuple[str, ...]], tuple[str, ...]]
    sliced: Callable[[tuple[int, ...], tuple[int, ...]], tuple[int, ...]]


def own_clustering() -> Clustering:
    """Return the library's own functions."""
    return Clustering(rules.cluster_step, rules.is_complete, interface.host_of_each, interface.sliced)


@frozen
class Moment:
    """An event, the ledger before and after it, and the actions."""

    event: Any
    before: rules.ClusterState
    after: rules.ClusterState
    actions: rules.Actions

    def there(self) -> dict[Seat, rules.MemberState]:
        """The members before the event, by seat."""
        return {member.seat: member for member in self.before.members}

    def these(self, kind: type) -> list[Any]:
        """The actions of that kind."""
        return [action for action in self.actions if isinstance(action, kind)]


@frozen
class Course:
    """The results of a story."""

    moments: list[Moment] = Factory(list)


def stories() -> Any:
    """Draw acts of callers, members, hosts and time: (verb, index of the member, index of the call or seconds)."""
    many = ("ask", "ask", "ask", "answer", "answer", "answer", "wait", "ghost", "ghost")
    verbs = st.sampled_from((*many, "spawn", "begin", "end", "stop", "stop", "lost", "again"))
    return st.lists(st.tuples(verbs, st.integers(0, 7), st.integers(0, 3)), min_size=16, max_size=50).map(tuple)


def played(cluster: Clustering, story: Acts) -> Course:
    """Run a story through the machine.

    "ghost" is an answer to a call that was settled, "end" a death that is reported twice, as by a pipe and by a host.
    """
    state, now, course, calls, meshes = rules.ClusterState(), 0.0, Course(), 0, 0
    known: list[Seat] = []
    settled: list[tuple[Seat, int]] = []

    def feed(event: rules.Event) -> None:
        nonlocal state
        after, actions = cluster.step(state, event)
        course.moments.append(Moment(event, state, after, actions))
        settled.extend((one.seat, one.call) for one in actions if isinstance(one, DeliverAnswer | FailCall))
        state = after

    first: list[rules.Event] = [*map(HostAdded, HOSTS), MeshStarted(0, ("a", "b", "a")), MeshReady(0)]
    for event in first:
        feed(event)
    known += [(0, 0), (0, 1), (0, 2)]
    for verb, who, value in story:
        seat = known[who % len(known)]
        out = [(member.seat, one.call) for member in state.members for one in member.out]
        if verb == "spawn" and state.hosts:
            meshes += 1
            feed(MeshStarted(meshes, cluster.placed(2, state.hosts)))
            known += [(meshes, 0), (meshes, 1)]
        elif verb == "begin":
            feed(MeshReady(meshes))
        elif verb == "ask":
            calls += 1
            members = tuple(member for mesh, member in known if mesh == seat[0])
            feed(CallStarted(calls, seat[0], members[: who // 2 + 1], 1.0 + value, now))
        elif verb == "answer" and out:
            feed(CallAnswered(*out[who % len(out)]))
        elif verb == "ghost" and settled:
            feed(CallAnswered(*settled[-1 - who % len(settled)]))
        elif verb == "end":
            feed(MemberEnded(seat, "killed"))
            feed(MemberEnded(seat, "its pipe was closed"))
        elif verb == "stop":
            feed(MembersStopped(tuple(known[who % len(known) :][: value + 1])))
        elif verb in ("lost", "again"):
            feed(HostLost(HOSTS[who % 2], "silent") if verb == "lost" else HostAdded(HOSTS[who % 2]))
        else:
            now += value
            feed(Clock(now))
    return course
