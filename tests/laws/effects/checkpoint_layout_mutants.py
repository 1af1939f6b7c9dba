"""Filings as people get them wrong, each an edit around a right one."""

from collections.abc import Callable, Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

from attrs import evolve

from purestep.core.errors import CheckpointError
from purestep.runtime.effects.sharded.placing import File
from purestep.runtime.effects.sharded.weight_rules import ORDER


def by_letters(filing: Any) -> Any:
    """Asks what a name begins with."""

    def placed(names: list[str], divided: Collection[str], form: str, at: str = "") -> dict[str, str]:
        places = filing.placed(names, divided, form, at)
        model = form == "hugging_face"
        return {name: "model" if model and name.startswith(at) else place for name, place in places.items()}

    return evolve(filing, placed=placed)


def overfills(filing: Any) -> Any:
    """Begins a new file when the last one is full, whatever comes next."""

    def numbered(sizes: Mapping[str, int], largest: int) -> dict[str, int]:
        numbers, number, held = dict[str, int](), 1, 0
        for name, size in sizes.items():
            if held >= largest:
                number, held = number + 1, 0
            numbers[name], held = number, held + size
        return numbers

    return evolve(filing, numbered=numbered)


def file_for_each(filing: Any) -> Any:
    """One tensor, one file."""
    return evolve(filing, numbered=lambda sizes, largest: {name: i for i, name in enumerate(sizes, start=1)})


def leaves_the_rest(filing: Any) -> Any:
    """Divides the count by that of the ranks."""

    def mine(files: list[File], rank: int, size: int) -> tuple[File, ...]:
        each = len(files) // size
        return tuple(files[rank * each : (rank + 1) * each])

    return evolve(filing, mine=mine)


def all_mine(filing: Any) -> Any:
    """Every rank reads everything."""
    return evolve(filing, mine=lambda files, rank, size: tuple(files))


def direct_folders(filing: Any) -> Any:
    """Syncs what files were written into."""

    def folders(names: list[str]) -> tuple[str, ...]:
        return tuple(sorted({str(PurePosixPath(name).parent) for name in names} - {"."}, reverse=True))

    return evolve(filing, folders=folders)


def outside_in(filing: Any) -> Any:
    """Syncs folders in the order in which they were made."""
    return evolve(filing, folders=lambda names: filing.folders(names)[::-1])


def leaves_of_first(filing: Any) -> Any:
    """Does not see what only others have."""

    def one_tree(trees: list[Mapping[str, str]]) -> None:
        first = trees[0]
        filing.one_tree([{name: tree[name] for name in first if name in tree} for tree in trees])

    return evolve(filing, one_tree=one_tree)


def last_fault(filing: Any) -> Any:
    """Remembers the last thing that was said."""

    def first_fault(said: list[str]) -> str:
        faults = [f"rank {rank}: {text}" for rank, text in enumerate(said) if text]
        return f"{faults[-1]} (and {len(faults) - 1} more)" if len(faults) > 1 else "".join(faults)

    return evolve(filing, first_fault=first_fault)


def first_listed(filing: Any) -> Any:
    """Takes files as the disk lists them."""

    def chosen(names: list[str], where: str) -> str:
        known = [name for name in names if name in ORDER or name.endswith(".pt")]
        return known[0] if known else filing.chosen(names, where)

    return evolve(filing, chosen=chosen)


def skips_absent(filing: Any) -> Any:
    """Asks for what is there."""

    def files_of(weight_map: Mapping[str, str], there: list[str], where: str) -> Any:
        kept = {name: file for name, file in weight_map.items() if file in there or "/" in file}
        return filing.files_of(kept, there, where)

    return evolve(filing, files_of=files_of)


def leaves_the_folder(filing: Any) -> Any:
    """Follows an index wherever it points."""

    def files_of(weight_map: Mapping[str, str], there: list[str], where: str) -> Any:
        return filing.files_of(
            {name: file.rpartition("/")[2] for name, file in weight_map.items()}, [*there, "4.bin"], where
        )

    return evolve(filing, files_of=files_of)


def takes_more(filing: Any) -> Any:
    """Looks at what is wanted."""

    def check_weights(got: Mapping[str, Any], wanted: Mapping[str, Any], twins: Collection[str], where: str) -> None:
        filing.check_weights(got, wanted, {*twins, *got}, where)

    return evolve(filing, check_weights=check_weights)


def any_shape(filing: Any) -> Any:
    """Looks at names."""

    def check_weights(got: Mapping[str, Any], wanted: Mapping[str, Any], twins: Collection[str], where: str) -> None:
        filing.check_weights({name: wanted.get(name, shape) for name, shape in got.items()}, wanted, twins, where)

    return evolve(filing, check_weights=check_weights)


def silent(filing: Any) -> Any:
    """Refuses without a name."""

    def check_weights(got: Mapping[str, Any], wanted: Mapping[str, Any], twins: Collection[str], where: str) -> None:
        try:
            filing.check_weights(got, wanted, twins, where)
        except CheckpointError:
            raise CheckpointError("another model") from None

    return evolve(filing, check_weights=check_weights)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "gives every tensor a file": file_for_each,
    "lets every rank look at every file": all_mine,
    "syncs folders from outside in": outside_in,
    "follows an index out of its folder": leaves_the_folder,
    "takes weights of any shape": any_shape,
    "refuses weights without a name": silent,
}
