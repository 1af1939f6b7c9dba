"""Worlds of Gymnasium's registered environments, by name: gym:ID."""

from functools import partial

from ....core.errors import ChoiceError, describe_error, message
from ..gymnasium_name import WHERE, registered
from .importing import GymnasiumWorld, gymnasium_world
from .spaces import gymnasium


def named_world(name: str, envs: int) -> GymnasiumWorld:
    """Return `envs` copies of the environment that a name gym:ID, gym:MODULE:ID or gym:FILE.py:ID names.

    A module that it names is imported, so it must be trusted. Raises: ChoiceError, and errors of `gymnasium_world`.

    >>> with named_world("gym:CartPole-v1", 2) as world:
    ...     world.env.action_space, world.longest
    (Discrete(n=2), 500)
    """
    own = registered(name)
    try:
        return gymnasium_world(partial(gymnasium.make, own), envs)
    except (gymnasium.error.Error, ImportError) as cause:
        remedy = "install what it needs, as its documentation says"
        wanted = "an environment that can be made"
        raise ChoiceError(
            message(f"{WHERE}: {name}", got=describe_error(cause), wanted=wanted, remedy=remedy)
        ) from cause
