"""Folders of Hugging Face models: opened as a pure model with its parameters, and written so that other programs open them."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ....core.causal import CausalModel
from ....core.errors import PurestepError, StructureError, message
from ...files.reading import irregular
from ..checkpoint.atomic_files import plain_folder
from ..checkpoint.single import to_stderr
from .causal_lm import Params, causal_model
from .optional import library
from .stored import could_hold, some, stored
from .tokenizer import save_tokenizer

# Configuration fields which mean that the weights are not simply those of the folder's files.
OTHERWISE = ("quantization_config", "transformers_weights", "extra_files")
READING = threading.Lock()  # transformers reads one folder at a time: two at once leave parameters without values


@frozen
class Opened:
    """A model with its weights; `config` and `generation` (which may be absent) are transformers' objects, for `save_model`."""

    model: CausalModel
    params: Params
    config: Any
    generation: Any = ()


def _by_first(text: str) -> None:
    """Print a line on standard error, on rank 0 alone if a launcher started several ranks: all of them read the same folder."""
    if os.environ.get("RANK", "") in ("", "0"):
        to_stderr(text)


def open_model(
    path: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    attention: str = "sdpa",
    report: Callable[[str], None] = _by_first,
) -> Opened:
    """Return the model in a folder, or the model of this name from transformers' cache or from the Hub.

    In a folder, weights are looked for as `read_weights` does, a `.pt` included, and transformers loads them under the names
    that they have there. A line to `report` names their source. `attention` "eager" also works under vmap without a
    warning. The model's `init` returns the folder's weights, whatever the key is. Tensors of the folder that are not weights of
    the model are ignored, and transformers reports them.

    Raises: StructureError if there is no supported model, or if a weight is absent or of another shape (the message names
    it); CheckpointError for files of weights that are absent or cannot be read; ModuleNotFoundError.
    """
    how: dict[str, Any] = {
        "dtype": dtype,
        "attn_implementation": attention,
        "trust_remote_code": False,  # runs no code from the folder
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # refused in `_refuse_gaps`, by name
    }
    try:
        with READING, _without_bars():
            module, found, said = _of_folder(Path(path), how) or _of_library(str(path), how)
    except PurestepError:
        raise
    except ModuleNotFoundError:
        raise
    except Exception as cause:  # damaged files can raise anything in transformers
        first = next(iter(str(cause).strip().splitlines()), type(cause).__name__)
        got = f"no model ({first if isinstance(cause, OSError | ValueError) else f'{type(cause).__name__}: {first}'})"
        remedy = "name a folder with config.json and weights, as save_model writes it"
        raise StructureError(message(f"open_model: {path}", got=got, wanted="a model", remedy=remedy)) from cause
    _refuse_gaps(str(path), found)
    for value in module.parameters():  # a tensor may map the file itself, which may be overwritten
        value.data = value.data.clone()
    model = causal_model(module)
    params = {name: value.detach() for name, value in module.named_parameters()}
    report(said)
    return Opened(model=model, params=params, config=module.config, generation=module.generation_config or ())


Found = tuple[Any, Mapping[str, Any], str]  # a module, transformers' loading info, and the source of its weights


def _of_library(path: str, how: Mapping[str, Any]) -> Found:
    module, found = library().AutoModelForCausalLM.from_pretrained(path, **how)
    return module, found, f"weights: those that transformers finds for {path}"


def _of_folder(folder: Path, how: Mapping[str, Any]) -> Found | tuple[()]:
    """Return the model in a folder; () if transformers has to find the weight files itself, or if there are none.

    Tensors are passed under the names in their file, because transformers maps older names and those of parts of a model.
    """
    names = {one.name for one in folder.iterdir()} if folder.is_dir() else set()
    odd = irregular(folder) if names else ""
    if odd:
        raise OSError(f"{odd} is no regular file")
    if "config.json" not in names or "adapter_config.json" in names or not could_hold(names):
        return ()
    config = library().AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    if any(getattr(config, word, None) for word in OTHERWISE):
        return ()
    with torch.device("meta"):
        kind = library().AutoModelForCausalLM.from_config(
            config, attn_implementation=how["attn_implementation"], trust_remote_code=False
        )
    with stored(folder) as (source, shelf), _named_in_reports(str(folder)):
        tensors = {name: one.part for name, one in shelf.items()}
        own = {name: value for name, value in how.items() if name != "trust_remote_code"}
        module, found = type(kind).from_pretrained(None, config=kind.config, state_dict=tensors, **own)
    module.config.name_or_path = str(folder)
    module.generation_config = _generation(str(folder), names)
    return module, found, f"weights: {len(tensors)} tensors from {source}"


def _generation(folder: str, names: Collection[str]) -> Any:
    read = library().GenerationConfig.from_pretrained
    if "generation_config.json" in names:
        return read(folder)
    return read(folder, config_file_name="config.json", _from_model_config=True)


def _refuse_gaps(path: str, found: Mapping[str, Any]) -> None:
    """Raise StructureError for weights that the folder does not hold, and that transformers initialised at random."""
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
    """Write the weights to a folder that `from_pretrained` opens, together with the tokenizer, if one is given.

    `generation` is the folder's generation configuration, as in `Opened`: stop tokens besides those of `config`.

    Raises: StructureError for parameters of another model; CheckpointError if the folder, or something in it, is a link or
    not a regular file.
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
    plain_folder(Path(folder))
    with _without_bars():
        module.save_pretrained(str(folder))
    if not isinstance(tokenizer, tuple):
        save_tokenizer(tokenizer, Path(folder))
    return Path(folder)


@contextlib.contextmanager
def _named_in_reports(folder: str) -> Iterator[None]:
    """Replace "from: None" by the folder in transformers' reports on weights that it was given as tensors."""

    def name(record: logging.LogRecord) -> bool:
        record.msg = str(record.msg).replace("from: None", f"from: {folder}")
        return True

    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(name)
    try:
        yield
    finally:
        logger.removeFilter(name)


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Disable transformers' progress bars in the block."""
    bars = library("transformers.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()
