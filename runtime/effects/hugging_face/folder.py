"""Folders of Hugging Face models: opened as a pure model with its parameters, and written so that other programs open them."""

import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import field, frozen

from ....core.causal import CausalModel
from ....core.errors import PurestepError, StructureError, message
from ...files.reading import irregular
from ..checkpoint.atomic_files import plain_folder
from ..checkpoint.single import to_stderr
from .causal_lm import Params, causal_model, kept_buffers
from .checks import check_layers, check_size
from .optional import library
from .stored import could_hold, some, stored
from .tokenizer import save_tokenizer

# Configuration fields which mean that the weights are not simply those of the folder's files.
OTHERWISE = ("quantization_config", "transformers_weights", "extra_files")
READING = threading.Lock()  # transformers reads one folder at a time: two at once leave parameters without values


@frozen
class Opened:
    """A model with its weights; the other fields are for `save_model`.

    `config` and `generation`, which may be absent, are transformers' objects; `buffers` are tensors that are stored and not
    trained.
    """

    model: CausalModel
    params: Params
    config: Any
    generation: Any = ()
    buffers: Params = field(factory=dict)


def by_first_rank(text: str) -> None:
    """Print a line on standard error, on rank 0 alone if a launcher started several ranks: all of them read the same folder."""
    if os.environ.get("RANK", "") in ("", "0"):
        to_stderr(text)


def open_model(
    path: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    attention: str = "sdpa",
    report: Callable[[str], None] = by_first_rank,
    mapped: bool = False,
) -> Opened:
    """Return the model in a folder, or the model of this name from transformers' cache or from the Hub.

    In a folder, weights are looked for as `read_weights` does, a `.pt` included, and transformers loads them under the names
    that they have there. A line to `report` names their source. `attention` "eager" also works under vmap without a
    warning. The model's `init` returns the folder's weights, whatever the key is. Tensors of the folder that are not weights of
    the model are ignored, and transformers reports them. `mapped` weights may be the file itself, which must then not change.

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
        got = f"no model ({why_unreadable(cause)})"
        remedy = "name a folder with config.json and weights, as save_model writes it"
        raise StructureError(message(f"open_model: {path}", got=got, wanted="a model", remedy=remedy)) from cause
    _refuse_gaps(str(path), found)
    for value in () if mapped else module.parameters():
        value.data = value.data.clone()
    model = _wrapped(str(path), module)
    params = {name: value.detach() for name, value in module.named_parameters()}
    report(said)
    return Opened(
        model=model,
        params=params,
        config=module.config,
        generation=module.generation_config or (),
        buffers=kept_buffers(module),
    )


def why_unreadable(cause: Exception) -> str:
    """Return in one line why transformers could not read a model.

    >>> why_unreadable(ZeroDivisionError("division by zero"))
    'ZeroDivisionError: division by zero'
    """
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    text = " ".join(lines[:2])[:160]
    return (
        text
        if text and isinstance(cause, OSError | ValueError)
        else f"{type(cause).__name__}{': ' if text else ''}{text}"
    )


def _wrapped(path: str, module: Any) -> CausalModel:
    """Return a module as a model. Raises: StructureError for one that is not supported, also where it cannot be read."""
    try:
        return causal_model(module)
    except PurestepError:
        raise
    except Exception as cause:  # configurations of some models raise errors of their own
        remedy = "take a model of attention whose layers are alike"
        text = message(f"open_model: {path}", got=why_unreadable(cause), wanted="a supported model", remedy=remedy)
        raise StructureError(text) from cause


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
    with stored(folder) as (source, shelf), _named_in_reports(str(folder)):
        check_layers(config, len(shelf), str(folder))
        with torch.device("meta"):
            kind = library().AutoModelForCausalLM.from_config(
                config, attn_implementation=how["attn_implementation"], trust_remote_code=False
            )
        check_size(kind, [one.shape for one in shelf.values()], str(folder))
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


def save_model(
    folder: str | Path,
    params: Params,
    config: Any,
    tokenizer: Any = (),
    *,
    generation: Any = (),
    buffers: Params | tuple[()] = (),
) -> Path:
    """Write the weights to a folder that `from_pretrained` opens, together with the tokenizer, if one is given.

    `generation` is the folder's generation configuration, as in `Opened`: stop tokens besides those of `config`. `buffers` are
    those of `Opened`, or `new_buffers(config)`; most models have none.

    Raises: StructureError for parameters or buffers of another model; CheckpointError if the folder, or something in it, is a
    link or not a regular file.
    """
    with torch.device("meta"):
        module = library().AutoModelForCausalLM.from_config(config)
    stored = module.state_dict(keep_vars=True)
    own = {name: list(value.shape) for name, value in module.named_parameters()}
    beside = {name: list(value.shape) for name, value in module.named_buffers(remove_duplicate=False) if name in stored}
    kept = {} if isinstance(buffers, tuple) else buffers
    _check_names(params, own, "save a model with the configuration it was made with")
    _check_names(kept, beside, "pass the model's buffers, as `open_model` or `new_buffers` returns them")
    module.load_state_dict({**_apart(params), **_apart(kept)}, strict=False, assign=True)
    module.tie_weights()
    if not isinstance(generation, tuple):
        module.generation_config = generation
    plain_folder(Path(folder))
    with _without_bars():
        module.save_pretrained(str(folder))
    if not isinstance(tokenizer, tuple):
        save_tokenizer(tokenizer, Path(folder))
    return Path(folder)


def _check_names(given: Params, wanted: Mapping[str, list[int]], remedy: str) -> None:
    """Raise StructureError, naming the first, for tensors that are absent, of another shape, or not the model's."""
    got = {name: list(value.shape) for name, value in given.items()}
    if got != wanted:
        name = min(name for name in {*got, *wanted} if got.get(name) != wanted.get(name))
        where = f"save_model: {name}"
        raise StructureError(
            message(where, got=got.get(name, "absent"), wanted=wanted.get(name, "absent"), remedy=remedy)
        )


def _apart(tensors: Params) -> Params:
    """Return the tensors detached; those that share storage with another, or have strides of their own, as copies."""
    shared = Counter(value.untyped_storage().data_ptr() for value in tensors.values())
    return {
        name: value.detach()
        if value.is_contiguous() and shared[value.untyped_storage().data_ptr()] == 1
        else value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }


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
