"""Pulls as people get them wrong: each an edit around right rules."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from ..runtime.effects.transfer import words as word
from ..runtime.effects.transfer.rules import Pull, missing
from ..runtime.effects.transfer.words import (
    NONE,
    Ask,
    Coming,
    Cut,
    Fetch,
    Give,
    Gone,
    Into,
    Judged,
    Linked,
    Publication,
)


def _step(rules: Any, edit: Callable[[Any, Pull, Any], Any]) -> Any:
    """The rules with another step: `edit(right step, state, event)`."""
    return evolve(rules, step=lambda state, event: edit(rules.step, state, event))


def trusts_the_link(rules: Any) -> Any:
    """Looks at no checksum, neither of a chunk nor of the whole."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        return step(state, evolve(event, good=True) if isinstance(event, word.Came | Judged) else event)

    return _step(rules, edit)


def counts_itself(rules: Any) -> Any:
    """Has no need of the publisher's numbers."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        after, actions = step(state, event)

        def renamed(action: Any) -> Any:
            if isinstance(action, Give) and action.publication != NONE:
                return Give(evolve(action.publication, version=state.last + 1))
            return action

        return after, tuple(renamed(action) for action in actions)

    return _step(rules, edit)


def forgets_the_last(rules: Any) -> Any:
    """Makes a new reader for a new link."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        return step(evolve(state, last=-1) if isinstance(event, Linked) else state, event)

    return _step(rules, edit)


def waits_for_the_last(rules: Any) -> Any:
    """Takes what is older for nothing new."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        after, actions = step(state, event)
        return after, tuple(Give(NONE) if isinstance(action, word.Refuse) else action for action in actions)

    return _step(rules, edit)


def finishes_first(rules: Any) -> Any:
    """Inquires for what it was pulling, whoever began it."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        after, actions = step(state, event)
        return after, tuple(
            evolve(action, digest=after.goal.digest) if isinstance(action, word.Inquire) else action
            for action in actions
        )

    return _step(rules, edit)


def zero_is_none(rules: Any) -> Any:
    """Asks `if version`."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        return step(state, Fetch(event.newer_than or -1) if isinstance(event, Fetch) else event)

    return _step(rules, edit)


def keeps_the_first(rules: Any) -> Any:
    """Drops the newest where the shelf is full."""

    def shelved(kept: Any, new: Publication, keep: int) -> Any:
        return (*rules.shelved(kept, new, keep + 1)[: keep - 1], new)

    return evolve(rules, shelved=shelved)


def begins_anew(rules: Any) -> Any:
    """Throws away what it has with the link."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        return step(evolve(state, have=0) if isinstance(event, Linked) else state, event)

    return _step(rules, edit)


def writes_all(rules: Any) -> Any:
    """Finds the place of a chunk by its number."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        if isinstance(event, Coming) and event.chunk < state.goal.chunks:
            return evolve(state, coming=event.chunk), (Into(event.chunk),)
        return step(state, event)

    return _step(rules, edit)


def asks_for_all(rules: Any) -> Any:
    """Leaves it to the link to hold what is on its way."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        after, actions = step(evolve(state, window=max(1, state.goal.chunks, 99)), event)
        return evolve(after, window=state.window), actions

    return _step(rules, edit)


def never_gives_up(rules: Any) -> Any:
    """Does not count."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        after, actions = step(evolve(state, damaged=0), event)
        return after, actions

    return _step(rules, edit)


def waits_for_old_asks(rules: Any) -> Any:
    """Keeps what was asked for when the link goes."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        after, actions = step(state, event)
        return (evolve(after, asked=state.asked) if isinstance(event, Cut | Linked) else after), actions

    return _step(rules, edit)


def deaf_to_gone(rules: Any) -> Any:
    """Knows no such message."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        return (state, ()) if isinstance(event, Gone) else step(state, event)

    return _step(rules, edit)


def any_version(rules: Any) -> Any:
    """Leaves it to the caller to count."""

    def shelved(kept: Any, new: Publication, keep: int) -> Any:
        return (*kept, new)[-keep:]

    return evolve(rules, shelved=shelved)


def offers_the_oldest(rules: Any) -> Any:
    """Offers what most readers have."""

    def answered(kept: Any, asked: Any) -> Any:
        found = rules.answered(kept, asked)
        older = [each for each in kept if each.version > asked.newer_than]
        return word.Offered(asked.inquiry, older[0]) if isinstance(found, word.Offered) and older else found

    return evolve(rules, answered=answered)


def keeps_what_it_has(rules: Any) -> Any:
    """Begins another publication with the chunks of the one before."""

    def edit(step: Any, state: Pull, event: Any) -> Any:
        after, actions = step(state, event)
        begun = [action for action in actions if isinstance(action, word.Begin)]
        if not begun or not state.have:
            return after, actions
        left = tuple(i for i in range(after.goal.chunks) if missing(evolve(after, have=state.have)) >> i & 1)
        return evolve(after, have=state.have, asked=left), (*begun, Ask(after.goal.digest, left))

    return _step(rules, edit)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "publishes under any version": any_version,
    "offers the oldest publication that is newer": offers_the_oldest,
    "keeps chunks of the publication before": keeps_what_it_has,
}
