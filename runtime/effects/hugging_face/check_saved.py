"""A check before training: a model that is saved and opened again is the same, bit for bit."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....core.causal import CausalModel
from ....core.errors import CheckpointError, PurestepError, StructureError, message
from ..checkpoint.atomic_files import FOLDER, kind
from .causal_lm import Params
from .folder import open_model, save_model
from .stored import some
from .tokenizer import load_tokenizer

LENGTH = 5  # tokens in a row whose logits are compared
REMEDY = "it would be lost after training: choose another model, or another version of transformers"


class OtherModelError(StructureError):
    """The model is another one after it is saved and opened."""


def stored_bytes(params: Params, buffers: Params) -> int:
    """Return the size of the weights on disk.

    >>> stored_bytes({"w": torch.zeros(2, 3)}, {"b": torch.zeros(1, dtype=torch.int64)})
    32
    """
    return sum(value.numel() * value.element_size() for value in (*params.values(), *buffers.values()))


def check_saved(
    place: Path,
    model: CausalModel,
    params: Params,
    tokenizer: Any = (),
    *,
    config: Any,
    generation: Any = (),
    buffers: Params | tuple[()] = (),
    check: Callable[[Path], object] = str,
) -> None:
    """Save a model to a folder, as `save_model` does, open it, compare it, and remove the folder; `check` may raise, too.

    All parameters and buffers are compared, the logits of two rows of tokens, the generation configuration and the tokenizer.
    Opened weights are mapped from their files: the check needs their size on the disk, and not in memory. Earlier content of
    the folder is removed.

    Raises: StructureError that names the tensors, or the reason, for a model that is not the same afterwards; CheckpointError
    if there is no room for it.
    """
    kept = {} if isinstance(buffers, tuple) else buffers
    _remove(place)
    _check_room(place, stored_bytes(params, kept))
    try:
        save_model(place, params, config, tokenizer, generation=generation, buffers=kept)
        check(place)
        again = open_model(place, dtype=next(iter(params.values())).dtype, report=_ignore, mapped=True)
        _compare_tensors("parameters", params, again.params)
        _compare_tensors("buffers", kept, again.buffers)
        _compare_logits(model, again.model, params)
        if not isinstance(generation, tuple) and _shown(generation) != _shown(again.generation):
            raise _refused("another generation configuration")
        _compare_tokenizer(place, tokenizer)
    except StructureError as cause:
        raise cause if isinstance(cause, OtherModelError) else _refused(" ".join(str(cause).split())) from cause
    except PurestepError:
        raise
    except Exception as cause:  # transformers raises anything for what it cannot store
        if isinstance(cause, OSError) and cause.errno:
            got, remedy = f"not writable ({cause.strerror})", "check the folder and the disk"
            raise CheckpointError(message(str(place), got=got, wanted="room for the model", remedy=remedy)) from cause
        raise _refused(f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}") from cause
    finally:
        _remove(place)


def _remove(place: Path) -> None:
    if kind(place) == FOLDER:
        shutil.rmtree(place, ignore_errors=True)


def _ignore(text: str) -> None:
    """Report nothing: the weights are those of the run itself."""


def _refused(why: str) -> OtherModelError:
    got = f"another one after it is saved and opened ({why})"
    return OtherModelError(message("model", got=got, wanted="the same", remedy=REMEDY))


def _check_room(place: Path, size: int) -> None:
    home = next(path for path in place.absolute().parents if path.exists())
    if (free := shutil.disk_usage(home).free) < size:
        wanted, remedy = f"room for its {size / 1e9:.2f} GB", "free some space, or choose another --run"
        got = f"a disk with {free / 1e9:.2f} GB free"
        raise CheckpointError(message(f"{place.parent}: the model", got=got, wanted=wanted, remedy=remedy))


def _compare_tensors(what: str, ours: Params, theirs: Params) -> None:
    if other := [name for name in {**ours, **theirs} if not _same(ours.get(name), theirs.get(name))]:
        raise _refused(f"other {what}: {some(other)}")


def _compare_logits(model: CausalModel, again: CausalModel, params: Params) -> None:
    length = min(LENGTH, model.window)
    tokens = torch.arange(2 * length).reshape(2, length) % model.vocabulary
    tokens = tokens.to(next(iter(params.values())).device)
    with torch.no_grad():  # of the same tensors: products may depend on where a matrix lies in memory
        wanted = model.head(params, model.apply(params, tokens, (), ()))
        got = again.head(params, again.apply(params, tokens, (), ()))
    if not _same(wanted, got):
        raise _refused("other logits with the same weights")


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    """Return whether both are tensors with the same dtype and bits."""
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    ours, theirs = (each.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return torch.equal(ours, theirs)


def _shown(generation: Any) -> Any:
    written = generation.to_dict()
    return {
        name: value for name, value in written.items() if name not in ("transformers_version", "_from_model_config")
    }


def _compare_tokenizer(place: Path, tokenizer: Any) -> None:
    if isinstance(tokenizer, tuple):
        return
    again = load_tokenizer(place)
    if (again.get_vocab(), again.chat_template) != (tokenizer.get_vocab(), tokenizer.chat_template):
        raise _refused("another vocabulary or chat template in its tokenizer")
