"""One interface for all transports of weights from the trainer to samplers: a publisher publishes, readers fetch.

    with weight_publisher("shared", params) as weights:       # in the trainer; or "ray", "monarch"
        weights.publish(0, params)
        ...                                         # weights.address is sent to the others, by any means
    with weight_reader(address, params) as reader:          # in the process that uses the weights
        found = reader.fetch(version)               # () or (version, params), all of one publication

An address is short and is sent through a call, a file or a command line; weights never are.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from attrs import Factory, frozen

from ....core.errors import choose, message
from .shared_memory.layout import WeightsError


@frozen
class WeightPublisher:
    """Publisher of weights."""

    way: str  # "shared", "ray" or "monarch"
    address: str  # for opening a reader
    publish: Callable[[int, Any], None]  # (version, params); versions go up, from 0 or more
    # () -> the address for readers from now on; another one where Monarch has ended the actor of the last
    renewed: Callable[[], str] = Factory(lambda self: lambda: self.address, takes_self=True)


@frozen
class WeightReader:
    """Receiver of weights.

    `fetch(newer_than=-1, into=(), seconds=60.0)` returns (version, params), all of one publication, or () if none is newer.
    Params are new tensors ("ray": on the CPU read-only views of its store) unless `into` is a tree to write them to, which
    nothing else may use; if an error is raised that tree holds no valid weights.
    Raises: WeightsError if the weights are not available within `seconds`, or never will be.
    """

    way: str
    fetch: Callable[..., tuple[Any, ...]]
    closed: Callable[[], bool]  # True if nothing more will be published


def refuse_closed(closed: bool) -> None:
    """Raise WeightsError if the publisher is closed."""
    if closed:
        remedy = "publish inside its with block, and keep the context manager, not only what it gave"
        raise WeightsError(message("publish: the publisher", got="closed", wanted="open", remedy=remedy))


WAYS: Mapping[str, tuple[str, str]] = {  # the publisher and the reader, each as module:function
    "shared": ("shared:shared_publisher", "shared:shared_reader"),
    "ray": ("ray:ray_publisher", "ray:ray_reader"),
    "monarch": ("monarch:monarch_publisher", "monarch:monarch_reader"),
}


def weight_publisher(way: str, params: Any, **options: Any) -> AbstractContextManager[WeightPublisher]:
    """Return the publisher of a transport, for weights like `params`; it gets the options. Raises: ChoiceError, WeightsError.

    >>> import torch
    >>> like = {"w": torch.zeros(1)}
    >>> with weight_publisher("shared", like) as weights, weight_reader(weights.address, like) as reader:
    ...     weights.publish(0, {"w": torch.ones(1)})
    ...     reader.fetch(), reader.fetch(0)
    ((0, {'w': tensor([1.])}), ())
    """
    made: AbstractContextManager[WeightPublisher] = _named(choose("weight_publisher: way", way, WAYS)[0])(
        params, **options
    )
    return made


def weight_reader(address: str, like: Any) -> AbstractContextManager[WeightReader]:
    """Return the reader for an address; `like` is a tree of the architecture, on the devices to fetch to.

    Raises: ChoiceError for an address of no transport, WeightsError for another architecture or without a publisher.
    """
    place = choose("weight_reader: way of the address", address.partition("://")[0], WAYS)[1]
    made: AbstractContextManager[WeightReader] = _named(place)(address, like)
    return made


def _named(place: str) -> Any:
    """Return the function of that name; its module is imported now, since some transports need optional libraries."""
    module, name = place.split(":")
    return getattr(import_module(f".{module}", __package__), name)
