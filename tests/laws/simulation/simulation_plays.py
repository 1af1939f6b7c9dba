"""Runs of simulated rollout workers, for laws: commands are begun, and all events are recorded with their times."""

from collections.abc import Callable
from typing import Any

from attrs import define, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.machine import Command
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.simulation import effects
from purestep.runtime.async_rl.simulation.workers import BARRIER, INTERRUPT, NEXT, Name, SimulationState, Twins
from purestep.runtime.machine.drive import Entry, Finished, Received
from purestep.runtime.machine.simulation import faulty_transport, log_normal


@frozen
class Twinning:
    """The subject of the laws: functions that begin commands and return the next event."""

    begun: Callable[[Twins, SimulationState, int, Command], SimulationState]
    happened: Callable[[Twins, SimulationState], tuple[SimulationState, Entry]]


def own_twinning() -> Twinning:
    """Return the library's own functions."""
    return Twinning(effects.begin_command, effects.happened)


@frozen
class Plot:
    """The parameters of the rollout workers, and the moves."""

    twins: Twins
    moves: tuple[int, ...]


@define
class Story:
    """The commands that were begun, and the events that followed."""

    world: SimulationState
    commands: list[Command]
    begun: list[float]  # when, of each command
    entries: list[tuple[float, Entry]]
    newest: list[tuple[float, int]]  # when which version could be had
    before: list[SimulationState]  # the world before each entry

    def told(self, kind: type, number: int = -1) -> list[tuple[float, Any]]:
        """The events of a kind, of one command if it is given, with their times."""
        found = [(now, entry) for now, entry in self.entries if isinstance(entry, Received)]
        return [(now, one.event) for now, one in found if type(one.event) is kind and number in (-1, one.command)]

    def dispatches(self) -> list[tuple[int, Name, say.Dispatch]]:
        """The samples that were begun: number of the command, name, command."""
        numbered = enumerate(self.commands)
        return [(n, (one.group, one.seat, one.attempt), one) for n, one in numbered if isinstance(one, say.Dispatch)]

    def given_up(self) -> dict[Name, float]:
        """The samples that were cancelled, with their times."""
        aborts = [(one, now) for one, now in zip(self.commands, self.begun, strict=True) if isinstance(one, say.Abort)]
        return {(one.group, one.seat, one.attempt): now for one, now in aborts}


@st.composite
def plots(draw: DrawFn, /, **fixed: Any) -> Plot:
    """Draw rollout workers of any kind on a line without losses; `fixed` settings are not drawn."""
    tokens = log_normal(keys.key(draw(st.integers(0, 1 << 30))), mean=draw(st.sampled_from((3.0, 8.0))), sigma=1.0)
    how: dict[str, Any] = {
        "tokens": tokens,
        "chunk": draw(st.sampled_from((1, 4, 4))),
        "speed": 4.0,
        "load": draw(st.sampled_from((0.0, 0.5))),
        "recompute": draw(st.sampled_from((0.0, 0.25))),
        "publish": draw(st.sampled_from((0.0, 0.5))),
        "weights": draw(st.sampled_from((INTERRUPT, NEXT, BARRIER))),
    }
    moves = draw(st.lists(st.integers(0, 255), min_size=10, max_size=50))
    return Plot(Twins(**(how | fixed)), tuple(moves))


def unsound(plot: Plot, seed: int) -> Plot:
    """Return the same rollout workers on a line that loses most messages."""
    how = {name: getattr(plot.twins, name) for name in ("tokens", "chunk", "speed", "load", "weights")}
    return Plot(Twins(**how, patience=3.0, line=faulty_transport(keys.key(seed), delay=0.25, drop=0.6)), plot.moves)


def played(subject: Twinning, plot: Plot) -> Story:
    """Return the story of a plot, until no command is left."""
    story = Story(SimulationState(), [], [], [], [(0.0, 0)], [])
    for move in plot.moves:
        if move % 8 < 4 and _open(story):
            _happens(subject, plot, story)
        else:
            _begin(subject, plot, story, _command(story, move))
    while _open(story):
        if not _happens(subject, plot, story):
            break
    return story


def _open(story: Story) -> bool:
    finished = sum(isinstance(entry, Finished) for _, entry in story.entries)
    return finished < len(story.commands)


def _happens(subject: Twinning, plot: Plot, story: Story) -> bool:
    story.before.append(story.world)
    try:
        story.world, entry = subject.happened(plot.twins, story.world)
    except ChoiceError:  # nothing is due, though something was begun
        return False
    story.entries.append((story.world.agenda.now, entry))
    if isinstance(entry, Received) and isinstance(entry.event, say.Published):
        story.newest.append((story.world.agenda.now, entry.event.version))
    return True


def _begin(subject: Twinning, plot: Plot, story: Story, command: Command) -> None:
    story.begun.append(story.world.agenda.now)
    story.world = subject.begun(plot.twins, story.world, len(story.commands), command)
    story.commands.append(command)


def _command(story: Story, move: int) -> Command:
    """The next command: samples mostly; one publication at a time."""
    last, samples = story.newest[-1][1], story.dispatches()
    publishing = sum(isinstance(one, say.Publish) for one in story.commands) > last
    if move % 8 == 5 and not publishing:
        return say.Publish(last + 1)
    if move % 8 == 6 and samples:
        return say.Abort(*samples[move // 8 % len(samples)][1], worker=0)
    if move % 8 == 7:
        given: tuple[Command, ...] = (
            say.Train(last, (), last),
            say.Recompute(last, ()),
            say.RetryAfter("again", move / 64),
            say.Report("group", 0, "stale"),
        )
        return given[move // 8 % len(given)]
    return say.Dispatch(len(samples), move // 8 % 3, 0, prompt=len(samples), worker=0, version=last)
