"""How a reader pulls one publication over links that break, as a pure machine: what it has, what it asks for, when it is whole.

`step(pull, event) -> (pull, actions)`. A publication is cut into chunks, each with a checksum; its digest, made of these,
names it. The reader asks for a few chunks ahead, checks each that comes, and never writes again to the place of one that
was good. What it has outlives the link: over the next one it asks for what is missing, as long as the publisher, or one that
was started in its place, offers the same publication. Where that is no longer kept it begins with the newest.

Messages may be lost, doubled, damaged or late. Who performs the actions puts a chunk where `Into` says, and nowhere else.
"""

from attrs import evolve, frozen

from ....core.errors import ChoiceError, message
from .words import (
    NONE,
    Action,
    Aside,
    Ask,
    Begin,
    Came,
    Check,
    Closed,
    Coming,
    Cut,
    Event,
    Fetch,
    Give,
    Gone,
    Inquire,
    Into,
    Leave,
    Link,
    Linked,
    Nothing,
    Offered,
    Publication,
    Refuse,
)

BAD = 3  # damaged chunks of one link; behind more the link is made anew


@frozen(kw_only=True)
class Pull:
    """The state of one reader."""

    window: int  # chunks asked for ahead; more are when half of them came
    linked: bool = False
    wants: tuple[int, ...] = ()  # (the version to be newer than,) while a fetch is under way
    inquiries: int = 0  # made so far
    inquired: bool = False  # the last of them, over this link, has no answer yet
    offered: bool = False  # the goal was offered since this fetch began, so that it may be given
    goal: Publication = NONE  # what is being pulled
    have: int = 0  # bit i: chunk i is in its place, and good
    asked: tuple[int, ...] = ()  # over this link, and still to come
    coming: int = -1  # the chunk whose bytes are written to its place now
    damaged: int = 0  # chunks of this link that were
    last: int = -1  # the newest version given


Stepped = tuple[Pull, tuple[Action, ...]]


def pull(window: int = 8) -> Pull:
    """A reader without a link. Raises: ChoiceError.

    >>> pull(2).have
    0
    """
    if window < 1:
        remedy = "ask for some chunks at a time"
        raise ChoiceError(message("pull: window", got=window, wanted="at least 1", remedy=remedy))
    return Pull(window=window)


def step(state: Pull, event: Event) -> Stepped:
    """The next state, and what is to be done, in this order.

    >>> state, _ = step(pull(2), Linked())
    >>> state, actions = step(state, Fetch(-1))
    >>> actions
    (Inquire(inquiry=1, newer_than=-1, digest=''),)
    >>> state, actions = step(state, Offered(1, Publication(4, "d", 3)))
    >>> actions[1:]
    (Ask(digest='d', chunks=(0, 1)),)
    >>> state, actions = step(state, Coming("d", 0))
    >>> step(state, Came(True))[1]
    (Ask(digest='d', chunks=(2,)),)
    """
    if isinstance(event, Fetch):
        state = evolve(state, wants=(event.newer_than,), offered=False)
        return _inquire(state) if state.linked else (state, (Link(),))
    if isinstance(event, Leave):
        return evolve(state, wants=(), inquired=False, offered=False), ()
    if isinstance(event, Linked):
        return _inquire(evolve(_unlinked(state), linked=True))
    if isinstance(event, Cut):
        return _relink(state)
    if isinstance(event, Closed):
        return evolve(_unlinked(state), wants=()), (Give(NONE),) if state.wants else ()
    if isinstance(event, Offered):
        return _offered(state, event.publication) if _due(state, event.inquiry) else (state, ())
    if isinstance(event, Nothing):
        return _nothing(state, event.version) if _due(state, event.inquiry) else (state, ())
    if isinstance(event, Coming):
        return _coming(state, event)
    if isinstance(event, Came):
        return _came(state, event.good)
    if isinstance(event, Gone):
        return _gone(state, event.digest)
    return _judged(state, event.good)


def _unlinked(state: Pull) -> Pull:
    return evolve(state, linked=False, inquired=False, asked=(), coming=-1, damaged=0)


def _relink(state: Pull) -> Stepped:
    return _unlinked(state), (Link(),) if state.wants else ()


def _inquire(state: Pull) -> Stepped:
    """Within a fetch the goal may be gone on with; a new fetch must hear first whether there is something newer."""
    if not state.wants:
        return state, ()
    digest = state.goal.digest if state.offered else ""
    number = state.inquiries + 1
    return evolve(state, inquiries=number, inquired=True), (Inquire(number, state.wants[0], digest),)


def _due(state: Pull, inquiry: int) -> bool:
    return state.inquired and inquiry == state.inquiries and bool(state.wants)


def _offered(state: Pull, publication: Publication) -> Stepped:
    if publication.version <= state.wants[0]:
        return _nothing(state, publication.version)
    if publication.version < state.last:
        return _refused(state, publication.version)
    begin: tuple[Action, ...] = ()
    state = evolve(state, inquired=False, offered=True)
    if publication != state.goal:
        state = evolve(state, goal=publication, have=0, asked=(), coming=-1)
        begin = (Begin(publication),)
    state, more = _onwards(state)
    return state, (*begin, *more)


def _nothing(state: Pull, version: int) -> Stepped:
    if 0 <= version < state.last:
        return _refused(state, version)
    return evolve(state, wants=(), inquired=False), (Give(NONE),)


def _refused(state: Pull, version: int) -> Stepped:
    return evolve(state, wants=(), inquired=False), (Refuse(version),)


def missing(state: Pull) -> int:
    """Bit i: chunk i of the goal is not there.

    >>> missing(Pull(window=1, goal=Publication(0, "d", 3), have=0b010))
    5
    """
    return ((1 << state.goal.chunks) - 1) & ~state.have


def _onwards(state: Pull) -> Stepped:
    """Asks for the first chunks that are missing and not asked for, many at once; or has the whole looked at."""
    if not (state.offered and state.linked):
        return state, ()
    left = missing(state)
    if not left:
        return state, (Check(),)
    for chunk in state.asked:
        left &= ~(1 << chunk)
    more: list[int] = []
    room = state.window - len(state.asked) if len(state.asked) <= state.window // 2 else 0
    while left and len(more) < room:
        lowest = left & -left
        more.append(lowest.bit_length() - 1)
        left ^= lowest
    asks = (Ask(state.goal.digest, tuple(more)),) if more else ()
    return evolve(state, asked=(*state.asked, *more)), asks


def _coming(state: Pull, event: Coming) -> Stepped:
    """Bytes have a place only where the chunk is of the goal and not there yet."""
    ours = event.digest == state.goal.digest and 0 <= event.chunk < state.goal.chunks
    if not ours or state.have >> event.chunk & 1 or state.coming >= 0:
        return state, (Aside(),)
    return evolve(state, coming=event.chunk), (Into(event.chunk),)


def _came(state: Pull, good: bool) -> Stepped:
    if state.coming < 0:
        return state, ()
    chunk, asked = state.coming, tuple(each for each in state.asked if each != state.coming)
    state = evolve(state, coming=-1, asked=asked)
    if good:
        return _onwards(evolve(state, have=state.have | 1 << chunk))
    state = evolve(state, damaged=state.damaged + 1)
    return _relink(state) if state.damaged > BAD else _onwards(state)


def _gone(state: Pull, digest: str) -> Stepped:
    if digest != state.goal.digest:
        return state, ()
    return _inquire(evolve(state, goal=NONE, have=0, asked=(), coming=-1, offered=False))


def _judged(state: Pull, good: bool) -> Stepped:
    """A whole without its digest was put together wrongly, nobody can say where: all of it is asked for again."""
    if not good:
        return _relink(evolve(state, have=0))
    found = state.goal
    ended = evolve(state, wants=(), offered=False, goal=NONE, have=0, last=max(state.last, found.version))
    return ended, (Give(found),)
