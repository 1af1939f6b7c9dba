"""The family world, looked at from its facts alone: a consistent world, all its relations, true rules."""

import itertools
from collections import Counter

import pytest

from purestep.core.errors import ChoiceError
from purestep.core.logic.rules import Rule, encode_rules
from purestep.runtime.logic.dataset import Dataset, check_dataset, vocabulary_of
from purestep.runtime.logic.family import family

Pairs = set[tuple[str, str]]
SIZES = pytest.mark.parametrize(("people", "seed"), [(10, 0), (11, 3), (50, 0), (50, 1), (200, 2), (1000, 0)])
RELATIONS = [
    *("aunt", "brother", "daughter", "father", "husband", "mother"),
    *("nephew", "niece", "sister", "son", "uncle", "wife"),
]


def relations(world: Dataset) -> dict[str, Pairs]:
    """The whole world: the pairs of each relation."""
    facts = (*world.train, *world.valid, *world.test)
    found: dict[str, Pairs] = {name: set() for name in RELATIONS}
    for name, first, second in facts:
        found[name].add((first, second))
    assert sum(map(len, found.values())) == len(facts)
    return found


def turned(pairs: Pairs) -> Pairs:
    return {(second, first) for first, second in pairs}


def path(first: Pairs, second: Pairs) -> Pairs:
    """(x, z) for which some y is on the way."""
    onward = dict[str, list[str]]()
    for y, z in second:
        onward.setdefault(y, []).append(z)
    return {(x, z) for x, y in first for z in onward.get(y, [])}


def follows(found: dict[str, Pairs], rule: Rule) -> Pairs:
    """What a path rule says of its head, its variables being X, Y or X, Z, Y in the order of the path."""
    steps, at = list[Pairs](), "X"
    for name, one, other in rule.body:
        steps.append(found[name] if one == at else turned(found[name]))
        at = other if one == at else one
    assert at == rule.head[2]
    assert rule.head[1] == "X"
    return steps[0] if len(steps) == 1 else path(*steps)


@SIZES
def test_a_world_has_so_many_people_who_are_men_or_women(people: int, seed: int) -> None:
    found = relations(family(people, seed))
    width = max(3, len(str(people)))
    assert {word for pairs in found.values() for pair in pairs for word in pair} == {
        f"p{number:0{width}}" for number in range(1, people + 1)
    }
    men = {first for name in ("father", "son", "husband", "brother", "uncle", "nephew") for first, _ in found[name]}
    women = {first for name in ("mother", "daughter", "wife", "sister", "aunt", "niece") for first, _ in found[name]}
    assert not men & women
    assert men
    assert women


@SIZES
def test_everybody_has_two_married_parents_or_none_and_nobody_is_his_own_ancestor(people: int, seed: int) -> None:
    found = relations(family(people, seed))
    father = {child: parent for parent, child in found["father"]}
    mother = {child: parent for parent, child in found["mother"]}
    assert (len(father), len(mother)) == (len(found["father"]), len(found["mother"]))
    assert father.keys() == mother.keys()
    assert all((father[child], mother[child]) in found["husband"] for child in father)
    assert found["wife"] == turned(found["husband"])
    assert max(Counter(word for pair in found["husband"] for word in pair).values()) == 1

    def ancestors(person: str) -> set[str]:
        """All of them; a world with a circle would never end."""
        known, new = set[str](), {person}
        while new:
            new = {parent for one in new if one in father for parent in (father[one], mother[one])}
            assert person not in new
            known |= new
        return known

    kin = {word: ancestors(word) for pair in found["husband"] for word in pair}
    assert all(not (kin[one] | {one}) & (kin[other] | {other}) for one, other in found["husband"])


@SIZES
def test_every_relation_is_what_its_name_says_and_complete(people: int, seed: int) -> None:
    found = relations(family(people, seed))
    parent = found["father"] | found["mother"]
    sons = {first for first, _ in found["son"]}
    assert found["son"] | found["daughter"] == turned(parent)
    sibling = {(one, other) for one, other in path(turned(parent), parent) if one != other}
    assert found["brother"] == {pair for pair in sibling if pair[0] in sons}
    assert found["sister"] == sibling - found["brother"]
    assert found["uncle"] == path(found["brother"], parent)
    assert found["aunt"] == path(found["sister"], parent)
    niblings = turned(found["uncle"] | found["aunt"])
    assert found["nephew"] == {pair for pair in niblings if pair[0] in sons}
    assert found["niece"] == niblings - found["nephew"]


@SIZES
def test_rules_are_true_in_the_whole_world(people: int, seed: int) -> None:
    world = family(people, seed)
    found = relations(world)
    for rule in world.rules:
        wrong = follows(found, rule) - found[rule.head[0]]
        assert all(first == second for first, second in wrong), rule
        assert not wrong or rule.head[0] in ("brother", "sister"), rule


def test_rules_leave_little_unexplained() -> None:
    """Every relation has some, every rule is of use, and each fact follows from others by one of them."""
    world = family(200, 5)
    found = relations(world)
    assert Counter(rule.head[0] for rule in world.rules).keys() == set(RELATIONS)
    assert len(set(world.rules)) == 28
    for name in RELATIONS:
        reached = [follows(found, rule) & found[name] for rule in world.rules if rule.head[0] == name]
        assert all(reached)
        assert set[tuple[str, str]]().union(*reached) == found[name]
    heads, _ = encode_rules(vocabulary_of(world), world.rules)
    assert len(heads) == 28


@SIZES
def test_splits_are_of_the_sizes_they_should_have(people: int, seed: int) -> None:
    world = check_dataset(family(people, seed))
    total = len(world.train) + len(world.valid) + len(world.test)
    assert (len(world.test), len(world.valid)) == (round(total * 0.10), round(total * 0.05))
    assert world.name == f"family:{people}:{seed}"


def test_test_facts_are_drawn_from_all_relations_and_generations() -> None:
    world = family(1000)
    share = {
        name: len([fact for fact in world.test if fact[0] == name]) / len(relations(world)[name]) for name in RELATIONS
    }
    assert all(0.05 < part < 0.15 for part in share.values())


@pytest.mark.parametrize(("people", "generations"), [(50, 3), (200, 4), (1000, 4)])
def test_a_world_has_several_generations_and_relatives_of_every_kind(people: int, generations: int) -> None:
    for seed in range(3):
        found = relations(family(people, seed))
        assert all(found.values())
        parent = found["father"] | found["mother"]
        line, depth = parent, 1
        while line := path(line, parent):
            depth += 1
        assert depth + 1 >= generations


def test_families_intermarry() -> None:
    found = relations(family(200))
    children = {child for _, child in found["father"]}
    both = [pair for pair in found["husband"] if children.issuperset(pair)]
    assert 0 < len(both) < len(found["husband"])


def test_the_seed_alone_decides() -> None:
    assert family(50, 4) == family(50, 4)
    worlds = [frozenset((*world.train, *world.valid, *world.test)) for world in (family(50, seed) for seed in range(4))]
    assert all(one != other for one, other in itertools.combinations(worlds, 2))


def test_a_world_needs_people() -> None:
    with pytest.raises(ChoiceError, match="family: people is 9, wanted from 10 to 1,000,000"):
        family(9)
    with pytest.raises(ChoiceError, match="ask for a smaller world"):
        family(1_000_001)
