"""One interface for every way by which weights go from who learns to who plays: an outlet publishes, inlets fetch.

    with outlet("shared", params) as weights:       # where params are learned; or "ray", "monarch"
        weights.publish(0, params)
        ...                                         # weights.address goes to the others, in whatever way
    with inlet(address, params) as reader:          # where they are used
        found = reader.fetch(version)               # () or (version, params), all of one publication

An address is short and goes through a call, a file or a command line; weights never do.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from attrs import frozen

from ....core.errors import choose, message
from ..weights_layout import WeightsError


@frozen
class Outlet:
    """Where weights are published."""

    way: str  # "shared", "ray" or "monarch"
    address: str  # what an inlet is opened by
    publish: Callable[[int, Any], None]  # (version, params); versions go up, from 0 or more


@frozen
class Inlet:
    """Where they are fetched.

    `fetch(newer_than=-1, into=(), seconds=60.0)` gives (version, params), all of one publication, or () where none is newer.
    Params are new tensors ("ray": on the CPU read-only views of its store) unless `into` is a tree to write them to, which
    nobody else uses; where an error is raised that tree holds no weights.
    Raises: WeightsError where the weights cannot be had within `seconds`, or never.
    """

    way: str
    fetch: Callable[..., tuple[Any, ...]]
    closed: Callable[[], bool]  # nothing more will be published


def refuse_closed(closed: bool) -> None:
    """Raises: WeightsError, where the outlet has ended."""
    if closed:
        remedy = "publish inside its with block, and keep the context manager, not only what it gave"
        raise WeightsError(message("publish: the outlet", got="closed", wanted="open", remedy=remedy))


WAYS: Mapping[str, tuple[str, str]] = {  # the outlet and the inlet, each behind its module
    "shared": ("shared:shared_outlet", "shared:shared_inlet"),
    "ray": ("ray:ray_outlet", "ray:ray_inlet"),
    "monarch": ("monarch:monarch_outlet", "monarch:monarch_inlet"),
}


def outlet(way: str, params: Any, **options: Any) -> AbstractContextManager[Outlet]:
    """The outlet of a way, for weights like `params`; the options are those of the way. Raises: ChoiceError, WeightsError.

    >>> import torch
    >>> with outlet("shared", {"w": torch.zeros(1)}) as weights, inlet(weights.address, {"w": torch.zeros(1)}) as reader:
    ...     weights.publish(0, {"w": torch.ones(1)})
    ...     reader.fetch(), reader.fetch(0)
    ((0, {'w': tensor([1.])}), ())
    """
    made: AbstractContextManager[Outlet] = _named(choose("outlet: way", way, WAYS)[0])(params, **options)
    return made


def inlet(address: str, like: Any, **options: Any) -> AbstractContextManager[Inlet]:
    """The inlet for an address; `like` is a tree of the architecture, on the devices to fetch to.

    Raises: ChoiceError for an address of no way, WeightsError for another architecture or where nobody publishes.
    """
    place = choose("inlet: way of the address", address.partition("://")[0], WAYS)[1]
    made: AbstractContextManager[Inlet] = _named(place)(address, like, **options)
    return made


def _named(place: str) -> Any:
    """What is called so; its module is imported now, since some ways need libraries that not everybody has."""
    module, name = place.split(":")
    return getattr(import_module(f".{module}", __package__), name)
