"""The state machine of a cluster: living members, pending calls, answers and reported failures. Pure.

`cluster_step(ledger, event) -> (ledger, actions)`. Each called member settles its part of a call exactly once: answered, late
or lost. Each death is reported once, except for members that we ended ourselves and those of a mesh that had not begun. Events
carry the time.
"""

from attrs import evolve, frozen

from ..interface import STOPPED, MemberLost, Unanswered, late

GONE = "gone: it was stopped"  # the answer of a member that is called afterwards
Seat = tuple[int, int]  # (mesh, member)


@frozen
class PendingCall:
    """A call that a member has not answered yet."""

    call: int
    deadline: float
    seconds: float  # its time-out


@frozen
class MemberState:
    """State of one living member."""

    seat: Seat
    host: str
    begun: bool = False
    out: tuple[PendingCall, ...] = ()
    due: float = float("inf")  # lower bound of the deadlines in `out`


@frozen
class ClusterState:
    """State of the cluster."""

    hosts: tuple[str, ...] = ()  # that can be used
    members: tuple[MemberState, ...] = ()
    lost: tuple[tuple[Seat, str], ...] = ()  # members that ended, until they are stopped, and why


@frozen
class HostAdded:
    """Event: a host can be used."""

    host: str


@frozen
class HostLost:
    """Event: a host, and so all members on it, cannot be reached any more."""

    host: str
    why: str


@frozen
class MeshStarted:
    """Event: the members of a new mesh are being started on these hosts."""

    mesh: int
    hosts: tuple[str, ...]


@frozen
class MeshReady:
    """Event: all members of a mesh are ready."""

    mesh: int


@frozen
class CallStarted:
    """Event: members of a mesh are called. Numbers of calls are never used again."""

    call: int
    mesh: int
    members: tuple[int, ...]
    seconds: float
    now: float


@frozen
class CallAnswered:
    """Event: a member has answered a call."""

    seat: Seat
    call: int


@frozen
class MemberEnded:
    """Event: a member has ended."""

    seat: Seat
    why: str


@frozen
class MembersStopped:
    """Event: members are to be ended."""

    seats: tuple[Seat, ...]


@frozen
class Clock:
    """Event: the current time."""

    now: float


@frozen
class SendCall:
    """Action: send the call to this member."""

    seat: Seat
    host: str
    call: int


@frozen
class DeliverAnswer:
    """Action: deliver the member's answer, which is in time."""

    seat: Seat
    call: int


@frozen
class FailCall:
    """Action: settle this member's part of a call with a failure, in place of an answer."""

    seat: Seat
    call: int
    answer: Unanswered


@frozen
class ReportLoss:
    """Action: report a failure."""

    failure: MemberLost


@frozen
class KillMember:
    """Action: kill this member, if it still runs."""

    seat: Seat
    host: str


Event = (
    HostAdded | HostLost | MeshStarted | MeshReady | CallStarted | CallAnswered | MemberEnded | MembersStopped | Clock
)
Action = SendCall | DeliverAnswer | FailCall | ReportLoss | KillMember
Actions = tuple[Action, ...]


def cluster_step(state: ClusterState, event: Event) -> tuple[ClusterState, Actions]:
    """Return the next state and the actions to perform.

    >>> state, _ = cluster_step(cluster_step(ClusterState(("here",)), MeshStarted(0, ("here",)))[0], MeshReady(0))
    >>> state, sent = cluster_step(state, CallStarted(1, 0, (0,), 2.0, now=10.0))
    >>> sent, cluster_step(state, Clock(12.0))[1][0].answer.why
    ((SendCall(seat=(0, 0), host='here', call=1),), 'timed out after 2.0 s')
    >>> [type(action).__name__ for action in cluster_step(state, MemberEnded((0, 0), "killed"))[1]]
    ['KillMember', 'FailCall', 'ReportLoss']
    """
    if isinstance(event, CallStarted):
        return _asked(state, event)
    if isinstance(event, CallAnswered):
        return _answered(state, event)
    if isinstance(event, Clock):
        return _looked(state, event.now)
    if isinstance(event, MeshStarted):
        new = tuple(MemberState((event.mesh, i), host) for i, host in enumerate(event.hosts))
        return evolve(state, members=(*state.members, *new)), ()
    if isinstance(event, MeshReady):
        members = tuple(evolve(one, begun=True) if one.seat[0] == event.mesh else one for one in state.members)
        return evolve(state, members=members), ()
    if isinstance(event, HostAdded):
        hosts = (*(host for host in state.hosts if host != event.host), event.host)
        return evolve(state, hosts=hosts), ()
    if isinstance(event, HostLost):
        state = evolve(state, hosts=tuple(host for host in state.hosts if host != event.host))
        return _without(state, {one.seat for one in state.members if one.host == event.host}, event.why, told=True)
    if isinstance(event, MembersStopped):
        return _without(state, {*event.seats}, STOPPED, told=False)
    return _without(state, {event.seat}, event.why, told=True)


def _asked(state: ClusterState, event: CallStarted) -> tuple[ClusterState, Actions]:
    state, actions = _looked(state, event.now)
    there, lost = {one.seat: one for one in state.members}, dict(state.lost)
    out = PendingCall(event.call, event.now + event.seconds, event.seconds)
    for member in event.members:
        seat = (event.mesh, member)
        if seat in there:
            one = there[seat]
            there[seat] = evolve(one, out=(*one.out, out), due=min(one.due, out.deadline))
            actions = (*actions, SendCall(seat, one.host, event.call))
        else:
            actions = (*actions, FailCall(seat, event.call, Unanswered(lost.get(seat, GONE), True)))
    return evolve(state, members=tuple(there.values())), actions


def _answered(state: ClusterState, event: CallAnswered) -> tuple[ClusterState, Actions]:
    for at, member in enumerate(state.members):
        if member.seat == event.seat:
            which = next((i for i, out in enumerate(member.out) if out.call == event.call), -1)
            if which < 0:
                break
            changed = evolve(member, out=(*member.out[:which], *member.out[which + 1 :]))
            members = (*state.members[:at], changed, *state.members[at + 1 :])
            return evolve(state, members=members), (DeliverAnswer(event.seat, event.call),)
    return state, ()


def _looked(state: ClusterState, now: float) -> tuple[ClusterState, Actions]:
    if all(now < one.due for one in state.members):
        return state, ()
    overdue = [(one.seat, out) for one in state.members for out in one.out if out.deadline <= now]
    members = tuple(_in_time(one, now) for one in state.members)
    return evolve(state, members=members), tuple(FailCall(seat, out.call, late(out.seconds)) for seat, out in overdue)


def _in_time(member: MemberState, now: float) -> MemberState:
    out = tuple(one for one in member.out if one.deadline > now)
    return evolve(member, out=out, due=min((one.deadline for one in out), default=float("inf")))


def _without(state: ClusterState, seats: set[Seat], why: str, *, told: bool) -> tuple[ClusterState, Actions]:
    actions: Actions = ()
    for one in (member for member in state.members if member.seat in seats):
        settled = tuple(FailCall(one.seat, out.call, Unanswered(why, True)) for out in one.out)
        tells = (ReportLoss(MemberLost(one.host, *one.seat, why)),) if told and one.begun else ()
        actions = (*actions, KillMember(one.seat, one.host), *settled, *tells)
    lost = [known for known in state.lost if known[0] not in seats or told]
    new = [(one.seat, f"gone: {why}") for one in state.members if one.seat in seats and told]
    members = tuple(one for one in state.members if one.seat not in seats)
    return evolve(state, members=members, lost=(*lost, *new)), actions


def is_complete(state: ClusterState, mesh: int, size: int) -> bool:
    """Return whether all members of a mesh of that size are alive.

    >>> state, _ = cluster_step(ClusterState(("here",)), MeshStarted(0, ("here", "here")))
    >>> is_complete(state, 0, 2), is_complete(cluster_step(state, MemberEnded((0, 1), "killed"))[0], 0, 2)
    (True, False)
    """
    return sum(one.seat[0] == mesh for one in state.members) == size
