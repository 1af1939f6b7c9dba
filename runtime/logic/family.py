"""A synthetic family graph: people, their relations by blood and marriage, and the rules of these relations.

relation(X, Y) means that X is the relation of Y. The keys alone decide everybody: founding couples, their children,
their children's spouses and children, generation after generation until the number of people is reached. Spouses are of one
generation and share no ancestor; a person without a match marries an outsider, whose parents are unknown.
"""

from collections.abc import Iterator

from attrs import frozen

from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.keys import Key
from ...core.logic.parse import parse_rules
from .dataset import Dataset

LEAST, MOST = 10, 1_000_000  # people
OF_A_FOUNDER = 25  # people for each founding couple: three or four generations of a family
CHILDREN = 4  # largest number of children of a couple
SINGLE = 6  # one child in this many never marries
TEST, VALID = 0.10, 0.05

RULES = """
father(X, Y) :- husband(X, Z), mother(Z, Y).
father(X, Y) :- father(X, Z), brother(Z, Y).
father(X, Y) :- father(X, Z), sister(Z, Y).
mother(X, Y) :- wife(X, Z), father(Z, Y).
mother(X, Y) :- mother(X, Z), brother(Z, Y).
mother(X, Y) :- mother(X, Z), sister(Z, Y).
son(X, Y) :- son(X, Z), husband(Z, Y).
son(X, Y) :- son(X, Z), wife(Z, Y).
son(X, Y) :- brother(X, Z), son(Z, Y).
son(X, Y) :- brother(X, Z), daughter(Z, Y).
daughter(X, Y) :- daughter(X, Z), husband(Z, Y).
daughter(X, Y) :- daughter(X, Z), wife(Z, Y).
daughter(X, Y) :- sister(X, Z), son(Z, Y).
daughter(X, Y) :- sister(X, Z), daughter(Z, Y).
husband(X, Y) :- wife(Y, X).
wife(X, Y) :- husband(Y, X).
brother(X, Y) :- son(X, Z), father(Z, Y).
brother(X, Y) :- son(X, Z), mother(Z, Y).
sister(X, Y) :- daughter(X, Z), father(Z, Y).
sister(X, Y) :- daughter(X, Z), mother(Z, Y).
uncle(X, Y) :- brother(X, Z), father(Z, Y).
uncle(X, Y) :- brother(X, Z), mother(Z, Y).
aunt(X, Y) :- sister(X, Z), father(Z, Y).
aunt(X, Y) :- sister(X, Z), mother(Z, Y).
nephew(X, Y) :- son(X, Z), brother(Z, Y).
nephew(X, Y) :- son(X, Z), sister(Z, Y).
niece(X, Y) :- daughter(X, Z), brother(Z, Y).
niece(X, Y) :- daughter(X, Z), sister(Z, Y).
"""


@frozen
class Person:
    """One person; numbers are indices into the list of all people."""

    male: bool
    parents: tuple[int, ...]  # father and mother, or () where unknown
    ancestors: frozenset[int]  # ancestors without known parents; the person itself if it has none


Couple = tuple[int, int]  # husband and wife


def family(people: int = 200, seed: int = 0) -> Dataset:
    """Return the data set of exactly this many people, p001, p002, ...: all facts of twelve relations, and 28 rules.

    father, mother, son, daughter, husband, wife, brother, sister; and by blood uncle, aunt, nephew, niece. A tenth of the facts
    at random is the test split and a twentieth the valid split. The rules are true for all people, except that those for
    brother and sister also make everybody with a known parent his own.

    Raises: ChoiceError for fewer than 10 people or over a million.

    >>> world = family(50, seed=1)
    >>> len({word for split in (world.train, world.valid, world.test) for fact in split for word in fact[1:]})
    50
    """
    if not LEAST <= people <= MOST:
        wanted, remedy = (
            f"from {LEAST} to {MOST:,}",
            "ask for a larger world" if people < LEAST else "ask for a smaller world",
        )
        raise ChoiceError(message("family: people", got=people, wanted=wanted, remedy=remedy))
    world_key, split_key = keys.split(keys.key(seed))
    everybody, couples = _populate(people, world_key)
    width = max(3, len(str(people)))
    facts = sorted(
        (relation, f"p{first + 1:0{width}}", f"p{second + 1:0{width}}")
        for relation, first, second in _facts(everybody, couples)
    )
    shuffled = [facts[place] for place in keys.permutation(split_key, len(facts)).tolist()]
    test, valid = round(TEST * len(facts)), round(VALID * len(facts))
    return Dataset(
        name=f"family:{people}:{seed}",
        train=tuple(shuffled[test + valid :]),
        valid=tuple(shuffled[test : test + valid]),
        test=tuple(shuffled[:test]),
        rules=parse_rules(RULES, "the rules of a family"),
    )


def _draws(key: Key, people: int) -> Iterator[int]:
    """Yield random words without end, drawn in blocks."""
    while True:
        key, block = keys.split(key)
        yield from keys.bits(block, (8 * people,)).tolist()


def _populate(people: int, key: Key) -> tuple[list[Person], list[Couple]]:
    draws = _draws(key, people)
    everybody, married = list[Person](), list[Couple]()
    couples = [_found(everybody) for _ in range(max(2, people // OF_A_FOUNDER))]
    while len(everybody) < people:
        married += couples
        born = [
            _bear(everybody, couple, next(draws))
            for couple in couples
            for _ in range(1 + next(draws) % CHILDREN)
            if len(everybody) < people
        ]
        couples = _marry(everybody, born, people, draws)
        if not couples and people - len(everybody) > 1:
            couples = [_found(everybody)]
        elif not couples:
            couples, married = married[-1:], married[:-1]
    return everybody, [*married, *couples]


def _found(everybody: list[Person]) -> Couple:
    """Add a couple without known parents."""
    husband = len(everybody)
    everybody += [Person(number == husband, (), frozenset([number])) for number in (husband, husband + 1)]
    return husband, husband + 1


def _bear(everybody: list[Person], parents: Couple, draw: int) -> int:
    father, mother = parents
    ancestors = everybody[father].ancestors | everybody[mother].ancestors
    everybody.append(Person(draw % 2 == 0, parents, ancestors))
    return len(everybody) - 1


def _marry(everybody: list[Person], born: list[int], people: int, draws: Iterator[int]) -> list[Couple]:
    """Return the couples of a generation: with one another where no ancestor is shared, else with an outsider."""
    couples = list[Couple]()
    single = [place for _, place in sorted((next(draws), place) for place in born if next(draws) % SINGLE)]
    while single:
        one = single.pop()
        person = everybody[one]
        strangers = (
            place
            for place in single
            if everybody[place].male != person.male and everybody[place].ancestors.isdisjoint(person.ancestors)
        )
        other = next(strangers, len(everybody))
        if other < len(everybody):
            single.remove(other)
        elif len(everybody) < people:
            everybody.append(Person(not person.male, (), frozenset([other])))
        else:
            continue
        couples.append((one, other) if person.male else (other, one))
    return couples


def _facts(everybody: list[Person], couples: list[Couple]) -> Iterator[tuple[str, int, int]]:
    """Yield every fact of the twelve relations, each once."""
    for husband, wife in couples:
        yield "husband", husband, wife
        yield "wife", wife, husband
    children = dict[tuple[int, ...], list[int]]()
    for place, person in enumerate(everybody):
        if person.parents:
            children.setdefault(person.parents, []).append(place)
    for place, person in enumerate(everybody):
        for parent, relation in zip(person.parents, ("father", "mother"), strict=False):
            yield relation, parent, place
            yield "son" if person.male else "daughter", place, parent
            for sibling in children.get(everybody[parent].parents, []):
                if sibling != parent:
                    yield "uncle" if everybody[sibling].male else "aunt", sibling, place
                    yield "nephew" if person.male else "niece", place, sibling
        for sibling in children.get(person.parents, []):
            if sibling != place:
                yield "brother" if person.male else "sister", place, sibling
