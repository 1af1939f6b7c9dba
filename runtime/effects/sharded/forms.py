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


def _nothing(given: Any) -> None:
    """What the other forms check and add."""


@frozen
class Form:
    """One of `SHARDED`, `FULL` and what `hugging_face` gives."""

    name: str
    at: str = ""  # what the names of the model's leaves begin with, before a dot
    largest: int = LARGEST  # bytes of one of the model's files
    check: Callable[[Mapping[str, Leaf]], None] = _nothing  # raises where these are no parameters of the model
    furnish: Callable[[Path], None] = _nothing  # writes what else a folder needs to be opened


SHARDED = Form(placing.SHARDED)
FULL = Form(placing.FULL)


def hugging_face(
    config: Any, tokenizer: Any = (), *, generation: Any = (), at: str = "params", largest: int = LARGEST
) -> Form:
    """Checkpoints whose folder `model` is one that `AutoModelForCausalLM.from_pretrained` opens.

    `config` is the library's, and `tokenizer` and `generation` (on how to generate) go beside the weights. The model's
    parameters are the leaves below `at`, under the names that the library has for them; all else, the optimiser's state
    too, lies by shards beside that folder.

    Raises, as soon as a checkpoint is asked for: StructureError for parameters of another model, or of a kind that this
    form would lose.
    """
    text = config.to_dict()

    def check(leaves: Mapping[str, Leaf]) -> None:
        check_parameters(text, config, leaves)

    def furnish(folder: Path) -> None:
        made = type(config).from_dict(text)
        made.architectures = [type(_hollow(config)).__name__]
        for part in (made, tokenizer, generation):
            if not isinstance(part, tuple):
                part.save_pretrained(str(folder))

    return Form(placing.HUGGING_FACE, at=at, largest=largest, check=check, furnish=furnish)


def check_parameters(text: Mapping[str, Any], config: Any, leaves: Mapping[str, Leaf]) -> None:
    """Raises StructureError, naming the first difference, unless the leaves are the parameters of the config's model."""
    module = _hollow(type(config).from_dict(dict(text)))
    wanted = {name: tuple(value.shape) for name, value in module.named_parameters()}
    known = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    remedy = "save a model with the configuration it was made with"
    for name in dict.fromkeys((*wanted, *leaves)):
        got = leaves[name].shape if name in leaves else "absent"
        if got != wanted.get(name, known.get(name, "no such parameter")):
            right = wanted.get(name, known.get(name, "no such parameter"))
            raise StructureError(message(f"save: {name}", got=_plain(got), wanted=_plain(right), remedy=remedy))
    for name, leaf in leaves.items():
        # Merging the ranks' files, the writer leaves tensors without dimensions empty, and knows floating point alone.
        if not leaf.shape or not getattr(torch, leaf.dtype).is_floating_point:
            wanted_kind, other = "floating point with a dimension or more", "save sharded or full checkpoints"
            raise StructureError(message(f"save: {name}", got=str(leaf), wanted=wanted_kind, remedy=other))


def _plain(shape: Any) -> Any:
    return list(shape) if isinstance(shape, tuple) else shape


def _hollow(config: Any) -> Any:
    with torch.device("meta"):
        return library().AutoModelForCausalLM.from_config(config)
