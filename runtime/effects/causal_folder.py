"""Folders of Hugging Face models: opened as a pure model and its parameters, and written so that others open them."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ...core.causal import CausalModel
from ...core.errors import StructureError, message
from .causal_lm import Params, causal_model
from .library import library
from .sharded.weight_rules import some

READING = threading.Lock()  # the library reads one folder at a time: with two, parameters come without numbers


@frozen
class Opened:
    """A model with its weights; `config` and `generation`, which may be absent, are the library's, for `save_model`."""

    model: CausalModel
    params: Params
    config: Any
    generation: Any = ()


def open_model(path: str | Path, *, dtype: torch.dtype = torch.float32, attention: str = "sdpa") -> Opened:
    """The model in a folder, or the one of this name that was downloaded before or can be.

    `attention` "eager" also works under vmap without a warning. Its `init` gives the folder's weights, whatever the key is.
    What the folder holds beside the model's weights is left out, and the library says so.

    Raises: StructureError where there is no model that is supported, or a weight of it is absent or of another shape, which
    is named; ModuleNotFoundError.
    """
    read = library().AutoModelForCausalLM.from_pretrained
    how: dict[str, Any] = {
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,
    }  # they are refused here, by name
    try:
        with READING, _without_bars():
            module, found = read(str(path), dtype=dtype, attn_implementation=attention, **how)
    except (OSError, ValueError) as cause:
        got = f"no model ({str(cause).strip().splitlines()[0]})"
        remedy = "name a folder with config.json and weights, as save_model writes it"
        raise StructureError(message(f"open_model: {path}", got=got, wanted="a model", remedy=remedy)) from cause
    _refuse_gaps(str(path), found)
    model = causal_model(module)
    params = {name: value.detach() for name, value in module.named_parameters()}
    return Opened(model=model, params=params, config=module.config, generation=module.generation_config or ())


def _refuse_gaps(path: str, found: Mapping[str, Any]) -> None:
    """Raises StructureError for weights that the library has drawn anew, since the folder does not hold them."""
    remedy = "fetch the whole folder again, or name the one whose config.json this is"
    if other := sorted(found["mismatched_keys"]):
        name, got, wanted = other[0]
        where = f"open_model: {path}: {name}"
        raise StructureError(message(where, got=list(got), wanted=list(wanted), remedy=remedy))
    if absent := sorted(found["missing_keys"]):
        raise StructureError(
            message(f"open_model: {path}", got=f"without {some(absent)}", wanted="all weights", remedy=remedy)
        )


def save_model(folder: str | Path, params: Params, config: Any, tokenizer: Any = (), *, generation: Any = ()) -> Path:
    """Writes the weights in a folder that `from_pretrained` opens, and beside them the tokenizer, if one is given.

    `generation` is what the folder says on how to generate, as `Opened` has it: ends of texts besides the configuration's.

    Raises: StructureError for parameters of another model.
    """
    with torch.device("meta"):
        module = library().AutoModelForCausalLM.from_config(config)
    wanted = {name: list(value.shape) for name, value in module.named_parameters()}
    got = {name: list(value.shape) for name, value in params.items()}
    if got != wanted:
        name = min(name for name in {*got, *wanted} if got.get(name) != wanted.get(name))
        remedy = "save a model with the configuration it was made with"
        where = f"save_model: {name}"
        raise StructureError(
            message(where, got=got.get(name, "absent"), wanted=wanted.get(name, "absent"), remedy=remedy)
        )
    plain = {name: value.detach().clone() for name, value in params.items()}
    module.load_state_dict(plain, strict=False, assign=True)
    module.tie_weights()
    if not isinstance(generation, tuple):
        module.generation_config = generation
    with _without_bars():
        module.save_pretrained(str(folder))
    if not isinstance(tokenizer, tuple):
        tokenizer.save_pretrained(str(folder))
    return Path(folder)


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Without the library's progress bars, which are for what takes minutes."""
    logging = library("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
