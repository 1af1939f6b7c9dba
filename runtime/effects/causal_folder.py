"""Folders of Hugging Face models: opened as a pure model and its parameters, and written so that others open them."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ...core.causal import CausalModel
from ...core.errors import PurestepError, StructureError, message
from ..files.reading import irregular
from .causal_lm import Params, causal_model
from .checkpoint import to_stderr
from .files import plain_folder
from .library import library
from .sharded.stored import stored
from .sharded.weight_rules import could_hold, some
from .tokenizer import save_tokenizer

# What a configuration says where weights are not simply those of the folder's files.
OTHERWISE = ("quantization_config", "transformers_weights", "extra_files")
READING = threading.Lock()  # the library reads one folder at a time: with two, parameters come without numbers


@frozen
class Opened:
    """A model with its weights; `config` and `generation`, which may be absent, are the library's, for `save_model`."""

    model: CausalModel
    params: Params
    config: Any
    generation: Any = ()


def _by_first(text: str) -> None:
    """A line on standard error, from the first of the ranks that a launcher has started alone: all read the same."""
    if os.environ.get("RANK", "") in ("", "0"):
        to_stderr(text)


def open_model(
    path: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    attention: str = "sdpa",
    report: Callable[[str], None] = _by_first,
) -> Opened:
    """The model in a folder, or the one of this name that was downloaded before or can be.

    In a folder weights are looked for as `read_weights` does, a `.pt` included, and the library takes them under the names
    they have there. A line to `report` says where they came from. `attention` "eager" also works under vmap without a warning.
    Its `init` gives the folder's weights, whatever the key is. What the folder holds beside the model's weights is left
    out, and the library says so.

    Raises: StructureError where there is no model that is supported, or a weight of it is absent or of another shape, which
    is named; CheckpointError for files of weights that are absent or cannot be read; ModuleNotFoundError.
    """
    how: dict[str, Any] = {
        "dtype": dtype,
        "attn_implementation": attention,
        "trust_remote_code": False,  # no code that a folder brings along
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # they are refused here, by name
    }
    try:
        with READING, _without_bars():
            module, found, said = _of_folder(Path(path), how) or _of_library(str(path), how)
    except PurestepError:
        raise
    except ModuleNotFoundError:
        raise
    except Exception as cause:  # damaged files lead the library anywhere
        first = next(iter(str(cause).strip().splitlines()), type(cause).__name__)
        got = f"no model ({first if isinstance(cause, OSError | ValueError) else f'{type(cause).__name__}: {first}'})"
        remedy = "name a folder with config.json and weights, as save_model writes it"
        raise StructureError(message(f"open_model: {path}", got=got, wanted="a model", remedy=remedy)) from cause
    _refuse_gaps(str(path), found)
    for value in module.parameters():  # what was read may show the file itself, which may be written anew
        value.data = value.data.clone()
    model = causal_model(module)
    params = {name: value.detach() for name, value in module.named_parameters()}
    report(said)
    return Opened(model=model, params=params, config=module.config, generation=module.generation_config or ())


Found = tuple[Any, Mapping[str, Any], str]  # a module, what the library says of its weights, and where they came from


def _of_library(path: str, how: Mapping[str, Any]) -> Found:
    module, found = library().AutoModelForCausalLM.from_pretrained(path, **how)
    return module, found, f"weights: those that transformers finds for {path}"


def _of_folder(folder: Path, how: Mapping[str, Any]) -> Found | tuple[()]:
    """The model in a folder; () where only the library knows which files to read, or that there are none.

    It is given tensors under the names that their file has, since it knows older names and those of parts of a model.
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

    Raises: StructureError for parameters of another model; CheckpointError where the folder, or something in it, is a link or
    no file.
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
    """The library's reports on weights it was given say "from: None"; here they name the folder."""

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
    """Without the library's progress bars, which are for what takes minutes."""
    bars = library("transformers.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()
