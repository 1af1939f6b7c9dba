"""Data sets from folders and names, and one line for whatever is wrong with them."""

import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

from purestep.core.errors import ChoiceError, PurestepError
from purestep.core.logic.corrupt import domains
from purestep.core.logic.knowledge import is_fact, knowledge
from purestep.core.logic.rules import Rule, encode_rules
from purestep.core.logic.terms import atom_numbers
from purestep.runtime.effects.datasets import folder, open_dataset, open_rules, pykeen_dataset
from purestep.runtime.logic.dataset import Dataset, check_dataset, vocabulary_of, with_rules
from purestep.runtime.logic.family import family

DATA = Path(__file__).parents[4] / "shared" / "data"
SYMMETRIC = Rule(("near", "X", "Y"), (("near", "Y", "X"),))
SMALL = Dataset("small", (("near", "a", "b"),), (), (("near", "b", "c"),))


def write(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / f"{name}.txt").write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path, train="near(a,b).\nnear(b,c).\n", test="c\tnear\tå\n")


# --- the value ---


def test_a_vocabulary_has_every_name_of_splits_rules_and_domains() -> None:
    rules = (Rule(("near", "X", "d"), (("by", "X", "e"),)),)
    whole = attrs.evolve(SMALL, valid=(("far", "f", "a"),), rules=rules, domains={("on", 0): ("g",)})
    names = vocabulary_of(whole, variables=2)
    assert (names.predicates, "".join(names.constants), names.variables) == (("by", "far", "near", "on"), "abcdefg", 2)
    encode_rules(names, whole.rules)
    domains(names, whole.domains)
    assert is_fact(
        names, knowledge(names, atom_numbers(names, whole.train), *encode_rules(names, ())), torch.tensor([3, 1, 2])
    )


def test_a_data_set_without_facts_or_queries_is_refused() -> None:
    assert check_dataset(SMALL) is SMALL
    for split, empty in (("train", attrs.evolve(SMALL, train=())), ("test", attrs.evolve(SMALL, test=()))):
        with pytest.raises(ChoiceError, match=f"small: {split} is empty"):
            check_dataset(empty)


def test_rules_replace_rules() -> None:
    assert with_rules(SMALL, [SYMMETRIC]).rules == (SYMMETRIC,)
    assert with_rules(with_rules(SMALL, [SYMMETRIC]), []) == SMALL
    with pytest.raises(ChoiceError, match=r"small: rule 2 is .* which leaves Y open"):
        with_rules(SMALL, [SYMMETRIC, Rule(("near", "X", "Y"), (("near", "X", "X"),))])


# --- folders ---


def test_a_folder_of_two_files_is_a_data_set(small: Path) -> None:
    train, test = (("near", "a", "b"), ("near", "b", "c")), (("near", "c", "å"),)
    assert folder(small) == folder(str(small)) == open_dataset(str(small)) == Dataset(small.name, train, (), test)


def test_a_folder_may_have_more(small: Path) -> None:
    write(small, valid="\ufeff# none but this\nin(a,z)", rules="r:1:near(y,x) -> near(x,y)")
    write(small, domain2constants="towns a b c å\nlands z y\nin:towns:lands")
    found = folder(small)
    assert (found.valid, found.rules) == ((("in", "a", "z"),), (SYMMETRIC,))
    towns, lands = ("a", "b", "c", "å"), ("y", "z")
    assert found.domains == {("near", 0): towns, ("near", 1): towns, ("in", 0): towns, ("in", 1): lands}
    assert domains(vocabulary_of(found), found.domains).count.tolist()[1:] == [[4, 2], [4, 4]]


def test_an_argument_has_the_domains_of_its_constants_or_none(small: Path) -> None:
    write(small, domain2constants="one a\ntwo b c e")
    assert folder(small).domains == {("near", 0): ("a", "b", "c", "e")}
    write(small, domain2constants="one a\nother b e")
    assert folder(small).domains == {}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train": "near(a,b).\nnear a b\n"}, r"train\.txt, line 2 is 'near a b', wanted relation\(head, tail\)\. or"),
        ({"test": "a\tnear\n"}, r"test\.txt, line 1 is 'a\\tnear', wanted"),
        ({"valid": "\n\na near b"}, r"valid\.txt, line 3 is 'a near b', wanted"),
        ({"rules": "near(X,Y) <- near(Y,X)"}, r"rules\.txt, line 1 is 'near"),
        ({"domain2constants": "towns"}, r"domain2constants\.txt, line 1 is 'towns'"),
        ({"train": "% nothing"}, ": train is empty, wanted facts; give it at least one fact"),
        ({"test": ""}, ": test is empty"),
    ],
)
def test_what_is_wrong_in_a_folder_is_said_in_one_line(small: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(ChoiceError, match=said) as refused:
        folder(write(small, **files))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["train", "test"])
def test_a_split_that_must_be_there_is_missed(small: Path, name: str) -> None:
    (small / f"{name}.txt").unlink()
    with pytest.raises(ChoiceError, match=rf"{name}\.txt is absent, wanted a text file in UTF-8"):
        folder(small)


def test_files_that_are_no_text_and_folders_that_are_none_are_refused(small: Path) -> None:
    (small / "train.txt").write_bytes(b"near(\xff,b).")
    with pytest.raises(ChoiceError, match=r"train\.txt is unreadable \(UnicodeDecodeError\)"):
        folder(small)
    for path in (small / "nowhere", small / "test.txt"):
        with pytest.raises(ChoiceError, match=f"data set is '{path}', no folder, wanted family:PEOPLE"):
            folder(path)


# --- by name ---


def test_worlds_are_made_by_name() -> None:
    assert open_dataset("family:12") == family(12)
    assert open_dataset("family:12:3") == family(12, 3) != family(12)


@pytest.mark.parametrize(
    "text",
    [
        "family",
        "family:",
        "family:x",
        "family:12:",
        "family:12:3:4",
        "family:-12",
        "family:9",
        "family:" + "9" * 5000,
        "family:12:" + "9" * 19,
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ChoiceError, match="family"):
        open_dataset(text)


def test_without_pykeen_its_data_sets_name_the_extra() -> None:
    if importlib.util.find_spec("pykeen"):
        pytest.skip("pykeen is installed")
    with pytest.raises(ModuleNotFoundError, match=r"pykeen is absent, .* pip install 'purestep\[kg\]'") as missed:
        open_dataset("pykeen:nations")
    assert missed.value.name == "pykeen"


def test_what_pykeen_itself_needs_is_missed_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = types.ModuleType("pykeen")
    broken.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "pykeen", broken)
    monkeypatch.delitem(sys.modules, "pykeen.datasets", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'purestep\[kg\]'") as missed:
        pykeen_dataset("nations")
    assert missed.value.name == "pykeen.datasets"
    (tmp_path / "datasets.py").write_text("import a_module_that_is_nowhere")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'a_module_that_is_nowhere'$") as missed:
        pykeen_dataset("nations")
    assert missed.value.name == "a_module_that_is_nowhere"


class Factory:
    """What a split of PyKEEN's looks like."""

    def __init__(self, *triples: tuple[int, int, int]) -> None:
        self.entity_to_id = {"a": 0, "b": 1, "c": 2}
        self.relation_to_id = {"far": 0, "near": 1}
        self.mapped_triples = torch.tensor(triples).reshape(-1, 3)


def pretend(monkeypatch: pytest.MonkeyPatch, known: dict[str, Any]) -> None:
    """A PyKEEN with these data sets."""
    fake = types.ModuleType("pykeen.datasets")
    fake.__dict__["dataset_resolver"] = types.SimpleNamespace(lookup_dict=known)
    monkeypatch.setitem(sys.modules, "pykeen", types.ModuleType("pykeen"))
    monkeypatch.setitem(sys.modules, "pykeen.datasets", fake)


def test_pykeens_numbers_become_names(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.SimpleNamespace(training=Factory((0, 1, 1), (2, 0, 0)), validation=None, testing=Factory((1, 1, 2)))
    pretend(monkeypatch, {"small": lambda: made})
    wanted = Dataset("pykeen:small", (("near", "a", "b"), ("far", "c", "a")), (), (("near", "b", "c"),))
    assert open_dataset("pykeen:Small") == wanted
    with pytest.raises(ChoiceError, match=r"pykeen data set is 'smal', wanted one of .* did you mean 'small'"):
        pykeen_dataset("smal")


@pytest.mark.parametrize("count", [20, 21, 25])
def test_an_error_lists_no_more_than_twenty_names(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{number:02}" for number in range(count)]
    listed = ", ".join(map(repr, names[:20])) + (f", ... and {count - 20} more" if count > 20 else "")
    pretend(monkeypatch, dict.fromkeys(reversed(names)))
    with pytest.raises(ChoiceError, match=re.escape(f"one of [{listed}]")):
        pykeen_dataset("zzz")
    other = write(tmp_path, other="in(X,Y) :- near(Y,X).") / "other.txt"
    many = attrs.evolve(SMALL, train=tuple((name, "a", "b") for name in names[1:]), test=((names[0], "a", "b"),))
    with pytest.raises(ChoiceError, match=re.escape(f"rules for relations of small: [{listed}]")):
        open_rules(str(other), many)


# --- rules ---


def test_rules_come_from_a_file_the_miner_or_the_data_set(small: Path) -> None:
    world = family(50)
    assert open_rules("own", world) is world
    mined = open_rules("mine", world)
    assert len(mined.rules) > 30
    assert attrs.evolve(mined, rules=world.rules) == world
    path = write(small, mine="near(X, Y) :- near(Y, X).\nin(X, Y) :- near(X, Y).") / "mine.txt"
    assert open_rules(str(path), SMALL).rules == (SYMMETRIC, Rule(("in", "X", "Y"), (("near", "X", "Y"),)))


def test_rules_that_are_missing_or_of_another_data_set_are_refused(small: Path) -> None:
    for text, remedy in {"own": "mine some with 'mine', or name a file", "mine": "lower the least confidence"}.items():
        with pytest.raises(ChoiceError, match=f"rules '{text}' for small is none, wanted rules; {remedy}"):
            open_rules(text, SMALL)
    write(small, none="% none", other="in(X,Y) :- near(Y,X).", wrong="near(X,Y) :- near(Y,Z).")
    for name, said in {
        "none": "is none, wanted rules",
        "other": r"is about 'in' and the like, wanted rules for relations of small: \['near'\]",
        "wrong": r"wrong\.txt, line 1 is .* which leaves X open",
        "absent": r"absent\.txt is absent, wanted own, mine or a text file",
    }.items():
        with pytest.raises(PurestepError, match=said) as refused:
            open_rules(str(small / f"{name}.txt"), SMALL)
        assert "\n" not in str(refused.value)


# --- the real ones ---


@pytest.mark.parametrize(
    ("name", "sizes", "relations"),
    [
        ("countries_S1", (1111, 24, 24), 2),
        ("countries_S2", (1063, 24, 24), 2),
        ("kinship", (8544, 1068, 1074), 25),
        ("nations", (1592, 199, 201), 55),
        ("umls", (5216, 652, 661), 46),
        ("wn18rr", (86835, 3034, 3134), 11),
    ],
)
def test_data_sets_people_use_are_read(name: str, sizes: tuple[int, int, int], relations: int) -> None:
    if not DATA.exists():
        pytest.skip(f"no data sets in {DATA}")
    found = open_dataset(str(DATA / name))
    assert (len(found.train), len(found.valid), len(found.test)) == sizes
    assert (found.name, len(vocabulary_of(found).predicates)) == (name, relations)


def test_mining_finds_that_regions_lie_in_regions() -> None:
    if not DATA.exists():
        pytest.skip(f"no data sets in {DATA}")
    found = open_rules("mine", folder(DATA / "countries_S1"))
    transitive = Rule(("locatedin", "X", "Z"), (("locatedin", "X", "Y"), ("locatedin", "Y", "Z")))
    assert found.rules[0] == transitive
    encode_rules(vocabulary_of(found), found.rules)
