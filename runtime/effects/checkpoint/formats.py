"""The file layouts of a checkpoint: sharded as ranks hold it, full in one file, or as Hugging Face's libraries store it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ....core.errors import StructureError, message
from ..hugging_face.optional import library
from . import layout
from .manifest import Leaf

LARGEST = 5_000_000_000  # bytes of a file, the limit of Hugging Face's own libraries


Leaves = Mapping[str, Leaf]  # the model's, by their names in its library


def _nothing(*given: Any) -> None:
    """Check or add nothing, for the other forms."""


@frozen
class Form:
    """`SHARDED`, `FULL` or a result of `hugging_face`."""

    name: str
    at: str = ""  # the prefix of the names of the model's leaves, before a dot
    largest: int = LARGEST  # bytes of one of the model's files
    check: Callable[[Leaves], None] = _nothing  # raises if these are not the parameters of the model
    furnish: Callable[[Path, Leaves], None] = _nothing  # writes the other files that a folder needs to be opened


SHARDED = Form(layout.SHARDED)
FULL = Form(layout.FULL)


def hugging_face(
    config: Any, tokenizer: Any = (), *, generation: Any = (), at: str = "params", largest: int = LARGEST
) -> Form:
    """Return the form of checkpoints whose folder `model` can be opened by `AutoModelForCausalLM.from_pretrained`.

    `config` is transformers', and `tokenizer` and `generation` (a generation configuration) are saved with the weights. The
    model's parameters, and the buffers that it stores, are the leaves below `at`, under their names in transformers;
    everything else, the optimiser's state too, is sharded next to that folder.

    Raises: ModuleNotFoundError; and, when a checkpoint is saved, StructureError for parameters of another model, or of a
    dtype or shape that this form would lose.
    """
    text = config.to_dict()
    with torch.device(
        "meta"
    ):  # here and not during training, because transformers changes process-wide settings for a moment
        module = library().AutoModelForCausalLM.from_config(type(config).from_dict(text))
    known = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    buffers = {name: tuple(value.shape) for name, value in module.named_buffers() if name in known}
    needed = {**{name: tuple(value.shape) for name, value in module.named_parameters()}, **buffers}

    def furnish(folder: Path, leaves: Leaves) -> None:
        made = type(config).from_dict(text)
        made.architectures = [type(module).__name__]
        made.dtype = getattr(torch, next(iter(leaves.values())).dtype)
        for part in (made, tokenizer, generation):
            if not isinstance(part, tuple):
                part.save_pretrained(str(folder))

    def check(leaves: Leaves) -> None:
        check_parameters(leaves, needed, known)

    return Form(layout.HUGGING_FACE, at=at, largest=largest, check=check, furnish=furnish)


Shapes = Mapping[str, tuple[int, ...]]


def check_parameters(leaves: Leaves, needed: Shapes, known: Shapes) -> None:
    """Raise StructureError, naming the first difference, unless the leaves are a model's stored tensors, which are `needed`.

    Other names that are `known` to the model, such as a tied weight's second name, are allowed, in the right shape.

    >>> check_parameters({"w": Leaf("w", (3,), "float32")}, {"w": (2,)}, {})
    Traceback (most recent call last):
    purestep.core.errors.StructureError: save: w is [3], wanted [2]; save a model with the configuration it was made with
    """
    remedy = "save a model with the configuration it was made with"
    for name in dict.fromkeys((*needed, *leaves)):
        got = list(leaves[name].shape) if name in leaves else "absent"
        shape = needed.get(name, known.get(name))
        wanted = "no such parameter" if shape is None else list(shape)
        if got != wanted:
            raise StructureError(message(f"save: {name}", got=got, wanted=wanted, remedy=remedy))
    for name, leaf in leaves.items():
        # When it merges the ranks' files, the writer loses tensors without dimensions, and other dtypes than floats.
        if not leaf.shape or not getattr(torch, leaf.dtype).is_floating_point:
            kind, other = "floating point with a dimension or more", "save sharded or full checkpoints"
            raise StructureError(message(f"save: {name}", got=str(leaf), wanted=kind, remedy=other))
