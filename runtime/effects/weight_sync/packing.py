"""Trees of weights at both ends of a transfer: checks of the architecture, packing and unpacking."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from .shared_memory.layout import WeightLayout, layout, same_architecture, text, views


def leaves_like(like: Any) -> Callable[[str, Any], list[Tensor]]:
    """Return a function that returns the leaves of a tree with the architecture of `like`; it only checks each leaf's form.

    Raises: WeightsError for another architecture, StructureError unless it is a tree of dense tensors.

    >>> leaves_like({"w": torch.zeros(2)})("publish", {"w": torch.ones(2)})
    [tensor([1., 1.])]
    >>> leaves_like({"w": torch.zeros(2)})("publish", {"w": torch.ones(3)})
    Traceback (most recent call last):
    purestep.runtime.effects.weight_sync.shared_memory.layout.WeightsError: publish: w is [3] float32, wanted \
[2] float32; build the architecture that is published
    """
    own = layout(like)
    first, structure = pytree.tree_flatten(like)
    forms = [(leaf.shape, leaf.dtype, leaf.layout) for leaf in first]

    def leaves_of(where: str, tree: Any) -> list[Tensor]:
        found, its = pytree.tree_flatten(tree)
        tensors = its == structure and all(isinstance(leaf, Tensor) for leaf in found)
        if not tensors or [(leaf.shape, leaf.dtype, leaf.layout) for leaf in found] != forms:
            same_architecture(where, text(layout(tree)), own)
        return found

    return leaves_of


def room_of(own: WeightLayout, tensors: Sequence[Tensor]) -> Tensor | None:
    """Return the bytes in which these leaves lie packed as in `own`, like those of fetched trees; None if they do not.

    >>> own = layout({"a": torch.zeros(2), "b": torch.zeros(1)})
    >>> room = torch.zeros(own.size, dtype=torch.uint8)
    >>> room_of(own, views(own, room)).data_ptr() == room.data_ptr(), room_of(own, [torch.zeros(2), torch.zeros(1)])
    (True, None)
    """
    filled = [(part, leaf) for part, leaf in zip(own.parts, tensors, strict=True) if part.size]
    if not filled or any(leaf.device.type != "cpu" or not leaf.is_contiguous() for _, leaf in filled):
        return None
    storage = filled[0][1].untyped_storage()
    start = storage.data_ptr()
    fits = storage.nbytes() == own.size
    if not fits or any(leaf.data_ptr() != start + part.offset for part, leaf in filled):
        return None
    if any(leaf.untyped_storage().data_ptr() != start for _, leaf in filled):
        return None
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def handed(own: WeightLayout, room: Tensor, like: Any, into: Sequence[Tensor]) -> Any:
    """Return the tree whose bytes are in `room`: as views of it if `like` is on the CPU, else as copies on its devices.

    If there are leaves `into` which to write, the bytes are copied there, and the tree consists of these.

    >>> own = layout({"a": torch.zeros(1)})
    >>> handed(own, torch.zeros(64, dtype=torch.uint8), {"a": torch.ones(1)}, ())
    {'a': tensor([0.])}
    """
    first, structure = pytree.tree_flatten(like)
    found = views(own, room)
    with torch.no_grad():
        if into:
            for target, source in zip(into, found, strict=True):
                if target.data_ptr() != source.data_ptr():
                    target.copy_(source)
        leaves = list(into) or [source.to(leaf.device) for source, leaf in zip(found, first, strict=True)]
    return pytree.tree_unflatten(leaves, structure)
