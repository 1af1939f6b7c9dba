"""Laws of the layout of a checkpoint of several ranks, and of the choice of the files with a model's weights.

The subject is a `Filing`: the functions of `runtime.effects.checkpoint.layout` and of `hugging_face.stored`.
"""

import itertools
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core.errors import CheckpointError
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.checkpoint import layout
from purestep.runtime.effects.checkpoint.layout import File
from purestep.runtime.effects.hugging_face import stored, weight_files
from purestep.runtime.effects.hugging_face.stored import ORDER

# --- mutants ---
# Common errors in checkpoint layouts, each an edit of a right one.


def by_letters(filing: Any) -> Any:
    """Compare only the beginning of a name with the model's path."""

    def placed(names: list[str], divided: Collection[str], form: str, at: str = "") -> dict[str, str]:
        places = filing.placed(names, divided, form, at)
        model = form == "hugging_face"
        return {name: "model" if model and name.startswith(at) else place for name, place in places.items()}

    return evolve(filing, placed=placed)


def overfills(filing: Any) -> Any:
    """Begin a new file only when the last one is full, whatever the next size is."""

    def numbered(sizes: Mapping[str, int], largest: int) -> dict[str, int]:
        numbers, number, held = dict[str, int](), 1, 0
        for name, size in sizes.items():
            if held >= largest:
                number, held = number + 1, 0
            numbers[name], held = number, held + size
        return numbers

    return evolve(filing, numbered=numbered)


def file_for_each(filing: Any) -> Any:
    """Write each tensor to its own file."""
    return evolve(filing, numbered=lambda sizes, largest: {name: i for i, name in enumerate(sizes, start=1)})


def leaves_the_rest(filing: Any) -> Any:
    """Round the number of files per rank down, and leave the rest."""

    def mine(files: list[File], rank: int, size: int) -> tuple[File, ...]:
        each = len(files) // size
        return tuple(files[rank * each : (rank + 1) * each])

    return evolve(filing, mine=mine)


def all_mine(filing: Any) -> Any:
    """Let every rank read all files."""
    return evolve(filing, mine=lambda files, rank, size: tuple(files))


def direct_folders(filing: Any) -> Any:
    """Sync only the direct parents of the files."""

    def folders(names: list[str]) -> tuple[str, ...]:
        return tuple(sorted({str(PurePosixPath(name).parent) for name in names} - {"."}, reverse=True))

    return evolve(filing, folders=folders)


def outside_in(filing: Any) -> Any:
    """Sync folders from the outermost to the innermost."""
    return evolve(filing, folders=lambda names: filing.folders(names)[::-1])


def leaves_of_first(filing: Any) -> Any:
    """Ignore leaves that the first rank does not have."""

    def one_tree(trees: list[Mapping[str, str]]) -> None:
        first = trees[0]
        filing.one_tree([{name: tree[name] for name in first if name in tree} for tree in trees])

    return evolve(filing, one_tree=one_tree)


def last_fault(filing: Any) -> Any:
    """Report the last fault instead of the first."""

    def first_fault(said: list[str]) -> str:
        faults = [f"rank {rank}: {text}" for rank, text in enumerate(said) if text]
        return f"{faults[-1]} (and {len(faults) - 1} more)" if len(faults) > 1 else "".join(faults)

    return evolve(filing, first_fault=first_fault)


def first_listed(filing: Any) -> Any:
    """Use the first file in the order of the directory listing."""

    def chosen(names: list[str], where: str) -> str:
        known = [name for name in names if name in ORDER or name.endswith(".pt")]
        return known[0] if known else filing.chosen(names, where)

    return evolve(filing, chosen=chosen)


def skips_absent(filing: Any) -> Any:
    """Skip files in the index that do not exist."""

    def files_of(weight_map: Mapping[str, str], there: list[str], where: str) -> Any:
        kept = {name: file for name, file in weight_map.items() if file in there or "/" in file}
        return filing.files_of(kept, there, where)

    return evolve(filing, files_of=files_of)


def leaves_the_folder(filing: Any) -> Any:
    """Accept an index that points out of its folder."""

    def files_of(weight_map: Mapping[str, str], there: list[str], where: str) -> Any:
        return filing.files_of(
            {name: file.rpartition("/")[2] for name, file in weight_map.items()}, [*there, "4.bin"], where
        )

    return evolve(filing, files_of=files_of)


def takes_more(filing: Any) -> Any:
    """Ignore weights that are not wanted."""

    def check_weights(got: Mapping[str, Any], wanted: Mapping[str, Any], twins: Collection[str], where: str) -> None:
        filing.check_weights(got, wanted, {*twins, *got}, where)

    return evolve(filing, check_weights=check_weights)


def any_shape(filing: Any) -> Any:
    """Compare names, not shapes."""

    def check_weights(got: Mapping[str, Any], wanted: Mapping[str, Any], twins: Collection[str], where: str) -> None:
        filing.check_weights({name: wanted.get(name, shape) for name, shape in got.items()}, wanted, twins, where)

    return evolve(filing, check_weights=check_weights)


def silent(filing: Any) -> Any:
    """Raise without the name of the weight."""

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


# --- laws ---


SOURCE = (
    "runtime.effects.checkpoint: what all ranks hold alike lies in one file, what is divided by shards, a model apart"
)


@frozen
class Filing:
    """The subject: functions that lay out checkpoints and find weights."""

    placed: Callable[..., dict[str, str]]
    numbered: Callable[..., dict[str, int]]
    mine: Callable[..., tuple[File, ...]]
    folders: Callable[..., tuple[str, ...]]
    one_tree: Callable[..., None]
    first_fault: Callable[..., str]
    chosen: Callable[..., str]
    files_of: Callable[..., dict[str, tuple[str, ...]]]
    check_weights: Callable[..., None]


def own_filing() -> Filing:
    """Return the library's own functions."""
    return Filing(
        placed=layout.assign_leaves,
        numbered=layout.file_numbers,
        mine=layout.files_of_rank,
        folders=layout.folders,
        one_tree=layout.one_tree,
        first_fault=layout.first_error,
        chosen=stored.weight_file,
        files_of=stored.files_of,
        check_weights=weight_files.check_weights,
    )


def filing_laws() -> Suite:
    """The laws of a Filing."""
    saving = (_places(), _numbers(), _shares(), _folders(), _one_tree(), _first_fault())
    return Suite("filing_laws", (*saving, _order(), _index(), _weights()))


def _law(
    name: str,
    claim: str,
    mutant: Mutant,
    inputs: SearchStrategy[Any],
    check: Callable[[Filing, Any, Seen], None],
    *needs: str,
) -> Law:
    return Law(
        name=name, claim=claim, source=SOURCE, inputs=always(inputs), check=check, mutant=mutant, needs=needs, most=500
    )


def refusal(work: Callable[[], Any]) -> str:
    """The message of the error that is raised; "" if there is none."""
    try:
        work()
    except CheckpointError as error:
        return str(error)
    return ""


NAMES = ("params.w", "params.b", "params_ema.w", "moments.params.w", "moments.b", "step", "params")


def _places() -> Law:
    def check(filing: Filing, drawn: tuple[list[str], list[bool], str], seen: Seen) -> None:
        names, cut, form = drawn
        divided = {name for name, parts in zip(names, cut, strict=True) if parts}
        places = filing.placed(names, divided, form, "params")
        seen("a name that only begins like the model's", form == "hugging_face" and "params_ema.w" in names)
        seen("what all hold beside what is divided", divided and len(divided) < len(names))
        same("the leaves that have a place", list(places), names)
        for name, place in places.items():
            model = form == "hugging_face" and name in ("params.w", "params.b")
            held = "state" if form == "full" or name not in divided else "shards"
            same(f"the place of {name} in the form {form}", place, "model" if model else held)

    forms = st.sampled_from(("sharded", "full", "hugging_face"))
    names = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)
    inputs = names.flatmap(
        lambda some: st.tuples(st.just(some), st.lists(st.booleans(), min_size=len(some), max_size=len(some)), forms)
    )
    mutant = Mutant("takes names that begin like the model's for the model's", by_letters)
    claim = "Each leaf has one place, decided by its whole path, by whether it is divided, and by the form."
    needs = ("a name that only begins like the model's", "what all hold beside what is divided")
    return _law("each_leaf_has_one_place", claim, mutant, inputs, check, *needs)


def _numbers() -> Law:
    def check(filing: Filing, drawn: tuple[list[int], int], seen: Seen) -> None:
        sizes, largest = {f"t{i}": size for i, size in enumerate(drawn[0])}, drawn[1]
        numbers = filing.numbered(sizes, largest)
        same("the tensors with a number", list(numbers), list(sizes))
        seen("a tensor larger than a file may be", any(size > largest for size in drawn[0]))
        seen("several files", max(numbers.values()) > 1)
        files = [[name for name in sizes if numbers[name] == number] for number in range(1, 1 + max(numbers.values()))]
        same("the order through all files", [name for file in files for name in file], list(sizes))
        for file in files:
            total = sum(sizes[name] for name in file)
            require(file and (total <= largest or len(file) == 1), f"a file of {total} bytes, {largest} allowed")
        for file, after in itertools.pairwise(files):
            total = sum(sizes[name] for name in file) + sizes[after[0]]
            require(total > largest, f"{after[0]} has a file of its own and would have made one of {total} bytes")

    inputs = st.tuples(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(1, 15))
    mutant = Mutant("looks at a file's size when it is full alone", overfills)
    claim = "A model's files are numbered from 1 in the tensors' order, none too large, none for nothing."
    needs = ("a tensor larger than a file may be", "several files")
    return _law("files_have_a_bound", claim, mutant, inputs, check, *needs)


def _shares() -> Law:
    def check(filing: Filing, drawn: tuple[list[int], int], seen: Seen) -> None:
        files, ranks = [File(str(i), size, "") for i, size in enumerate(drawn[0])], drawn[1]
        shares = [filing.mine(files, rank, ranks) for rank in range(ranks)]
        seen("files that cannot be shared evenly", len(files) % ranks)
        read = sorted(file.name for share in shares for file in share)
        same("the files that are read", read, sorted(file.name for file in files))
        counts = [len(share) for share in shares]
        require(max(counts) - min(counts) <= 1, f"ranks read {counts} files")

    inputs = st.tuples(st.lists(st.integers(0, 99), max_size=9), st.integers(1, 4))
    mutant = Mutant("gives every rank as many, and leaves the rest", leaves_the_rest)
    claim = "Every file is looked at for damage by one rank, and no rank has two more than another."
    return _law("every_file_is_looked_at", claim, mutant, inputs, check, "files that cannot be shared evenly")


PATHS = ("a", "m/a", "m/b", "m/n/a", "s/a", "s/t/u/a")


def _folders() -> Law:
    def check(filing: Filing, names: list[str], seen: Seen) -> None:
        found = filing.folders(names)
        wanted = {str(parent) for name in names for parent in PurePosixPath(name).parents} - {"."}
        seen("a folder with nothing but folders in it", "s/t/u/a" in names)
        same("the folders, in any order", sorted(found), sorted(wanted))
        late = [(a, b) for a, b in itertools.combinations(found, 2) if b.startswith(f"{a}/")]
        require(not late, f"a folder is made to last before what is in it: {late}")

    mutant = Mutant("knows the folders that files lie in alone", direct_folders)
    claim = "Every folder on the way to a file is made to last, those inside first."
    inputs = st.lists(st.sampled_from(PATHS), unique=True)
    return _law(
        "folders_are_synced_inside_out", claim, mutant, inputs, check, "a folder with nothing but folders in it"
    )


def _one_tree() -> Law:
    def check(filing: Filing, trees: list[dict[str, str]], seen: Seen) -> None:
        said = refusal(lambda: filing.one_tree(trees))
        ranks = [rank for rank, tree in enumerate(trees) if tree != trees[0]]
        seen("ranks that agree", not ranks and len(trees) > 1)
        seen("a leaf that only a later rank has", any(set(trees[rank]) > set(trees[0]) for rank in ranks))
        require(bool(said) == bool(ranks), f"ranks {ranks} differ from rank 0, and it says {said!r}")
        require(not ranks or f"on rank {ranks[0]}" in said, f"rank {ranks[:1]} differs first, and it says {said!r}")

    leaf = st.dictionaries(st.sampled_from(("a", "b", "c")), st.sampled_from(("1", "2")), max_size=3)
    mutant = Mutant("looks at the leaves of rank 0 alone", leaves_of_first)
    claim = "What all ranks are to hold alike is refused unless they do, and the first rank that differs is named."
    inputs = st.lists(leaf, min_size=1, max_size=3) | st.tuples(leaf, st.integers(2, 3)).map(lambda x: [x[0]] * x[1])
    return _law(
        "ranks_hold_one_tree", claim, mutant, inputs, check, "ranks that agree", "a leaf that only a later rank has"
    )


def _first_fault() -> Law:
    def check(filing: Filing, said: list[str], seen: Seen) -> None:
        faults = [(rank, text) for rank, text in enumerate(said) if text]
        told = filing.first_fault(said)
        seen("several faults", len(faults) > 1)
        require(bool(told) == bool(faults), f"of {said} it says {told!r}")
        if faults:
            rank, text = faults[0]
            require(told.startswith(f"rank {rank}: {text}"), f"of {said} it says {told!r}")
            require((f"{len(faults) - 1} more" in told) == (len(faults) > 1), f"of {said} it says {told!r}")

    mutant = Mutant("tells the last fault", last_fault)
    claim = "Of faults on several ranks the first is told with its rank, and how many more there are."
    inputs = st.lists(st.sampled_from(("", "full", "gone")), max_size=4)
    return _law("one_line_for_all_ranks", claim, mutant, inputs, check, "several faults")


THERE = (*ORDER, "a.pt", "b.pt", "config.json")


def _order() -> Law:
    def check(filing: Filing, there: list[str], seen: Seen) -> None:
        ranked = [name for name in ORDER if name in there]
        pickles = [name for name in there if name.endswith(".pt")]
        seen(
            "two sources, the better one listed later",
            len(ranked) > 1 and there.index(ranked[0]) > there.index(ranked[1]),
        )
        seen("more than one .pt", not ranked and len(pickles) > 1)
        if ranked or len(pickles) == 1:
            same("the source", filing.chosen(there, "folder"), (ranked or pickles)[0])
        else:
            said = refusal(lambda: filing.chosen(there, "folder"))
            require(said and all(name in said for name in pickles), f"of {there} it says {said!r}")

    mutant = Mutant("takes the first file that it knows", first_listed)
    claim = "Weights are read from one source, in a fixed order; several .pt are refused by name."
    needs = ("two sources, the better one listed later", "more than one .pt")
    inputs = st.lists(st.sampled_from(THERE), unique=True) | st.lists(st.sampled_from(THERE[-3:]), unique=True)
    return evolve(_law("sources_have_an_order", claim, mutant, inputs, check, *needs), share=0.01)


def _index() -> Law:
    def check(filing: Filing, drawn: tuple[dict[str, str], list[str]], seen: Seen) -> None:
        weight_map, there = drawn
        outside = [file for file in weight_map.values() if "/" in file]
        absent = sorted({file for file in weight_map.values() if file not in there})
        said = refusal(lambda: filing.files_of(weight_map, there, "index"))
        seen("a file outside the folder", outside)
        seen("an absent file", absent and not outside)
        seen("a whole folder", weight_map and not said)
        require(bool(said) == bool(absent or outside), f"of {weight_map} with {there} it says {said!r}")
        require(bool(outside) or all(file in said for file in absent), f"{absent} are absent, and it says {said!r}")
        if not said:
            found = {name: file for file, names in filing.files_of(weight_map, there, "i").items() for name in names}
            same("the file of each weight", found, weight_map)

    files = st.sampled_from(("1.bin", "2.bin", "3.bin", "1.bin", "2.bin", "../4.bin"))
    weight_maps = st.dictionaries(st.sampled_from("abcd"), files, max_size=4)
    there = st.lists(st.sampled_from(("1.bin", "2.bin", "3.bin")), unique=True)
    mutant = Mutant("reads what there is of an index's files", skips_absent)
    claim = "Every weight of an index is read from its file, inside the folder; absent files are named."
    needs = ("a file outside the folder", "an absent file", "a whole folder")
    return _law("indices_are_whole", claim, mutant, st.tuples(weight_maps, there), check, *needs)


def _weights() -> Law:
    def check(filing: Filing, drawn: tuple[dict[str, Any], dict[str, Any], set[str]], seen: Seen) -> None:
        got, wanted, twins = drawn
        extra = [name for name in got if name not in wanted and name not in twins and not name.endswith(".inv_freq")]
        wrong = [name for name in wanted if got.get(name) != wanted[name]]
        said = refusal(lambda: filing.check_weights(got, wanted, twins, "folder"))
        seen("weights of a larger model", extra and not wrong)
        seen("a tied weight stored twice", not extra and not wrong and twins & set(got) - set(wanted))
        seen("another shape", wrong and not extra and set(wanted) <= set(got))
        require(bool(said) == bool(extra or wrong), f"of {got} for {wanted} it says {said!r}")
        require(
            not said or any(name in said for name in (*wrong, *extra)), f"it names none of {wrong or extra}: {said!r}"
        )

    shapes = st.sampled_from(((2,), (2, 3)))
    names = st.sampled_from(("a", "b", "c", "rope.inv_freq"))
    some = st.dictionaries(names, shapes, max_size=4)
    pairs = st.tuples(some, some, st.sets(names, max_size=2))
    alike = st.tuples(some, some, st.sets(names, max_size=2)).map(lambda x: ({**x[0], **x[1]}, x[1], x[2]))
    shaped = st.dictionaries(names, st.tuples(shapes, shapes), max_size=3)
    two: SearchStrategy[Any] = shaped.map(
        lambda x: ({name: a for name, (a, _) in x.items()}, {name: b for name, (_, b) in x.items()}, set())
    )
    mutant = Mutant("lets weights pass that nobody asked for", takes_more)
    claim = "Weights are those of the model, all of them and no others; the first that is not is named."
    needs = ("weights of a larger model", "a tied weight stored twice", "another shape")
    return _law("weights_are_the_models", claim, mutant, pairs | alike | two, check, *needs)
