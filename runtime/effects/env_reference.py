"""An environment of yours, named by a reference MODULE:NAME or FILE.py:NAME, imported from there."""

import hashlib
from pathlib import Path
from typing import Any

from ...core.env import Env
from ...core.errors import ChoiceError, message
from .module_reference import GYMNASIUM, imported

WHERE = "--env"


def load_env(reference: str) -> Env[Any, Any]:
    """Return the environment that a reference names; its module is imported, so the reference must be trusted.

    Raises: ChoiceError if there is no such module or name, if importing it raises, or if the value is no `Env`.
    """
    place, _, name = reference.rpartition(":")
    if not place or not name:
        wanted = "MODULE:NAME or FILE.py:NAME of an Env"
        raise ChoiceError(message(WHERE, got=repr(reference), wanted=wanted, remedy="e.g. boat.py:BOAT"))
    module = imported(WHERE, place)
    found = getattr(module, name, None)
    if not isinstance(found, Env):
        there = [one for one, value in vars(module).items() if isinstance(value, Env)]
        got = "absent" if found is None else type(found).__name__
        wanted = (
            f"one of {there}" if there else "an Env: purestep.Env(params, reset, step, observation_space, action_space)"
        )
        raise ChoiceError(
            message(f"{WHERE}: {name} in {place}", got=got, wanted=wanted, remedy="name it as the file does")
        )
    return found


def digest_of(reference: str) -> str:
    """Return a digest of the file that a reference's module was imported from: it may change while its name stays."""
    file = imported(WHERE, reference.removeprefix(GYMNASIUM).rpartition(":")[0]).__file__
    return hashlib.sha256(Path(file).read_bytes() if file else b"").hexdigest()
