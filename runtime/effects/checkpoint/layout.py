"""The place of each leaf in a checkpoint: decided by names, shapes and whether a tensor is sharded, not by data."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from attrs import frozen

from ....core.errors import CheckpointError, message

STATE, SHARDS, MODEL = "state", "shards", "model"  # one file; a folder by ranks; a folder that other libraries open
FULL, SHARDED, HUGGING_FACE = "full", "sharded", "hugging_face"
FORMATS = (SHARDED, FULL, HUGGING_FACE)


def assign_leaves(names: Iterable[str], divided: Iterable[str], form: str, at: str = "") -> dict[str, str]:
    """Return the place of each leaf: `divided` are the sharded ones, `at` is the prefix of the model's.

    A full checkpoint holds everything in one file. Otherwise sharded leaves are stored by shards, and leaves that every rank
    has are stored once, in the file. In Hugging Face's form the leaves below `at` are the model's.

    >>> assign_leaves(["params.w", "moment.w", "step"], ["params.w", "moment.w"], "hugging_face", at="params")
    {'params.w': 'model', 'moment.w': 'shards', 'step': 'state'}
    """
    parts = frozenset(divided)

    def place(name: str) -> str:
        if form == FULL:
            return STATE
        if form == HUGGING_FACE and name.startswith(f"{at}."):
            return MODEL
        return SHARDS if name in parts else STATE

    return {name: place(name) for name in names}


def file_numbers(sizes: Mapping[str, int], largest: int) -> dict[str, int]:
    """Return the number of the file for each tensor, 1 and up: in order, as many as fit into `largest` bytes each.

    A tensor that is larger has a file of its own.

    >>> file_numbers({"a": 3, "b": 2, "c": 9, "d": 1}, largest=5)
    {'a': 1, 'b': 1, 'c': 2, 'd': 3}
    """
    numbers: dict[str, int] = {}
    number, room = 0, -1
    for name, size in sizes.items():
        if size > room:
            number, room = number + 1, max(largest, size)
        numbers[name] = number
        room -= size
    return numbers


@frozen
class File:
    """Name, size and hash of a file of a checkpoint, when it was finished."""

    name: str  # below the checkpoint's folder, with /
    size: int  # bytes
    sha256: str


def files_of_rank(files: Iterable[File], rank: int, size: int) -> tuple[File, ...]:
    """Return the files that this rank checks for damage; each file is checked by one rank, and large ones are spread.

    >>> [file.name for file in files_of_rank([File("a", 5, ""), File("b", 9, ""), File("c", 1, "")], 0, 2)]
    ['b', 'c']
    """
    ordered = sorted(files, key=lambda file: (-file.size, file.name))
    return tuple(ordered[rank::size])


def folders(names: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of the files, innermost first, without the checkpoint's own.

    >>> folders(["manifest.json", "model/a.json", "model/b/c"])
    ('model/b', 'model')
    """
    found = {parent.as_posix() for name in names for parent in PurePosixPath(name).parents} - {"."}
    return tuple(sorted(found, key=lambda name: (-name.count("/"), name)))


def one_tree(trees: Iterable[Mapping[str, str]]) -> None:
    """Raise CheckpointError, naming the first leaf, unless all ranks have the same description of each leaf.

    >>> one_tree([{"step": "[] int64 6b"}, {"step": "[] int64 7c"}])
    Traceback (most recent call last):
    purestep.core.errors.CheckpointError: save: step is [] int64 7c on rank 1, wanted [] int64 6b as on rank 0; \
gather what ranks have of their own into one tensor that all of them hold
    """
    first, *rest = trees
    for rank, tree in enumerate(rest, start=1):
        for name in dict.fromkeys((*first, *tree)):
            if first.get(name) != tree.get(name):
                remedy = "gather what ranks have of their own into one tensor that all of them hold"
                got, wanted = f"{tree.get(name, 'absent')} on rank {rank}", f"{first.get(name, 'no leaf')} as on rank 0"
                raise CheckpointError(message(f"save: {name}", got=got, wanted=wanted, remedy=remedy))


def first_error(said: Sequence[str]) -> str:
    """Return the first error text, with its rank and the number of other ranks with one; "" if there is none.

    >>> first_error(["", "the disk is full", "the disk is full"])
    'rank 1: the disk is full (and 1 more)'
    """
    faults = [f"rank {rank}: {text}" for rank, text in enumerate(said) if text]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0]}{more}" if faults else ""
