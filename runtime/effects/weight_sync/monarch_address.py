"""Addresses of Monarch's actors: monarch:// and the pickle of a handle, so an untrusted one must not be opened."""

import base64
import importlib
from typing import Any

from ....core.errors import ChoiceError, message

SCHEME = "monarch://"


def address_of(handle: Any, timeout: float) -> str:
    """Return the address of an actor, once it is running, which may take `timeout` seconds."""
    handle.initialized.get(timeout=timeout)
    letter: bytes = importlib.import_module("cloudpickle").dumps(handle)
    return SCHEME + base64.urlsafe_b64encode(letter).decode()


def actor_of(address: str) -> Any:
    """Return the handle of the actor in an address. Raises: ChoiceError for a malformed one."""
    try:
        return importlib.import_module("cloudpickle").loads(base64.urlsafe_b64decode(address.removeprefix(SCHEME)))
    except Exception as error:  # unpickling anything else can raise anything
        wanted, remedy = f"{SCHEME} and an actor", "take the address that the publisher names, all of it"
        got = f"{address[:40]!r} ({type(error).__name__})"
        raise ChoiceError(message("weight_reader: address", got=got, wanted=wanted, remedy=remedy)) from error
