"""Names of Gymnasium's environments, gym:ID, checked before they are made. Imports no torch."""

import difflib

from ...core.errors import ChoiceError, message
from .module_reference import GYMNASIUM, imported, is_reference

WHERE = "--env"


def is_gymnasium_name(name: str) -> bool:
    """Return whether a name is that of an environment of Gymnasium's: gym:ID, gym:MODULE:ID or gym:FILE.py:ID.

    >>> is_gymnasium_name("gym:CartPole-v1"), is_gymnasium_name("cartpole")
    (True, False)
    """
    return name.startswith(GYMNASIUM)


def check_gymnasium_name(name: str) -> None:
    """Refuse a name that Gymnasium does not know; one behind a module only once that is imported (`registered`).

    Raises: ChoiceError, also where Gymnasium is not installed.

    >>> check_gymnasium_name("gym:CartPole-v9")
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --env is 'gym:CartPole-v9', wanted a name that Gymnasium knows; \
did you mean gym:CartPole-v1 or gym:CartPole-v0?
    """
    try:
        import gymnasium
    except ImportError:
        remedy = "pip install 'purestep[gym]'"
        raise ChoiceError(message(WHERE, got=repr(name), wanted="gymnasium installed", remedy=remedy)) from None
    own = name.removeprefix(GYMNASIUM).rpartition(":")[2]
    if is_reference(name) or own in gymnasium.registry:
        return
    near = [f"{GYMNASIUM}{one}" for one in difflib.get_close_matches(own, gymnasium.registry, n=2)]
    remedy = f"did you mean {' or '.join(near)}?" if near else "one that a module registers is gym:MODULE:ID"
    raise ChoiceError(message(WHERE, got=repr(name), wanted="a name that Gymnasium knows", remedy=remedy))


def registered(name: str) -> str:
    """Return the ID of a name, with the module imported that registers it, where the name has one. Raises: ChoiceError.

    >>> registered("gym:CartPole-v1")
    'CartPole-v1'
    """
    place, _, own = name.removeprefix(GYMNASIUM).rpartition(":")
    if place:
        imported(WHERE, place)
    check_gymnasium_name(f"{GYMNASIUM}{own}")
    return own
