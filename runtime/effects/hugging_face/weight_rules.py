"""The files of a folder that hold a model's weights, and checks of these weights; reads nothing itself."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath

from ....core.errors import CheckpointError, message

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
OLD_WHOLE, OLD_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
ORDER = (WHOLE, INDEX, OLD_WHOLE, OLD_INDEX)  # after them: the one file that ends in .pt
PICKLED = (".bin", ".pt")
FOLLOWS = ".inv_freq"  # suffix of buffers that older libraries stored though they follow from the configuration


def chosen(names: Collection[str], where: str) -> str:
    """Return the file that lists the weights: the first of `ORDER` that is there, then a file that ends in .pt.

    Raises: CheckpointError if there is none, or more than one .pt.

    >>> chosen(["pytorch_model.bin", "model.safetensors.index.json", "config.json"], "folder")
    'model.safetensors.index.json'
    """
    found = [name for name in ORDER if name in names]
    if found:
        return found[0]
    last = sorted(name for name in names if name.endswith(".pt"))
    if len(last) == 1:
        return last[0]
    got = f"a folder with {', '.join(last)}" if last else "a folder without weights"
    wanted = "one .pt" if last else ", ".join((*ORDER, "a .pt"))
    remedy = "name the file itself, or leave one there" if last else "check the path"
    raise CheckpointError(message(f"weights: {where}", got=got, wanted=f"{wanted}", remedy=remedy))


def could_hold(names: Iterable[str]) -> bool:
    """Return whether one of the names is one that `chosen` may choose.

    >>> could_hold(["config.json", "last.pt"]), could_hold(["config.json", "model.gguf"])
    (True, False)
    """
    return any(name in ORDER or name.endswith(".pt") for name in names)


def files_of(weight_map: object, there: Collection[str], where: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the tensors in each file of an index, in the index's order.

    Raises: CheckpointError for an index without a map of names to files beside it, or, naming them, for absent files.

    >>> files_of({"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}, ["1.safetensors", "2.safetensors"], "i")
    {'1.safetensors': ('a', 'c'), '2.safetensors': ('b',)}
    """
    if not isinstance(weight_map, Mapping) or not all(_is_plain(file) for file in weight_map.values()):
        remedy = "write the index again, with the library that made it"
        wanted = "a weight_map of names to files beside it"
        raise CheckpointError(message(f"weights: {where}", got="another index", wanted=wanted, remedy=remedy))
    files: dict[str, tuple[str, ...]] = {}
    for name, file in weight_map.items():
        files[file] = (*files.get(file, ()), str(name))
    absent = sorted(set(files) - set(there))
    if absent:
        got, remedy = f"without {some(absent)}", "fetch the whole folder again"
        raise CheckpointError(message(f"weights: {where}", got=got, wanted=f"all {len(files)} files", remedy=remedy))
    return files


def _is_plain(file: object) -> bool:
    return isinstance(file, str) and file not in ("", "..") and PurePosixPath(file).name == file


def some(names: Iterable[str], most: int = 3) -> str:
    """Return the first few names, and the number of the others.

    >>> some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    listed = list(names)
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")


Shapes = Mapping[str, tuple[int, ...]]


def check_weights(got: Shapes, wanted: Shapes, twins: Collection[str], where: str) -> None:
    """Raise CheckpointError, naming the first, for weights that are absent, of another shape or of another model.

    `twins` are names in `got` whose tensor is bit for bit one that is wanted: a tied weight that was stored twice.

    >>> check_weights({"a": (2,), "b": (3,)}, {"a": (2,)}, (), "folder")
    Traceback (most recent call last):
    purestep.core.errors.CheckpointError: weights: folder is with b [3], wanted no such weight; \
build the model that the folder's configuration names
    """
    remedy = "build the model that the folder's configuration names"
    absent = [name for name in wanted if name not in got]
    if absent:
        text = f"all {len(wanted)} weights"
        raise CheckpointError(message(f"weights: {where}", got=f"without {some(absent)}", wanted=text, remedy=remedy))
    for name, shape in wanted.items():
        if got[name] != shape:
            at = f"weights: {where}: {name}"
            raise CheckpointError(message(at, got=list(got[name]), wanted=list(shape), remedy=remedy))
    for name in got:
        if name not in wanted and name not in twins and not name.endswith(FOLLOWS):
            said = f"with {name} {list(got[name])}"
            raise CheckpointError(message(f"weights: {where}", got=said, wanted="no such weight", remedy=remedy))
