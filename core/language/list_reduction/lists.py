"""Settings of the lists in the reasoning cache's problems; this module imports no torch."""

from collections.abc import Callable

from attrs import frozen

from ...errors import ChoiceError, choose, message

MODULUS = 10
LARGEST = 10**6
KINDS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "sum": ("Add", lambda total, number: total + number),
    "modular_sum": (f"Add modulo {MODULUS}", lambda total, number: (total + number) % MODULUS),
    "maximum": ("Largest of", max),
    "minimum": ("Smallest of", min),
}


@frozen(kw_only=True)
class Lists:
    """The range of lists: their kind, their lengths and their numbers, bounds included."""

    kind: str = "sum"
    shortest: int = 4
    longest: int = 24
    low: int = 0
    high: int = 9


def check_lists(lists: Lists) -> Lists:
    """Return `lists` if they are valid. Raises: ChoiceError.

    >>> check_lists(Lists(shortest=9, longest=4))
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: lists: shortest and longest is (9, 4), wanted 1 <= shortest <= longest; exchange them
    """
    choose("lists: kind", lists.kind, KINDS)
    bounds = lists.low, lists.high
    faults = (
        (
            not 1 <= lists.shortest <= lists.longest,
            "shortest and longest",
            (lists.shortest, lists.longest),
            "1 <= shortest <= longest",
        ),
        (lists.low > lists.high, "low and high", bounds, "low <= high"),
        (max(map(abs, bounds)) > LARGEST, "low and high", bounds, f"within {LARGEST}"),
    )
    for fault, name, got, wanted in faults:
        if fault:
            remedy = "exchange them" if "<=" in wanted else "take smaller ones"
            raise ChoiceError(message(f"lists: {name}", got=got, wanted=wanted, remedy=remedy))
    return lists
