"""Shared parts of the laws of a scheduler: drawn schedules, observers of their steps, and properties of states."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from purestep.properties.framework.law import Seen, law_constructor
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.state import IDLE, RECOMPUTE, THERE, Rules, Schedule
from purestep.runtime.machine.persistent_map import entries

from .scheduler_moves import MOVES, Move, play
from .scheduler_world import Name, Scheduling, Script, Told, World

SOURCE = "runtime.async_rl.scheduler.machine: three bounds, whole groups, one version after the other"
CAPACITY = "AReaL, staleness_manager.py; SkyRL, fully_async: submitted = accepted + filtered + running"
BITS = 2  # bytes of a move

Check = Callable[[Scheduling, Script, Seen], None]
Watch = Callable[[World, Told], None]


@frozen
class Played:
    """A check of every step of a script; `watching` makes the observer, `weights` are the frequencies of the moves."""

    watching: Callable[[Script, Seen], Watch]
    weights: Mapping[Move, int] = MOVES

    def __call__(self, subject: Scheduling, script: Script, seen: Seen) -> None:
        """Play the script, and check each step with the observer."""
        play(subject, script, self.watching(script, seen), self.weights)


def scripts(**fixed: Any) -> SearchStrategy[Script]:
    """Draw scripts with few samples, few rollout workers, and 60 to 90 moves; `fixed` rules are not drawn."""
    return _drawn().map(lambda script: evolve(script, rules=evolve(script.rules, **fixed)))


@st.composite
def _drawn(draw: DrawFn) -> Script:
    group = draw(st.sampled_from((1, 1, 2, 3)))
    batch, staleness = group * draw(st.integers(1, 3)), draw(st.sampled_from((0, 1, 1, 2, 4)))
    rooms: tuple[int | tuple[()], ...] = ((), (), batch, max(batch, (staleness + 1) * batch - group))
    rules = Rules(
        batch=batch,
        group=group,
        staleness=staleness,
        concurrency=draw(st.integers(1, 6)),
        updates=60,
        retries=draw(st.sampled_from((0, 1, 3))),
        stale=draw(st.sampled_from(("drop", "requeue", "pace"))),
        incomplete=draw(st.sampled_from(("drop", "repair"))),
        proximal=draw(st.sampled_from(("keep", "recompute"))),
        room=draw(st.sampled_from(rooms)),
    )
    raw = draw(st.binary(min_size=60 * BITS, max_size=90 * BITS))
    moves = tuple(int.from_bytes(raw[i : i + BITS], "big") for i in range(0, len(raw) - 1, BITS))
    workers, slots, prompts = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 30))
    return Script(rules, workers, slots, prompts, moves)


scheduler_law = law_constructor(scripts, SOURCE)


def live(state: Schedule) -> list[tuple[Name, Any]]:
    """All samples that were admitted and not yet removed, with their seats."""
    return [((n, i, seat.attempt), seat) for n, group in entries(state.groups) for i, seat in enumerate(group.seats)]


def trains(told: Told) -> list[say.Train]:
    """The batches sent to the trainer, without those that are sent again."""
    return [one for one in told.commands if isinstance(one, say.Train) and told.before.phase in (IDLE, RECOMPUTE)]


def budget(here: World) -> int:
    """The number of samples that may still be admitted, by the recorded history."""
    rules, now = here.rules, here.state
    held = sum(len(group.seats) for _, group in entries(now.groups))
    running = sum(seat.status != THERE for _, group in entries(now.groups) for seat in group.seats)
    ahead = (rules.staleness + now.version + 1) * rules.batch - (here.updates * rules.batch + held)
    free: int = min(rules.concurrency - running, ahead)
    return free if isinstance(rules.room, tuple) else min(free, rules.room - held)
