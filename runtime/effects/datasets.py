"""Data sets of knowledge graphs, by name: generated families, folders of text files, PyKEEN's collection; and their rules."""

import difflib
import importlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from ...core.errors import ChoiceError, message
from ...core.logic.parse import DomainLines, parse_domains, parse_facts, parse_rules
from ...core.logic.terms import Names
from ..files.reading import read_text, reason
from ..logic.dataset import Dataset, check_dataset, with_rules
from ..logic.family import family
from ..logic.mine import mine_rules
from .clock import seconds

TRAIN, VALID, TEST, RULES, DOMAINS = "train.txt", "valid.txt", "test.txt", "rules.txt", "domain2constants.txt"
FORMS = "family:PEOPLE, family:PEOPLE:SEED, pykeen:NAME or a folder with train.txt and test.txt"
DIGITS = 18  # largest number of digits of a number in a name
FEW = 20  # names that an error lists


def open_dataset(text: str) -> Dataset:
    """Return the data set of a name: `family:200`, `family:200:7` with a seed, `pykeen:nations`, or a folder.

    Raises: ChoiceError; ModuleNotFoundError where PyKEEN is needed and absent.

    >>> open_dataset("family:50:7").name
    'family:50:7'
    """
    kind, _, rest = text.partition(":")
    if kind == "family" and rest:
        numbers = rest.split(":")
        if len(numbers) > 2 or not all(number.isdecimal() and len(number) <= DIGITS for number in numbers):
            raise ChoiceError(message("data set", got=repr(text), wanted=FORMS, remedy="write e.g. family:200:7"))
        return family(*map(int, numbers))
    return pykeen_dataset(rest) if kind == "pykeen" else folder(text)


@frozen
class Mining:
    """Settings of rule mining; see `mine`."""

    most: int = 10  # rules of a relation
    length: int = 2  # atoms in the longest body
    confidence: float = 0.1  # least support / body
    support: int = 2  # least number of facts that a rule proves
    smoothing: float = 5.0  # added to the body
    seconds: float = math.inf  # after which no further bodies of three atoms are counted


def open_rules(text: str, dataset: Dataset, mining: Mining | None = None) -> Dataset:
    """Return the data set with the rules of an option: `own` keeps its own, `mine` mines its train split, else a file's.

    Raises: ChoiceError for a file that cannot be read or is about other relations, and if there is no rule.

    >>> from ..logic.family import family
    >>> len(open_rules("own", family(50)).rules)
    28
    """
    if text == "own":
        found = dataset
    elif text == "mine":
        mining = mining or Mining()
        end = seconds() + mining.seconds
        mined = mine_rules(
            dataset.train,
            min_support=mining.support,
            min_confidence=mining.confidence,
            most_per_predicate=mining.most,
            smoothing=mining.smoothing,
            length=mining.length,
            going=lambda: seconds() < end,
        )
        found = with_rules(dataset, [each.rule for each in mined])
    else:
        found = _with_rules_of(Path(text), dataset)
    if not found.rules:
        mined_none, others = "lower the least confidence or support", "mine some with 'mine', or name a file of rules"
        remedy = mined_none if text == "mine" else others
        raise ChoiceError(message(f"rules {text!r} for {dataset.name}", got="none", wanted="rules", remedy=remedy))
    return found


def folder(path: str | Path) -> Dataset:
    """Return the data set in a folder of text files, in UTF-8.

    train.txt and test.txt, and valid.txt if there is one: see `parse_facts`. rules.txt, if there is one: `parse_rules`.
    domain2constants.txt, if there is one: `parse_domains`; an argument without a domain there has the domains of the constants
    that it takes in the three splits, or all constants if one of these is in no domain.
    Raises: ChoiceError, with file and line number for a wrong line.
    """
    place = Path(path)
    if not place.is_dir():
        raise ChoiceError(message("data set", got=f"{str(path)!r}, no folder", wanted=FORMS, remedy="check the path"))
    train, test = (_facts(place / name) for name in (TRAIN, TEST))
    valid = _facts(place / VALID) if (place / VALID).exists() else ()
    rules = parse_rules(_read(place / RULES), str(place / RULES)) if (place / RULES).exists() else ()
    known = Dataset(place.resolve().name, train, valid, test, rules)
    if (place / DOMAINS).exists():
        lines = parse_domains(_read(place / DOMAINS), str(place / DOMAINS))
        known = Dataset(known.name, train, valid, test, rules, _domains(lines, (*train, *valid, *test)))
    return check_dataset(_checked(place / RULES, known))


def pykeen_dataset(name: str) -> Dataset:
    """Return one of PyKEEN's data sets, without rules; PyKEEN downloads those that it does not contain. Needs the extra `kg`.

    Raises: ModuleNotFoundError if PyKEEN is absent, or, unchanged, if a package that PyKEEN itself needs is absent;
    ChoiceError.
    """
    try:
        pykeen: Any = importlib.import_module("pykeen.datasets")
    except ModuleNotFoundError as cause:
        if not (cause.name or "").startswith("pykeen"):
            raise
        text = message("pykeen", got="absent", wanted=">= 1.10", remedy="pip install 'purestep[kg]'")
        raise ModuleNotFoundError(text, name=cause.name) from None
    known, asked = pykeen.dataset_resolver.lookup_dict, name.lower()
    if asked not in known:
        near = difflib.get_close_matches(asked, known, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else "choose one of these"
        raise ChoiceError(message("pykeen data set", got=repr(asked), wanted=f"one of {_few(known)}", remedy=remedy))
    made = known[asked]()
    train, valid, test = (_triples(part) for part in (made.training, made.validation, made.testing))
    return check_dataset(Dataset(f"pykeen:{asked}", train, valid, test))


def _few(names: Iterable[str]) -> str:
    """Return the first names in order, and the number of the others."""
    every = sorted(names)
    more = [f"... and {len(every) - FEW} more"] if len(every) > FEW else []
    return f"[{', '.join([*map(repr, every[:FEW]), *more])}]"


def _triples(factory: Any) -> tuple[Names, ...]:
    """Return the facts of one of PyKEEN's splits, which may be absent."""
    if factory is None:
        return ()
    words = {number: str(word) for word, number in factory.entity_to_id.items()}
    relations = {number: str(word) for word, number in factory.relation_to_id.items()}
    return tuple((relations[r], words[h], words[t]) for h, r, t in factory.mapped_triples.tolist())


def _with_rules_of(path: Path, dataset: Dataset) -> Dataset:
    rules = parse_rules(_read(path, "own, mine or a text file in UTF-8"), str(path))
    relations = {fact[0] for fact in (*dataset.train, *dataset.valid, *dataset.test)}
    if rules and not any(rule.head[0] in relations for rule in rules):
        got, remedy = f"about {rules[0].head[0]!r} and the like", "choose the rules of this data set"
        wanted = f"rules for relations of {dataset.name}: {_few(relations)}"
        raise ChoiceError(message(str(path), got=got, wanted=wanted, remedy=remedy))
    return _checked(path, with_rules(dataset, rules))


def _checked(path: Path, dataset: Dataset) -> Dataset:
    """Refuse rules whose bodies use relations that are in no fact and in no head of a rule: they could never prove anything."""
    relations = {fact[0] for fact in (*dataset.train, *dataset.valid, *dataset.test)}
    known = relations | {rule.head[0] for rule in dataset.rules}
    unknown = {atom[0] for rule in dataset.rules for atom in rule.body} - known
    if unknown:
        wanted = f"relations of {dataset.name} or heads of rules: {_few(known)}"
        remedy = "correct them, or leave out their rules"
        raise ChoiceError(message(f"{path}: bodies", got=f"about {_few(unknown)}", wanted=wanted, remedy=remedy))
    return dataset


def _facts(path: Path) -> tuple[Names, ...]:
    return parse_facts(_read(path), str(path))


def _read(path: Path, wanted: str = "a text file in UTF-8") -> str:
    """Return the text of a file, without the byte order mark that some editors write first."""
    try:
        return read_text(path, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        got = "absent" if isinstance(cause, FileNotFoundError) else f"unreadable ({reason(cause)})"
        raise ChoiceError(message(str(path), got=got, wanted=wanted, remedy="check the path")) from None


def _domains(lines: DomainLines, facts: tuple[Names, ...]) -> Mapping[tuple[str, int], tuple[str, ...]]:
    """Return the constants of every argument that has a domain."""
    homes = dict[str, set[str]]()
    for name, members in lines.members.items():
        for constant in members:
            homes.setdefault(constant, set()).add(name)
    taken = dict[tuple[str, int], set[str]]()
    for predicate, *words in facts:
        for argument, word in enumerate(words):
            taken.setdefault((predicate, argument), set()).add(word)
    named = {key: {domain} for key, domain in lines.arguments.items()}
    for key, constants in taken.items():
        if key not in named and constants <= homes.keys():
            named[key] = set[str]().union(*(homes[constant] for constant in constants))
    return {
        key: tuple(sorted({constant for domain in names for constant in lines.members[domain]}))
        for key, names in named.items()
    }
