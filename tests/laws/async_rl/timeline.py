"""Laws of a timeline's numbers: busy seconds are those covered by some span, whether spans overlap, touch or lie outside.

The subject is a `Timing`: the functions of `runtime.async_rl.scheduler.timeline`. Times are quarters of a second, so that
seconds can be counted cell by cell.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st

from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.async_rl.scheduler import timeline
from purestep.runtime.async_rl.scheduler.timeline import TRAIN, TRAINER, Interval, Shift, Span

SOURCE = "runtime.async_rl.scheduler.timeline: an actor is at work in a second if any of its spans covers it"
CELL = 0.25
Spans = tuple[Span, ...]


@frozen
class Timing:
    """The subject: the functions that turn spans into numbers."""

    merged: Callable[..., Spans]
    shifts: Callable[[Spans, float, float], tuple[Shift, ...]]
    middle: Callable[[Spans, int], Any]


def own_timing() -> Timing:
    """Return the library's own functions."""
    return Timing(timeline.merged, timeline.shifts, timeline.middle)


@frozen
class Scene:
    """Spans, a time window, and a gap."""

    spans: Spans
    window: Interval
    gap: float


def scenes() -> st.SearchStrategy[Scene]:
    """Draw a few spans of two actors that overlap often, in ten seconds."""
    span = st.builds(
        lambda actor, kind, begin, cells, version: Span(actor, kind, begin * CELL, (begin + cells) * CELL, version),
        st.sampled_from((TRAINER, "generator 0")),
        st.sampled_from((TRAIN, "save")),
        st.integers(0, 32),
        st.integers(1, 8),
        st.integers(0, 1),
    )
    window = st.tuples(st.integers(0, 20), st.integers(0, 24)).map(lambda ab: (ab[0] * CELL, (ab[0] + ab[1]) * CELL))
    spans = st.lists(span, min_size=1, max_size=12).map(lambda some: (*some, *_inside(some[0])))
    return st.builds(Scene, spans, window, st.integers(0, 4).map(lambda cells: cells * CELL))


def _inside(span: Span) -> Spans:
    """A span within this one, where there is room."""
    room = span.end - span.begin > 2 * CELL
    return (evolve(span, begin=span.begin + CELL, end=span.end - CELL),) if room else ()


def timeline_laws() -> Suite:
    """The laws of a `Timing`."""
    return Suite("timeline_laws", (_busy(), _share(), _merging(), _gaps(), _middle()))


_law = law_constructor(scenes, SOURCE, most=500)


def cells(spans: Iterable[Span]) -> set[int]:
    """The quarters of a second that some span covers."""
    return {cell for one in spans for cell in range(round(one.begin / CELL), round(one.end / CELL))}


def _busy() -> Law:
    def check(timing: Timing, scene: Scene, seen: Seen) -> None:
        for shift in timing.shifts(scene.spans, 0.0, 10.0):
            own = [one for one in scene.spans if one.actor == shift.actor]
            seen("work that overlaps", len(cells(own)) * CELL < sum(one.end - one.begin for one in own))
            same(f"seconds of {shift.actor} at work", shift.busy, len(cells(own)) * CELL)
            kinds = {kind: len(cells(one for one in own if one.kind == kind)) * CELL for kind in shift.kinds}
            same("seconds of each kind", shift.kinds, kinds)
            same("the kinds there are", set(shift.kinds), {one.kind for one in own})

    claim = "An actor is at work as long as its spans cover, and what overlaps counts once."
    return _law(
        "busy_seconds_are_covered", claim, Mutant("adds up what overlaps", _adds_up), check, "work that overlaps"
    )


def _adds_up(timing: Timing) -> Timing:
    def shifts(spans: Spans, begin: float, end: float) -> tuple[Shift, ...]:
        def busy(actor: str) -> float:
            inside = ((max(begin, one.begin), min(end, one.end)) for one in spans if one.actor == actor)
            return min(end - begin, sum(max(0.0, to - start) for start, to in inside))

        found = timing.shifts(spans, begin, end)
        return tuple(evolve(one, busy=busy(one.actor), idle=end - begin - busy(one.actor)) for one in found)

    return evolve(timing, shifts=shifts)


def _share() -> Law:
    def check(timing: Timing, scene: Scene, seen: Seen) -> None:
        begin, end = scene.window
        for shift in timing.shifts(scene.spans, begin, end):
            own = cells(one for one in scene.spans if one.actor == shift.actor)
            inside = {cell for cell in own if begin <= cell * CELL < end}
            seen("work outside of the time", inside < own)
            require(
                0.0 <= shift.utilisation() <= 1.0, f"{shift.actor} is at work for {shift.utilisation()} of the time"
            )
            same("busy and idle seconds", shift.busy + shift.idle, end - begin)
            same("busy seconds", shift.busy, len(inside) * CELL)

    claim = "Of any stretch of time an actor is at work for a share from 0 to 1, and what lies outside does not count."
    mutant = Mutant("counts what lies outside", _uncut)
    return _law("utilisation_is_a_share", claim, mutant, check, "work outside of the time")


def _uncut(timing: Timing) -> Timing:
    def shifts(spans: Spans, begin: float, end: float) -> tuple[Shift, ...]:
        found = timing.shifts(spans, 0.0, 10.0)
        return tuple(evolve(one, idle=end - begin - one.busy) for one in found)

    return evolve(timing, shifts=shifts)


def _keys(spans: Spans) -> set[tuple[str, str, int]]:
    return {(one.actor, one.kind, one.version) for one in spans}


def _of(spans: Spans, key: tuple[str, str, int]) -> Spans:
    return tuple(one for one in spans if (one.actor, one.kind, one.version) == key)


def _merging() -> Law:
    def check(timing: Timing, scene: Scene, seen: Seen) -> None:
        made = timing.merged(scene.spans)
        same("actors, kinds and versions", _keys(made), _keys(scene.spans))
        for key in _keys(scene.spans):
            old, new = _of(scene.spans, key), sorted(_of(made, key), key=lambda one: one.begin)
            within = any(one.begin < other.begin and other.end < one.end for one in old for other in old)
            seen("one that lies within another", within)
            same(f"what {key} covers", cells(new), cells(old))
            apart = all(one.end < other.begin for one, other in pairwise(new))
            require(apart, f"spans of {key} touch after they were merged: {new}")

    claim = "Merged spans cover the same seconds for each actor, kind and version, and none touches another."
    mutant = Mutant("ends where the one that began last ends", _last_end)
    return _law("merged_spans_cover_the_same", claim, mutant, check, "one that lies within another")


def _last_end(timing: Timing) -> Timing:
    def merged(spans: Spans, *, gap: float = 0.0) -> Spans:
        def end(one: Span) -> float:
            inside = [s for s in _of(spans, (one.actor, one.kind, one.version)) if one.begin <= s.begin <= one.end]
            return max(inside, key=lambda s: (s.begin, s.end)).end

        return tuple(evolve(one, end=end(one)) for one in timing.merged(spans, gap=gap))

    return evolve(timing, merged=merged)


def _gaps() -> Law:
    def check(timing: Timing, scene: Scene, seen: Seen) -> None:
        for key in _keys(scene.spans):
            old = sorted(timing.merged(_of(scene.spans, key)), key=lambda one: one.begin)
            new = sorted(timing.merged(_of(scene.spans, key), gap=scene.gap), key=lambda one: one.begin)
            between = [other.begin - one.end for one, other in pairwise(old)]
            seen("a gap that is closed", any(gap <= scene.gap for gap in between))
            seen("a gap that stays", any(gap > scene.gap for gap in between))
            same("spans left", len(new), 1 + sum(gap > scene.gap for gap in between))
            same("begin and end", (new[0].begin, new[-1].end), (old[0].begin, old[-1].end))
            require(cells(old) <= cells(new), "closing gaps has lost seconds")

    claim = "Gaps up to the one given are closed, wider ones stay."
    mutant = Mutant("closes every gap", _closes_all)
    return _law("gaps_are_closed_by_width", claim, mutant, check, "a gap that is closed", "a gap that stays")


def _closes_all(timing: Timing) -> Timing:
    return evolve(timing, merged=lambda spans, gap=0.0: timing.merged(spans, gap=1e9 if gap else 0.0))


def _middle() -> Law:
    def check(timing: Timing, scene: Scene, seen: Seen) -> None:
        spans = tuple(Span(TRAINER, TRAIN, n + 0.25, n + 0.75, n) for n in range(len(scene.spans)))
        updates = 1 + int(scene.gap / CELL)
        begin, end = timing.middle(spans, updates)
        inside = [one for one in spans if begin <= one.begin and one.end <= end]
        seen("updates before and after it", 2 < len(inside) + 2 <= len(spans))
        same("updates inside", len(inside), min(updates, len(spans)))
        same("from the first to the last of them", (begin, end), (inside[0].begin, inside[-1].end))
        before, after = inside[0].version, spans[-1].version - inside[-1].version
        require(abs(before - after) <= 1, f"{before} updates before, {after} after")

    claim = "The part enlarged has as many updates as asked for, with as many before as after."
    mutant = Mutant("takes the first ones", _first)
    return _law("the_middle_is_in_the_middle", claim, mutant, check, "updates before and after it")


def _first(timing: Timing) -> Timing:
    def middle(spans: Spans, updates: int) -> Any:
        chosen = [one for one in spans if one.kind == TRAIN][:updates]
        return chosen[0].begin, chosen[-1].end

    return evolve(timing, middle=middle)
