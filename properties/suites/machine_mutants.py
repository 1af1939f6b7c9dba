"""A machine that fetches numbered pages, two at a time, and the ways in which people make such a machine impure."""

from collections.abc import Callable
from typing import Any

import attrs
from attrs import frozen

from ...core.machine import Command, Event, Machine, Started, Stop

Step = Callable[[Any, Event], tuple[Any, tuple[Command, ...]]]


@frozen
class Fetch:
    """Get page number n."""

    n: int


@frozen
class Fetched:
    """Page number n holds this."""

    n: int
    value: int


@frozen
class Fetching:
    """Which page to ask for next, how many answers are awaited, and what came, in the order in which it came."""

    next: int = 0
    awaited: int = 0
    pages: Any = ()


PAGES, AT_ONCE = 6, 2


def fetch_step(state: Fetching, event: Event) -> tuple[Fetching, tuple[Command, ...]]:
    """Files what came and asks for more, until all pages are there."""
    if isinstance(event, Fetched):
        pages = (*state.pages, (event.n, event.value))
        state = attrs.evolve(state, awaited=state.awaited - 1, pages=pages)
    elif not isinstance(event, Started):
        return state, ()
    if len(state.pages) == PAGES:
        return state, (Stop(),)
    more = min(AT_ONCE - state.awaited, PAGES - state.next)
    commands = tuple(Fetch(n) for n in range(state.next, state.next + more))
    return attrs.evolve(state, next=state.next + more, awaited=state.awaited + more), commands


def fetcher() -> Any:
    """The reference: six pages whose content is the square of their number."""
    def handlers() -> dict[type[Any], Callable[[Any], Any]]:
        return {Fetch: lambda command: Fetched(command.n, command.n**2)}

    return Play(Machine(fetch_step), Fetching(), handlers, (Fetched, Fetch))


def _stepping(play: Any, step: Step) -> Any:
    return attrs.evolve(play, machine=Machine(step))


def counts_beside(play: Any) -> Any:
    """Every seventh event is filed twice."""
    events: list[Event] = []

    def step(state: Any, event: Event) -> tuple[Any, tuple[Command, ...]]:
        events.append(event)
        after, commands = play.machine.step(state, event)
        extra = (("seen", len(events)),) if len(events) % 7 == 0 else ()
        return (attrs.evolve(after, pages=(*extra, *after.pages)[:PAGES]) if extra else after), commands

    return _stepping(play, step)


def looks_outside(play: Any) -> Any:
    """Reads a page itself once it is told that it is there."""
    world: dict[int, int] = {}

    def handlers() -> Any:
        world.clear()
        inner = play.handlers()

        def fetch(command: Fetch) -> Fetched:
            answer: Fetched = inner[Fetch](command)
            world[command.n] = answer.value
            return attrs.evolve(answer, value=0)

        return {Fetch: fetch}

    def step(state: Any, event: Event) -> tuple[Any, tuple[Command, ...]]:
        if isinstance(event, Fetched):
            event = attrs.evolve(event, value=world.pop(event.n, -1))
        answer: tuple[Any, tuple[Command, ...]] = play.machine.step(state, event)
        return answer

    return attrs.evolve(play, machine=Machine(step), handlers=handlers)


def opaque_events(play: Any) -> Any:
    """Answers with objects that only this process knows."""

    def handlers() -> Any:
        inner = play.handlers()
        return {Fetch: lambda command: attrs.evolve(inner[Fetch](command), value=object())}

    return attrs.evolve(play, handlers=handlers)


def shares_a_list(play: Any) -> Any:
    """Files pages in a list."""

    def step(state: Any, event: Event) -> tuple[Any, tuple[Command, ...]]:
        after, commands = play.machine.step(state, event)
        shared = state.pages if isinstance(state.pages, list) else []
        if isinstance(event, Fetched):
            shared.append((event.n, event.value))
        return attrs.evolve(after, pages=shared), commands

    return _stepping(play, step)
