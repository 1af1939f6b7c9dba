"""Laws of a replay buffer: which samples it holds, which may be drawn, and that each leaves once.

The subject is a `Replaying`, the rules of `runtime.effects.replay_buffer`; a Python list of samples is the reference.
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen, mutable
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.core import keys
from purestep.core.record import replace, stack
from purestep.core.tree import tree_map
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.effects import replay_buffer

# --- mutants ---
# Common errors in replay buffers: each an edit of one of the rules.


def ageless(subject: Any) -> Any:
    """Ignore the age of samples in draws."""
    return evolve(subject, draw=lambda *args, max_age=(), uses=(): subject.draw(*args, uses=uses))


def takes_some(subject: Any) -> Any:
    """Count uses of all samples even if there are too few for the batch."""

    def draw(shelf: Any, version: Any, key: Tensor, count: int, **limits: Any) -> Any:
        after, places, enough = subject.draw(shelf, version, key, count, **limits)
        few = (~enough).to(torch.int64)
        return replace(after, uses=after.uses + few * after.held), places, enough

    return evolve(subject, draw=draw)


def counts_places(subject: Any) -> Any:
    """Count an empty place that is filled as overwritten."""

    def add(shelf: Any, version: Tensor) -> Any:
        after, places = subject.add(shelf, version)
        lost = torch.minimum(after.added, shelf.overwritten + version.shape[-1])
        return replace(after, overwritten=lost), places

    return evolve(subject, add=add)


def begins_again(subject: Any) -> Any:
    """Keep each batch contiguous in the ring."""

    def add(shelf: Any, version: Tensor) -> Any:
        capacity, count = shelf.held.shape[-1], version.shape[-1]
        fits = shelf.next + count <= capacity
        return subject.add(replace(shelf, next=torch.where(fits, shelf.next, 0)), version)

    return evolve(subject, add=add)


def neighbours(subject: Any) -> Any:
    """Draw one place, and take its neighbours for the rest of the batch."""

    def draw(shelf: Any, version: Any, key: Tensor, count: int, **limits: Any) -> Any:
        after, places, enough = subject.draw(shelf, version, key, count, **limits)
        there = torch.sort((~shelf.held).to(torch.int8), stable=True).indices
        row = (places[..., :1] + torch.arange(count)) % torch.clamp(shelf.held.sum(-1), min=1)[..., None]
        return after, there.gather(-1, row), enough

    return evolve(subject, draw=draw)


def in_place(subject: Any) -> Any:
    """Update the uses in place."""

    def draw(shelf: Any, version: Any, key: Tensor, count: int, **limits: Any) -> Any:
        after, places, enough = subject.draw(shelf, version, key, count, **limits)
        shelf.uses.copy_(after.uses)
        return after, places, enough

    return evolve(subject, draw=draw)


def with_replacement(subject: Any) -> Any:
    """Draw the samples of a batch with replacement."""

    def draw(shelf: Any, version: Any, key: Tensor, count: int, **limits: Any) -> Any:
        after, places, enough = subject.draw(shelf, version, key, count, **limits)
        twice = torch.where(key[..., :1] % 2 == 0, places[..., :1], places)
        return after, twice, enough

    return evolve(subject, draw=draw)


def remembers_uses(subject: Any) -> Any:
    """Keep the count of uses of a place when another sample is written to it."""

    def add(shelf: Any, version: Tensor) -> Any:
        after, places = subject.add(shelf, version)
        return replace(after, uses=shelf.uses), places

    return evolve(subject, add=add)


def never_consumes(subject: Any) -> Any:
    """Ignore the limit on uses."""
    return evolve(subject, draw=lambda *args, max_age=(), uses=(): subject.draw(*args, max_age=max_age))


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "draws with replacement": with_replacement,
    "does not forget the uses of what it overwrites": remembers_uses,
    "never uses a sample up": never_consumes,
}


# --- laws ---


SOURCE = "runtime.effects.replay_buffer: places in a ring, drawn uniformly"
CAPACITY = 4
DRAWS = 1200  # of the law about uniformity


@frozen
class Replaying:
    """The subject: functions that make a replay buffer, add to it, and draw from it."""

    empty: Callable[[int], Any]
    add: Callable[[Any, Tensor], tuple[Any, Tensor]]
    draw: Callable[..., tuple[Any, Tensor, Tensor]]


def own_replaying() -> Replaying:
    """Return the library's own functions."""
    return Replaying(replay_buffer.empty_buffer, replay_buffer.add_samples, replay_buffer.draw)


@frozen
class Story:
    """Limits, and acts: (samples to add or -1 to draw, samples to draw, increase of the version, a seed)."""

    max_age: Any
    uses: Any
    acts: tuple[tuple[int, int, int, int], ...]


def stories() -> SearchStrategy[Story]:
    """Draw stories of a replay buffer with four places."""
    act = st.tuples(st.integers(-3, 3), st.integers(1, 3), st.integers(0, 1), st.integers(0, 999))
    acts = st.lists(act, min_size=6, max_size=16).map(tuple)
    limits = st.sampled_from(((), 1, 2))
    return st.builds(Story, max_age=limits, uses=limits, acts=acts)


@mutable
class Sample:
    """The expected state of one sample."""

    place: int
    version: int
    uses: int = 0


@frozen
class Scene:
    """The result of one act: the buffer after it, the expected samples before it, and the draw."""

    version: int
    shelf: Any
    before: list[Sample]
    drew: tuple[list[int], bool, int] | None  # places, enough, asked


def told(subject: Replaying, story: Story) -> tuple[list[Scene], dict[str, int]]:
    """The scenes of a story, and the expected counts at its end: added, overwritten, expired, consumed."""
    shelf, version = subject.empty(CAPACITY), 0
    held: list[Sample] = []
    scenes: list[Scene] = []
    counts: dict[str, int] = dict.fromkeys(("added", "overwritten", "expired", "consumed"), 0)
    next_place = 0
    for add, count, onward, seed in story.acts:
        version += onward
        before = [Sample(one.place, one.version, one.uses) for one in held]
        drew = None
        if add > 0:
            shelf, _ = subject.add(shelf, torch.full((add,), version))
            for _ in range(add):
                kept = [one for one in held if one.place != next_place]
                counts["overwritten"] += len(held) - len(kept)
                held = [*kept, Sample(next_place, version)]
                next_place = (next_place + 1) % CAPACITY
                counts["added"] += 1
        else:
            shelf, places, enough = subject.draw(
                shelf, version, keys.key(seed), count, max_age=story.max_age, uses=story.uses
            )
            drew = ([int(place) for place in places], bool(enough), count)
            held = _after_draw(held, drew, story, version, counts)
        scenes.append(Scene(version, shelf, before, drew))
    return scenes, counts


def _young(held: list[Sample], story: Story, version: int) -> list[Sample]:
    limit = story.max_age
    return [one for one in held if not isinstance(limit, int) or version - one.version <= limit]


def _after_draw(held: list[Sample], drew: Any, story: Story, version: int, counts: dict[str, int]) -> list[Sample]:
    young = _young(held, story, version)
    counts["expired"] += len(held) - len(young)
    if len(young) >= drew[2]:
        for one in young:
            one.uses += one.place in drew[0]
    kept = [one for one in young if not isinstance(story.uses, int) or one.uses < story.uses]
    counts["consumed"] += len(young) - len(kept)
    return kept


def experience_laws() -> Suite:
    """The laws of a replay buffer's rules."""
    return Suite("experience_laws", (_drawn(), _enough(), _accounts(), _newest(), _uniform(), _batch()))


_law = law_constructor(stories, SOURCE, most=500)


def _drawn() -> Law:
    def check(subject: Replaying, story: Story, seen: Seen) -> None:
        for scene in told(subject, story)[0]:
            if scene.drew is None or not scene.drew[1]:
                continue
            places, young = scene.drew[0], _young(scene.before, story, scene.version)
            seen("a draw beside a sample too old", len(young) < len(scene.before))
            seen("a draw of several", len(places) > 1)
            require(
                len(set(places)) == len(places) == scene.drew[2], f"places {places}, wanted {scene.drew[2]} distinct"
            )
            possible = sorted(one.place for one in young)
            require(set(places) <= set(possible), f"drawn from places {places}, wanted some of {possible}")

    claim = "What is drawn is held, young enough, not yet used up, and drawn once in a batch."
    mutant = Mutant("looks at the age where samples are added alone", ageless)
    needs = ("a draw beside a sample too old", "a draw of several")
    return _law("drawn_may_be_drawn", claim, mutant, check, *needs, share=0.01)


def _enough() -> Law:
    def check(subject: Replaying, story: Story, seen: Seen) -> None:
        for scene in told(subject, story)[0]:
            if scene.drew is not None:
                there = len(_young(scene.before, story, scene.version))
                seen("too few", 0 < there < scene.drew[2])
                wanted = there >= scene.drew[2]
                require(scene.drew[1] == wanted, f"{there} samples for {scene.drew[2]}: enough is {scene.drew[1]}")
                used = int(scene.shelf.uses.sum()) if wanted else 0
                require(used >= 0 and (wanted or _unused(scene)), "a draw that gave nothing used samples up")

    claim = "A draw gives as many samples as asked for or none, and none is used up by none."
    mutant = Mutant("uses up what there is, though it is too few", takes_some)
    return _law("all_or_none_is_drawn", claim, mutant, check, "too few")


def _unused(scene: Scene) -> bool:
    return all(int(scene.shelf.uses[one.place]) == one.uses for one in scene.before)


def _accounts() -> Law:
    def check(subject: Replaying, story: Story, seen: Seen) -> None:
        scenes, counts = told(subject, story)
        for scene in scenes:
            shelf = scene.shelf
            left = int(shelf.held.sum() + shelf.overwritten + shelf.expired + shelf.consumed)
            require(int(shelf.added) == left, f"{int(shelf.added)} added, {left} held or gone")
        for name, wanted in counts.items():
            seen(name, wanted > 0)
            got = int(getattr(scenes[-1].shelf, name))
            require(got == wanted, f"{name}: counted {got}, wanted {wanted}")

    claim = (
        "Every sample is held, or left once: overwritten, too old, or drawn as often as allowed; and it is counted so."
    )
    mutant = Mutant("counts every place that is written as overwritten", counts_places)
    return _law("every_sample_leaves_once", claim, mutant, check, "added", "overwritten", "expired", "consumed")


def _newest() -> Law:
    def check(subject: Replaying, story: Story, seen: Seen) -> None:
        shelf, written = subject.empty(CAPACITY), []
        for number, (add, _, _, _) in enumerate(story.acts):
            count = abs(add)
            if count:
                shelf, places = subject.add(shelf, torch.full((count,), number))
                require(len(set(places.tolist())) == count, f"{count} samples went to places {places.tolist()}")
                written += [number] * count
                there = sorted(shelf.version[shelf.held].tolist())
                wanted = written[-CAPACITY:]
                seen("a sample overwritten", len(written) > CAPACITY)
                require(there == wanted, f"versions {there} are held, wanted the newest, {wanted}")

    claim = "What is overwritten is the oldest: as many of the newest samples are held as there are places."
    mutant = Mutant("begins again at the first place when samples do not fit behind the last", begins_again)
    return _law("newest_are_held", claim, mutant, check, "a sample overwritten")


def _uniform() -> Law:
    def check(subject: Replaying, story: Story, seen: Seen) -> None:
        shelf, _ = subject.add(subject.empty(CAPACITY), torch.zeros(3, dtype=torch.int64))
        many = keys.split(keys.key(story.acts[0][3]), DRAWS)
        places = torch.vmap(lambda key: subject.draw(shelf, 0, key, 2)[1])(many)
        pairs = torch.bincount((places * torch.tensor([4, 1])).sum(-1), minlength=16).to(torch.float64)
        expected = DRAWS / 6  # ordered pairs of three samples
        distance = float(((pairs[[1, 2, 4, 6, 8, 9]] - expected) ** 2).sum() / expected)
        seen.measure("chi squared", distance)
        require(
            distance < 35.0, f"{pairs.tolist()} draws of pairs: chi squared {distance:.1f} with 5 degrees of freedom"
        )

    claim = "Each pair of samples is drawn equally often (chi squared below 35: by chance once in 700,000 runs)."
    mutant = Mutant("takes neighbours", neighbours)
    return _law("draws_are_uniform", claim, mutant, check, most=20)


def _batch() -> Law:
    def check(subject: Replaying, story: Story, seen: Seen) -> None:
        shelves = [scene.shelf for scene in told(subject, story)[0]][:3]
        many = keys.split(keys.key(1), len(shelves))

        def act(shelf: Any, key: Tensor) -> Any:
            drawn = subject.draw(shelf, 2, key, 2, max_age=story.max_age, uses=story.uses)
            return subject.add(drawn[0], torch.tensor([3, 3])), drawn[1:]

        singles = [act(shelf, key) for shelf, key in zip(shelves, many, strict=True)]
        before = tree_map(torch.clone, shelves[0])
        same("a batch of shelves", torch.vmap(act)(stack(shelves), many), stack(singles))
        same("a shelf that was drawn from", shelves[0], before)

    claim = "A batch of replays is its singles, and a step writes to none of its inputs."
    mutant = Mutant("writes to the shelf it was given", in_place)
    return _law("replays_are_values", claim, mutant, check, most=50)
