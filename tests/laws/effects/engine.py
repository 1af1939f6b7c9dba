"""Laws of a cluster: each call is settled once and in time, each death is reported once, and failures do not spread.

The subject is a `Clustering`: the machine and the placement of `runtime.effects.cluster`.
"""

from collections.abc import Callable
from typing import Any

from attrs import evolve
from hypothesis import strategies as st

from purestep.core.errors import ChoiceError
from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.cluster import interface
from purestep.runtime.effects.cluster.interface import MemberLost, Unanswered
from purestep.runtime.effects.cluster.local.rules import (
    GONE,
    CallAnswered,
    CallStarted,
    Clock,
    ClusterState,
    DeliverAnswer,
    FailCall,
    HostAdded,
    HostLost,
    KillMember,
    MemberEnded,
    MembersStopped,
    MeshReady,
    MeshStarted,
    ReportLoss,
    Seat,
    SendCall,
)

from .engine_world import Acts, Clustering, Course, played, stories

# --- mutants ---
# Common errors in clusters: each an edit of a right one.


Step = Callable[[ClusterState, Any], Any]


def _edited(edit: Callable[[Step], Step]) -> Callable[[Any], Any]:
    """The edit of a step as an edit of the whole subject."""
    return lambda cluster: evolve(cluster, step=edit(cluster.step))


def _passes_all_on(step: Step) -> Step:
    def trusting(state: ClusterState, event: Any) -> Any:
        after, actions = step(state, event)
        if isinstance(event, CallAnswered) and event.seat in [one.seat for one in state.members]:
            actions = (DeliverAnswer(event.seat, event.call),)
        return after, actions

    return trusting


def _looks_at_the_first(step: Step) -> Step:
    def hasty(state: ClusterState, event: Any) -> Any:
        if not isinstance(event, Clock | CallStarted):
            return step(state, event)
        firsts = evolve(state, members=tuple(evolve(one, out=one.out[:1]) for one in state.members))
        rest = {one.seat: one.out[1:] for one in state.members}
        after, actions = step(firsts, event)
        members = tuple(
            evolve(one, out=(*[o for o in one.out if o not in new], *rest[one.seat], *new))
            for one in after.members
            for new in [tuple(o for o in one.out if isinstance(event, CallStarted) and o.call == event.call)]
        )
        return evolve(after, members=members), actions

    return hasty


def _tells_all(step: Step) -> Step:
    def talkative(state: ClusterState, event: Any) -> Any:
        after, actions = step(state, event)
        told = {(one.failure.mesh, one.failure.member) for one in actions if isinstance(one, ReportLoss)}
        why = getattr(event, "why", "stopped")
        more = [
            ReportLoss(MemberLost(one.host, *one.seat, why))
            for one in actions
            if isinstance(one, KillMember) and one.seat not in told
        ]
        return after, (*actions, *more)

    return talkative


def _ends_the_mesh(step: Step) -> Step:
    def thorough(state: ClusterState, event: Any) -> Any:
        after, actions = step(state, event)
        if isinstance(event, MemberEnded) and actions:
            after, more = step(
                after, MembersStopped(tuple(one.seat for one in after.members if one.seat[0] == event.seat[0]))
            )
            actions = (*actions, *more)
        return after, actions

    return thorough


def _waits_for_the_time_out(step: Step) -> Step:
    def patient(state: ClusterState, event: Any) -> Any:
        after, actions = step(state, event)
        return after, tuple(one for one in actions if not (isinstance(one, FailCall) and one.answer.lost))

    return patient


def _keeps_the_lost(step: Step) -> Step:
    def faithful(state: ClusterState, event: Any) -> Any:
        if isinstance(event, HostLost):
            return evolve(state, hosts=tuple(host for host in state.hosts if host != event.host)), ()
        return step(state, event)

    return faithful


def _forgets_why(step: Step) -> Step:
    def forgetful(state: ClusterState, event: Any) -> Any:
        after, actions = step(state, event)
        return evolve(after, lost=()), actions

    return forgetful


forgets_why = _edited(_forgets_why)
passes_all_on, looks_at_the_first = _edited(_passes_all_on), _edited(_looks_at_the_first)
tells_all, ends_the_mesh = _edited(_tells_all), _edited(_ends_the_mesh)
waits_for_the_time_out, keeps_the_lost = _edited(_waits_for_the_time_out), _edited(_keeps_the_lost)


def fills_hosts(cluster: Any) -> Any:
    """Fill each host before the next one is used."""

    def placed(size: int, hosts: tuple[str, ...]) -> tuple[str, ...]:
        each = -(-size // len(hosts))
        return tuple(hosts[i // each] for i in range(size))

    return evolve(cluster, placed=placed)


def asks_for_anybody(cluster: Any) -> Any:
    """Count a mesh as whole if it has one member."""
    return evolve(cluster, whole=lambda state, mesh, size: any(one.seat[0] == mesh for one in state.members))


def sorts_slices(cluster: Any) -> Any:
    """Sort the members of a slice."""
    return evolve(cluster, sliced=lambda members, wanted: tuple(sorted(cluster.sliced(members, wanted))))


def _tells_twice(step: Step) -> Step:
    """Report a death again for each further sign of it, as by the pipe and the host."""

    def startled(state: ClusterState, event: Any) -> Any:
        after, actions = step(state, event)
        if isinstance(event, MemberEnded) and not actions:
            actions = (ReportLoss(MemberLost("a", *event.seat, event.why)),)
        return after, actions

    return startled


def _tells_of_starts(step: Step) -> Step:
    """Count a member as begun as soon as it is started."""

    def early(state: ClusterState, event: Any) -> Any:
        meshes = {one.seat[0] for one in state.members}
        for mesh in sorted(meshes):
            state, _ = step(state, MeshReady(mesh))
        return step(state, event)

    return early


def _strict_deadline(step: Step) -> Step:
    """Settle late calls half a second too late."""

    def lenient(state: ClusterState, event: Any) -> Any:
        return step(state, evolve(event, now=event.now - 0.5) if isinstance(event, Clock) else event)

    return lenient


def _ends_elsewhere(step: Step) -> Step:
    """Send the end of a member to the host that was added last."""

    def confused(state: ClusterState, event: Any) -> Any:
        after, actions = step(state, event)
        host = state.hosts[-1] if state.hosts else ""
        return after, tuple(evolve(one, host=host) if isinstance(one, KillMember) else one for one in actions)

    return confused


def _forgets_at_return(step: Step) -> Step:
    """List a host twice if it returns before its loss was noticed."""

    def doubled(state: ClusterState, event: Any) -> Any:
        after, actions = step(state, event)
        if isinstance(event, HostLost):
            after = evolve(after, hosts=(*after.hosts, *[host for host in state.hosts if host == event.host][1:]))
        if isinstance(event, HostAdded):
            after = evolve(after, hosts=(*state.hosts, event.host))
        return after, actions

    return doubled


def _refuses_whole_calls(step: Step) -> Step:
    """Fail the call on all members if one of them is gone."""

    def strict(state: ClusterState, event: Any) -> Any:
        there = {one.seat for one in state.members}
        if isinstance(event, CallStarted) and not {(event.mesh, one) for one in event.members} <= there:
            state, late = step(state, Clock(event.now))
            lost = [FailCall((event.mesh, one), event.call, Unanswered(GONE, True)) for one in event.members]
            return state, (*late, *lost)
        return step(state, event)

    return strict


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "tells a death at each sign of it": _edited(_tells_twice),
    "tells of members that never began": _edited(_tells_of_starts),
    "is late half a second late": _edited(_strict_deadline),
    "ends a member on another host": _edited(_ends_elsewhere),
    "counts a host twice that comes back": _edited(_forgets_at_return),
    "calls nobody where one is gone": _edited(_refuses_whole_calls),
}


# --- laws ---


SOURCE = "runtime.effects.cluster.local.rules: a cluster as a pure machine"


def engine_laws() -> Suite:
    """The laws of a cluster."""
    laws = (_settled(), _in_time(), _told(), _known(), _own(), _at_once(), _hosts(), _whole(), _turns(), _slices())
    return Suite("engine_laws", laws)


def _law(name: str, claim: str, mutant: Mutant, check: Callable[[Course, Seen], None], *needs: str) -> Law:
    def on_course(cluster: Clustering, story: Acts, seen: Seen) -> None:
        check(played(cluster, story), seen)

    inputs = always(stories())
    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=inputs,
        check=on_course,
        mutant=mutant,
        needs=needs,
        most=500,
        share=0.01,  # stories have many kinds of events, each of them rare
    )


def _settled() -> Law:
    def check(course: Course, seen: Seen) -> None:
        settled: list[tuple[Seat, int]] = []
        asked: list[tuple[Seat, int]] = []
        for moment in course.moments:
            event, there = moment.event, moment.there()
            if isinstance(event, CallStarted):
                asked += [((event.mesh, member), event.call) for member in event.members]
            if isinstance(event, CallAnswered):
                seen("an answer to what is settled", (event.seat, event.call) in settled and event.seat in there)
            settled += [(one.seat, one.call) for one in (*moment.these(DeliverAnswer), *moment.these(FailCall))]
        out = [(member.seat, one.call) for member in course.moments[-1].after.members for one in member.out]
        require(sorted(settled + out) == sorted(asked), f"asked {asked}, settled {settled}, still out {out}")

    claim = "Each member that is asked settles its part of the call once, or still has it."
    mutant = Mutant("passes on whatever a member says", passes_all_on)
    return _law("calls_are_settled_once", claim, mutant, check, "an answer to what is settled")


def _in_time() -> Law:
    def check(course: Course, seen: Seen) -> None:
        for moment in course.moments:
            event = moment.event
            if isinstance(event, CallStarted | Clock):
                had = [(member.seat, one) for member in moment.before.members for one in member.out]
                overdue = {(seat, one.call): one.seconds for seat, one in had if one.deadline <= event.now}
                seen("a late call beside one that has time", 0 < len(overdue) < len(had))
                late = {(one.seat, one.call): one.answer for one in moment.these(FailCall) if not one.answer.lost}
                wanted = {which: interface.late(seconds) for which, seconds in overdue.items()}
                require(late == wanted, f"at {event.now} late were {late}, wanted {wanted}")
            else:
                late_now = [one for one in moment.these(FailCall) if not one.answer.lost]
                require(not late_now, f"{late_now} at {event}, which says no time")

    claim = "A call is late at the first look at or after its deadline, and no sooner."
    mutant = Mutant("looks at each member's first call alone", looks_at_the_first)
    return _law("calls_are_late_in_time", claim, mutant, check, "a late call beside one that has time")


def _told() -> Law:
    def check(course: Course, seen: Seen) -> None:
        for moment in course.moments:
            event, there = moment.event, moment.there()
            dead: list[tuple[str, int, int, str]] = []
            if isinstance(event, MemberEnded):
                seen("a death told again", event.seat not in there)
                dead = [(there[event.seat].host, *event.seat, event.why)] if event.seat in there else []
            elif isinstance(event, HostLost):
                dead = [(one.host, *one.seat, event.why) for one in there.values() if one.host == event.host]
            begun = [one for one in dead if there[one[1], one[2]].begun]
            seen("a death before its mesh had begun", len(begun) < len(dead))
            seen("a member that is stopped", isinstance(event, MembersStopped) and moment.these(KillMember))
            told = [
                (one.failure.host, one.failure.mesh, one.failure.member, one.failure.why)
                for one in moment.these(ReportLoss)
            ]
            require(sorted(told) == sorted(begun), f"{event} told {told}, wanted {begun}")

    claim = "The death of a member that had begun is told once, with its host and why; one we stopped is no failure."
    mutant = Mutant("tells whatever ends", tells_all)
    needs = ("a death told again", "a death before its mesh had begun", "a member that is stopped")
    return _law("deaths_are_told_once", claim, mutant, check, *needs)


def _known() -> Law:
    def check(course: Course, seen: Seen) -> None:
        whys: dict[Seat, str] = {}
        for moment in course.moments:
            event, there = moment.event, moment.there()
            if isinstance(event, CallStarted):
                for one in moment.these(FailCall):
                    if one.call == event.call:
                        seen("a call after a death", one.seat in whys)
                        seen("a call after a stop", one.seat not in whys)
                        wanted = Unanswered(f"gone: {whys[one.seat]}" if one.seat in whys else GONE, True)
                        require(one.answer == wanted, f"{one.seat} answers {one.answer}, wanted {wanted}")
            elif isinstance(event, MemberEnded | HostLost):
                ended = {event.seat} if isinstance(event, MemberEnded) else set(there)
                whys |= {seat: event.why for seat in ended & there.keys() if _lost_by(event, there[seat])}
            elif isinstance(event, MembersStopped):
                whys = {seat: why for seat, why in whys.items() if seat not in event.seats}

    claim = (
        "A call of a member that has ended is answered with the reason of its end; of one that was stopped, with that."
    )
    mutant = Mutant("forgets why members ended", forgets_why)
    return _law("ends_are_explained", claim, mutant, check, "a call after a death", "a call after a stop")


def _lost_by(event: MemberEnded | HostLost, member: Any) -> bool:
    return isinstance(event, MemberEnded) or member.host == event.host


def _own() -> Law:
    def check(course: Course, seen: Seen) -> None:
        for moment in course.moments:
            if isinstance(moment.event, MemberEnded | MembersStopped):
                seats = {moment.event.seat} if isinstance(moment.event, MemberEnded) else {*moment.event.seats}
                there, after = moment.there(), {member.seat: member for member in moment.after.members}
                others = {seat: member for seat, member in there.items() if seat not in seats}
                seen("a loss beside another's call", {*there} & seats and any(one.out for one in others.values()))
                require(after == others, f"{moment.event} left {after}, wanted {others}")
                ended = [(one.seat, one.host) for one in moment.these(KillMember)]
                wanted = [(seat, there[seat].host) for seat in there if seat in seats]
                require(ended == wanted, f"{moment.event} ended {ended}, wanted {wanted}")

    claim = "An end touches its own member: the others stay, with their calls."
    mutant = Mutant("ends a mesh with its first member", ends_the_mesh)
    return _law("ends_are_ones_own", claim, mutant, check, "a loss beside another's call")


def _at_once() -> Law:
    def check(course: Course, seen: Seen) -> None:
        for moment in course.moments:
            event, there, ended = moment.event, moment.there(), {one.seat for one in moment.these(KillMember)}
            lost = {(one.seat, one.call) for one in moment.these(FailCall) if one.answer.lost}
            wanted = {(seat, one.call) for seat in ended if seat in there for one in there[seat].out}
            if isinstance(event, CallStarted):
                seats = {(event.mesh, member) for member in event.members}
                wanted |= {(seat, event.call) for seat in seats if seat not in there}
                sent = [(one.seat, one.host) for one in moment.these(SendCall)]
                right = [(seat, there[seat].host) for seat in sorted(seats) if seat in there]
                require(sorted(sent) == right, f"{event} was sent to {sent}, wanted {right}")
                seen("a call of some who are gone", 0 < len(sent) < len(seats))
            seen("a death with a call under way", ended and wanted)
            require(lost == wanted, f"{event} lost {lost}, wanted {wanted}")

    claim = "Calls of whoever ends are lost at once, and so are later ones; the others are sent."
    mutant = Mutant("lets the time-out find it", waits_for_the_time_out)
    needs = ("a call of some who are gone", "a death with a call under way")
    return _law("calls_of_the_gone_are_lost_at_once", claim, mutant, check, *needs)


def _hosts() -> Law:
    def check(course: Course, seen: Seen) -> None:
        hosts: set[str] = set()
        for moment in course.moments:
            event, after = moment.event, moment.after
            if isinstance(event, HostAdded):
                hosts.add(event.host)
            elif isinstance(event, HostLost):
                hosts.discard(event.host)
                on_it = [one for one in moment.before.members if one.host == event.host]
                seen("a host lost with its members", on_it)
                seen("a host lost beside another one's members", len(on_it) < len(moment.before.members))
                left = [one for one in moment.before.members if one.host != event.host]
                require([*after.members] == left, f"{event} left {after.members}, wanted {left}")
            require({*after.hosts} == hosts, f"{event}: hosts are {after.hosts}, wanted {hosts}")

    claim = "A lost host is not used any more until it is added again, and takes its members and nobody else's."
    mutant = Mutant("keeps the members of a lost host", keeps_the_lost)
    needs = ("a host lost with its members", "a host lost beside another one's members")
    return _law("a_lost_host_takes_its_members", claim, mutant, check, *needs)


def _turns() -> Law:
    def check(cluster: Clustering, drawn: tuple[int, int], seen: Seen) -> None:
        size, count = drawn
        hosts = tuple(f"h{i}" for i in range(count))
        given = cluster.placed(size, hosts)
        seen("more members than hosts", size > count > 1)
        require(len(given) == size, f"{size} members have {len(given)} hosts")
        for i, host in enumerate(given):
            require(host == hosts[i % count], f"member {i} is on {host} of {hosts}")

    return Law(
        name="members_take_turns",
        claim="Member i is on host i modulo their number.",
        source="runtime.effects.cluster.interface.placed",
        inputs=always(st.tuples(st.integers(1, 9), st.integers(1, 4))),
        check=check,
        mutant=Mutant("fills one host after the other", fills_hosts),
        needs=("more members than hosts",),
    )


def _whole() -> Law:
    def check(cluster: Clustering, story: Acts, seen: Seen) -> None:
        sizes: dict[int, int] = {}
        ended: set[int] = set()
        for moment in played(cluster, story).moments:
            if isinstance(moment.event, MeshStarted):
                sizes[moment.event.mesh] = len(moment.event.hosts)
            ended |= {one.seat[0] for one in moment.these(KillMember)}
            for mesh, size in sizes.items():
                there = sum(one.seat[0] == mesh for one in moment.after.members)
                seen("a mesh of which some are left", 0 < there < size)
                said = cluster.whole(moment.after, mesh, size)
                require(said == (mesh not in ended), f"mesh {mesh} with {there} of {size} members: whole is {said}")

    return Law(
        name="a_mesh_is_whole_until_one_ends",
        claim="A mesh is whole from its start until the first of its members ends.",
        source="runtime.effects.cluster.local.rules.whole",
        inputs=always(stories()),
        check=check,
        mutant=Mutant("asks whether anybody is there", asks_for_anybody),
        needs=("a mesh of which some are left",),
        most=500,
    )


def _slices() -> Law:
    def check(cluster: Clustering, drawn: tuple[tuple[int, ...], tuple[int, ...]], seen: Seen) -> None:
        members, wanted = drawn
        wrong = not wanted or len({*wanted}) < len(wanted) or bool({*wanted} - {*members})
        seen("what is no slice", wrong)
        seen("a slice in another order", not wrong and tuple(sorted(wanted)) != wanted)
        try:
            places = cluster.sliced(members, wanted)
        except ChoiceError:
            require(wrong, f"{wanted} of {members} was refused")
            return
        require(not wrong, f"{wanted} of {members} gave {places}")
        found = tuple(members[at] for at in places)
        require(found == wanted, f"{wanted} of {members} gave {found}")

    few = st.lists(st.integers(0, 4), max_size=3).map(tuple)
    return Law(
        name="slices_are_of_members",
        claim="A slice has the members that were named, in that order; another one is refused.",
        source="runtime.effects.cluster.interface.sliced",
        inputs=always(st.tuples(st.permutations(range(4)).map(tuple), few)),
        check=check,
        mutant=Mutant("gives them in the order of the whole", sorts_slices),
        needs=("what is no slice", "a slice in another order"),
        share=0.01,
    )
