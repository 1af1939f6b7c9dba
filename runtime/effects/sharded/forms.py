"""In which files the tensors of a checkpoint lie: as ranks hold them, whole in one file, or as Hugging Face's libraries do."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ....core.errors import StructureError, message
from ..library import library
from ..manifest import Leaf
from . import placing

LARGEST = 5_000_000_000  # bytes of a file, as Hugging Face's own libraries cut them


Leaves = Mapping[str, Leaf]  # the model's, by the names that its library has for them


def _nothing(*given: Any) -> None:
    """What the other forms check and add."""


@frozen
class Form:
    """One of `SHARDED`, `FULL` and what `hugging_face` gives."""

    name: str
    at: str = ""  # what the names of the model's leaves begin with, before a dot
    largest: int = LARGEST  # bytes of one of the model's files
    check: Callable[[Leaves], None] = _nothing  # raises where these are no parameters of the model
    furnish: Callable[[Path, Leaves], None] = _nothing  # writes what else a folder needs to be opened


SHARDED = Form(placing.SHARDED)
FULL = Form(placing.FULL)


def hugging_face(
    config: Any, tokenizer: Any = (), *, generation: Any = (), at: str = "params", largest: int = LARGEST
) -> Form:
    """Checkpoints whose folder `model` is one that `AutoModelForCausalLM.from_pretrained` opens.

    `config` is the library's, and `tokenizer` and `generation` (on how to generate) go beside the weights. The model's
    parameters are the leaves below `at`, under the names that the library has for them; all else, the optimiser's state
    too, lies by shards beside that folder.

    Raises: ModuleNotFoundError; and, as soon as a checkpoint is asked for, StructureError for parameters of another model,
    or of a kind that this form would lose.
    """
    text = config.to_dict()
    with torch.device(
        "meta"
    ):  # here, and not beside training: the library changes settings of the process for a moment
        module = library().AutoModelForCausalLM.from_config(type(config).from_dict(text))
    needed = {name: tuple(value.shape) for name, value in module.named_parameters()}
    known = {name: tuple(value.shape) for name, value in module.state_dict().items()}

    def furnish(folder: Path, leaves: Leaves) -> None:
        made = type(config).from_dict(text)
        made.architectures = [type(module).__name__]
        made.dtype = getattr(torch, next(iter(leaves.values())).dtype)
        for part in (made, tokenizer, generation):
            if not isinstance(part, tuple):
                part.save_pretrained(str(folder))

    def check(leaves: Leaves) -> None:
        check_parameters(leaves, needed, known)

    return Form(placing.HUGGING_FACE, at=at, largest=largest, check=check, furnish=furnish)


Shapes = Mapping[str, tuple[int, ...]]


def check_parameters(leaves: Leaves, needed: Shapes, known: Shapes) -> None:
    """Raises StructureError, naming the first difference, unless the leaves are a model's parameters, which are `needed`.

    What else the model knows by name, such as a tied weight's second name, may be there, in the right shape.

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
        # Merging the ranks' files, the writer leaves tensors without dimensions empty, and knows floating point alone.
        if not leaf.shape or not getattr(torch, leaf.dtype).is_floating_point:
            kind, other = "floating point with a dimension or more", "save sharded or full checkpoints"
            raise StructureError(message(f"save: {name}", got=str(leaf), wanted=kind, remedy=other))
