"""Posts as people get them wrong: each an edit of a right one."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.runtime.effects.engine.hands_rules import Box, Parcel


def takes_all(posting: Any) -> Any:
    """Trusts that each parcel comes once."""

    def opened(box: Box, come: Parcel) -> Any:
        after, _ = posting.opened(box, come)
        return after, come.letters

    return evolve(posting, opened=opened)


def forgets_the_sent(posting: Any) -> Any:
    """Takes what was sent for what has come: an end that has sent a parcel sends what is newer the next time."""

    def put(box: Box, letter: Any) -> Any:
        return evolve(box, kept=(letter,), first=box.first + len(box.kept))

    return evolve(posting, put=put)


def keeps_all(posting: Any) -> Any:
    """Sends everything each time."""

    def opened(box: Box, come: Parcel) -> Any:
        after, new = posting.opened(box, come)
        return evolve(box, wanted=after.wanted), new

    return evolve(posting, opened=opened)


def _lets_go_early(posting: Any) -> Any:
    """Lets one letter go too many."""

    def opened(box: Box, come: Parcel) -> Any:
        return posting.opened(box, evolve(come, wanted=come.wanted + 1))

    return evolve(posting, opened=opened)


def _takes_the_last(posting: Any) -> Any:
    """Sends the newest letter first."""

    def parcel(box: Box) -> Parcel:
        whole: Parcel = posting.parcel(box)
        return evolve(whole, letters=whole.letters[::-1])

    return evolve(posting, parcel=parcel)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "lets one letter go too many": _lets_go_early,
    "sends the newest letter first": _takes_the_last,
}
