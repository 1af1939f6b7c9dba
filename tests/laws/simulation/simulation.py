"""Laws of simulated rollout workers: work ends once, samples are their chunks, and weights arrive by the chosen method.

The subject is a `Twinning`: the pure functions of `runtime.async_rl.simulation.effects`.
"""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from attrs import evolve
from hypothesis import strategies as st

from purestep.core.machine import Command, tag_of
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.simulation.workers import BARRIER, INTERRUPT, NEXT, Name, SimulationState, Twins
from purestep.runtime.machine.drive import Entry, Finished, Received

from .simulation_plays import Plot, Story, Twinning, played, plots, unsound

# --- mutants ---
# Common errors in simulated rollout workers.


Edit = Callable[[Twinning], Twinning]


def _as_if(change: Callable[[Twins], Twins]) -> Edit:
    """The edit that replaces the rollout workers' parameters: `change(twins)`."""

    def make(subject: Twinning) -> Twinning:
        return Twinning(
            lambda twins, world, number, command: subject.begun(change(twins), world, number, command),
            lambda twins, world: subject.happened(change(twins), world),
        )

    return make


def _telling(change: Callable[[SimulationState, Any], Any]) -> Edit:
    """The edit of each event: `change(world, event)`."""

    def make(subject: Twinning) -> Twinning:
        def happened(twins: Twins, world: SimulationState) -> tuple[SimulationState, Entry]:
            after, entry = subject.happened(twins, world)
            return after, evolve(entry, event=change(after, entry.event)) if isinstance(entry, Received) else entry

        return evolve(subject, happened=happened)

    return make


def forgets_the_command(subject: Twinning) -> Twinning:
    """Drop the end of a cancelled sample's command, so that it never finishes."""

    def happened(twins: Twins, world: SimulationState) -> tuple[SimulationState, Entry]:
        while True:
            world, entry = subject.happened(twins, world)
            if not (isinstance(entry, Finished) and entry.kind == say.Dispatch.TAG and entry.command % 3 == 0):
                return world, entry

    return evolve(subject, happened=happened)


def goes_on_regardless(subject: Twinning) -> Twinning:
    """Ignore aborts."""

    def begun(twins: Twins, world: SimulationState, number: int, command: Command) -> SimulationState:
        nobody = evolve(command, group=-1) if isinstance(command, say.Abort) else command
        return subject.begun(twins, world, number, nobody)

    return evolve(subject, begun=begun)


def goes_on_from_the_last(subject: Twinning) -> Twinning:
    """Continue from the last agenda that was returned, whatever world is given."""
    last = list[SimulationState]()

    def happened(twins: Twins, world: SimulationState) -> tuple[SimulationState, Entry]:
        stale = bool(last) and world.agenda.now < last[-1].agenda.now
        after, entry = subject.happened(twins, last[-1] if stale and last[-1].agenda.items else world)
        last.append(after)
        return after, entry

    return evolve(subject, happened=happened)


def _of_the_newest(world: SimulationState, event: Any) -> Any:
    if isinstance(event, say.TokenChunk):
        return evolve(event, version=world.newest)
    return evolve(event, tail=world.newest) if isinstance(event, say.Finished) else event


def _without_the_last(world: SimulationState, event: Any) -> Any:
    return evolve(event, tokens=event.tokens - 1) if isinstance(event, say.Finished) and event.tokens > 1 else event


in_the_middle = _telling(_of_the_newest)
drops_the_last = _telling(_without_the_last)
endless_patience = _as_if(lambda twins: evolve(twins, patience=float("inf")))

MUTANTS: dict[str, Edit] = {
    "takes new weights in no time": _as_if(lambda twins: evolve(twins, load=0.0)),
    "publishes while others are under way, where all are to be waited for": _as_if(
        lambda twins: evolve(twins, weights=NEXT if twins.weights == BARRIER else twins.weights)
    ),
    "never takes new weights in the middle of a sample": _as_if(
        lambda twins: evolve(twins, weights=NEXT if twins.weights == INTERRUPT else twins.weights)
    ),
}


# --- laws ---


SOURCE = "runtime.async_rl.simulation.workers: three ways to new weights, chunks at one speed"
SHORT = 1e-9  # how far sums of seconds may be apart


def twin_laws() -> Suite:
    """The laws of a `Twinning`."""
    return Suite("twin_laws", (_ends(), _chunks(), _weights(), _given_up(), _patience(), _values()))


_law = law_constructor(plots, SOURCE)


def _ends() -> Law:
    def check(subject: Twinning, plot: Plot, seen: Seen) -> None:
        story = played(subject, plot)
        ended = Counter(entry.command for _, entry in story.entries if isinstance(entry, Finished))
        same("how often each command ended", [ended[n] for n in range(len(story.commands))], [1] * len(story.commands))
        kinds = {entry.command: entry.kind for _, entry in story.entries}
        same("the kinds", [kinds[n] for n in range(len(kinds))], [tag_of(type(one)) for one in story.commands])
        times = [now for now, _ in story.entries]
        require(all(sooner <= later for sooner, later in pairwise(times)), "time goes back")
        for command, answer in (
            (say.Train, say.Consumed),
            (say.Recompute, say.Recomputed),
            (say.Publish, say.Published),
        ):
            asked = sorted(one.version for one in story.commands if isinstance(one, command))
            seen(f"a {command.__name__}", asked)
            same(f"answers to {command.__name__}", sorted(event.version for _, event in story.told(answer)), asked)
        for number, one in enumerate(story.commands):
            if isinstance(one, say.RetryAfter):
                (when, _), *_ = story.told(say.Due, number)
                require(abs(when - story.begun[number] - one.seconds) < SHORT, f"{one} was over at {when}")

    claim = "Every command ends once; the trainer answers each time, and pauses are as long as was said."
    mutant = ("forgets the command of a sample now and then", forgets_the_command)
    return _law("what_is_begun_ends_once", claim, mutant, check, "a Train", "a Recompute", "a Publish")


def _whole(story: Story) -> list[tuple[int, Name, say.Dispatch, float, say.Finished]]:
    """The samples that were finished: command, name, and the end."""
    return [
        (number, name, one, *end)
        for number, name, one in story.dispatches()
        for end in story.told(say.Finished, number)
    ]


def _begins(plot: Plot, story: Story, number: int, end: say.Finished) -> float:
    """The time when a sample began: with a barrier it may be later than its command."""
    came = next(at for at, version in story.newest if version == end.head)
    return max(story.begun[number], came) if plot.twins.weights == BARRIER else story.begun[number]


def _chunks() -> Law:
    def check(subject: Twinning, plot: Plot, seen: Seen) -> None:
        twins, story = plot.twins, played(subject, plot)
        for number, name, one, when, end in _whole(story):
            chunks = [event for _, event in story.told(say.TokenChunk, number)]
            wanted = max(1, round(twins.tokens(one.prompt, one.seat, one.attempt)))
            same("the tokens", end.tokens, wanted)
            same("how many messages", len(chunks), -(-wanted // twins.chunk) - 1)
            same(
                "tokens by message",
                [event.tokens for event in chunks],
                [twins.chunk * (n + 1) for n in range(len(chunks))],
            )
            versions = [*(event.version for event in chunks), end.tail]
            same("the oldest version", end.head, versions[0])
            changes = sum(old != new for old, new in pairwise(versions))
            seen("new weights that take time", changes and twins.load)
            start = _begins(plot, story, number, end)
            took = wanted / twins.speed + changes * twins.load
            require(abs(when - start - took) < SHORT, f"{name} took {when - start} s, wanted {took}")

    claim = "A sample has its tokens, in chunks, at its speed; each change of weights takes the time to load them."
    return _law(
        "samples_are_their_chunks",
        claim,
        ("loses the last token", drops_the_last),
        check,
        "new weights that take time",
        inputs=plots(load=0.5),
    )


def _weights() -> Law:
    def check(subject: Twinning, plot: Plot, seen: Seen) -> None:
        way, story = plot.twins.weights, played(subject, plot)

        def there(at: float) -> set[int]:
            """The versions that were the newest at a time: two where one came just then."""
            older = [version for when, version in story.newest if when < at - SHORT]
            return {max(older, default=0), *(version for when, version in story.newest if abs(when - at) <= SHORT)}

        for number, name, _, when, end in _whole(story):
            start = _begins(plot, story, number, end)
            told = [*story.told(say.TokenChunk, number), (when, end)]
            versions = [getattr(event, "version", end.tail) for _, event in told]
            under_way = [at for at, _ in story.newest if start + SHORT < at < when - SHORT]
            seen(f"new weights under way, {way}", under_way)
            require(end.head in there(start), f"{name} began with version {end.head}, wanted {there(start)}")
            require(way != BARRIER or not under_way, f"new weights came at {under_way}, {name} was under way")
            if way != INTERRUPT:
                same("the versions of a sample", {*versions}, {end.head})
                continue
            for (before, _), version in zip(told, versions[1:], strict=False):  # it is made by what was there then
                require(version in there(before), f"{name} was made by version {version}, wanted {there(before)}")

    claim = (
        "New weights are taken at the end of a chunk, of a sample, or of all samples, and not before they are there."
    )
    needs = ("new weights under way, interrupt", "new weights under way, next")
    mutant = ("has a chunk made by weights that came after it was begun", in_the_middle)
    return _law(
        "weights_come_as_chosen", claim, mutant, check, *needs, inputs=plots(publish=0.5, speed=1.0), share=0.01
    )


def _given_up() -> Law:
    def check(subject: Twinning, plot: Plot, seen: Seen) -> None:
        story = played(subject, plot)
        given_up = story.given_up()
        numbers = {number: given_up[name] for number, name, _ in story.dispatches() if name in given_up}
        cut = {number for number in numbers if not story.told(say.Finished, number)}
        seen("a sample that was given up under way", cut)
        aborted = {
            entry.command: place for place, (_, entry) in enumerate(story.entries) if entry.kind == say.Abort.TAG
        }
        for place, (_, entry) in enumerate(story.entries):
            if isinstance(entry, Received) and entry.command in numbers:
                name = next(name for number, name, _ in story.dispatches() if number == entry.command)
                ends = [aborted[n] for n, one in enumerate(story.commands) if n in aborted and _of(one) == name]
                require(place < min(ends), f"{name} was given up, and {entry.event} told after it")

    claim = "Of a sample that is given up nothing more is told."
    mutant = ("goes on with what was given up", goes_on_regardless)
    return _law("given_up_is_silent", claim, mutant, check, "a sample that was given up under way")


def _of(abort: say.Abort) -> Name:
    return (abort.group, abort.seat, abort.attempt)


def _patience() -> Law:
    def check(subject: Twinning, drawn: tuple[Plot, int], seen: Seen) -> None:
        plot = unsound(*drawn)
        story = played(subject, plot)
        for number, name, _ in story.dispatches():
            ends = story.told(say.Finished, number) + story.told(say.TimedOut, number)
            seen("an end that was lost", story.told(say.TimedOut, number))
            require(bool(ends) or name in story.given_up(), f"{name} never ended")

    claim = "On a line that loses messages every sample is finished, timed out, or given up."
    mutant = ("waits for ever", endless_patience)
    inputs = st.tuples(plots(), st.integers(0, 1 << 30))
    return _law("patience_ends", claim, mutant, check, "an end that was lost", inputs=inputs)


def _values() -> Law:
    def check(subject: Twinning, plot: Plot, seen: Seen) -> None:
        story = played(subject, plot)
        seen("several events", len(story.entries) > 4)
        for world, (now, entry) in reversed([*zip(story.before, story.entries, strict=False)]):
            after, again = subject.happened(plot.twins, world)
            require((after.agenda.now, again) == (now, entry), f"asked again, {again} happens and not {entry}")

    claim = "A world is a value: asked again, in any order, the same happens next."
    mutant = ("goes on from the last world it made", goes_on_from_the_last)
    return _law("worlds_are_values", claim, mutant, check, "several events")
