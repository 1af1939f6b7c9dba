"""Mined rules against a counter in plain Python, and their order."""

import itertools
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from purestep.core.errors import ChoiceError
from purestep.core.logic.parse import parse_facts
from purestep.core.logic.rules import Rule
from purestep.core.logic.terms import Names
from purestep.runtime.logic import mine as module
from purestep.runtime.logic.family import family
from purestep.runtime.logic.mine import Mined, mine_rules

DATA = Path(__file__).parents[4] / "shared" / "data"
ALL = 10**9
CONSTANT = st.sampled_from("abcde")
FACTS = st.lists(st.tuples(st.sampled_from("pqr"), CONSTANT, CONSTANT), min_size=1, max_size=25)
LOOPS: list[Names] = [("p", "a", "a"), ("p", "a", "b"), ("q", "b", "b"), ("p", "b", "a")]


def step(relation: str, start: str, end: str, turned: bool) -> Names:
    return (relation, end, start) if turned else (relation, start, end)


def counted(facts: list[Names]) -> dict[Rule, tuple[int, int]]:
    """Support and body of every path rule with support, by trying all values of all variables."""
    known, constants = set(facts), sorted({word for fact in facts for word in fact[1:]})
    relations = sorted({fact[0] for fact in facts})
    turns = (False, True)
    bodies: list[tuple[tuple[str, str], tuple[Names, ...]]] = [
        (("X", "Y"), (step(q, "X", "Y", turned),)) for q in relations for turned in turns
    ]
    bodies += [
        (("X", "Z"), (step(q, "X", "Y", turned), step(r, "Y", "Z", other)))
        for q, r in itertools.product(relations, repeat=2)
        for turned, other in itertools.product(turns, repeat=2)
    ]
    found = {}
    for ends, body in bodies:
        pairs = set()
        for values in itertools.product(constants, repeat=3):
            at = dict(zip("XYZ", values, strict=True))
            if all((p, at[x], at[y]) in known and at[x] != at[y] for p, x, y in body):
                pairs.add((at[ends[0]], at[ends[1]]))
        for head in relations:
            rule = Rule((head, *ends), body)
            support = len([pair for pair in pairs if (head, *pair) in known])
            if support and rule.body != (rule.head,):
                found[rule] = (support, len(pairs))
    return found


def everything(facts: list[Names]) -> tuple[Mined, ...]:
    return mine_rules(facts, min_support=1, min_confidence=0.0, most_per_predicate=ALL)


@given(FACTS)
@example(LOOPS)
@example([("p", "a", "a")])
def test_support_and_confidence_are_those_of_counting(facts: list[Names]) -> None:
    wanted = {rule: (support, support / body) for rule, (support, body) in counted(facts).items()}
    found = everything(facts)
    assert {mined.rule: (mined.support, mined.confidence) for mined in found} == wanted
    assert len(found) == len(wanted)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_kept_is_the_best_of_what_is_good_enough(seed: int) -> None:
    draw = random.Random(seed)
    facts = [(draw.choice("pqr"), draw.choice("abcde"), draw.choice("abcde")) for _ in range(25)]
    known = counted(facts)
    for support, confidence, most, smoothing in itertools.product((1, 3), (0.0, 0.5, 1.0), (1, 7, ALL), (0.0, 5.0)):
        found = mine_rules(
            facts, min_support=support, min_confidence=confidence, most_per_predicate=most, smoothing=smoothing
        )
        wanted = defaultdict[str, list[tuple[float, int, int]]](list)
        for rule, (right, body) in known.items():
            if right >= support and right / body >= confidence:
                wanted[rule.head[0]].append((-right / (body + smoothing), -right, len(rule.body)))
        ranks = [(-m.support / (known[m.rule][1] + smoothing), -m.support, len(m.rule.body)) for m in found]
        assert ranks == [rank for _, those in sorted(wanted.items()) for rank in sorted(those)[:most]]
        assert [m.rule.head[0] for m in found] == sorted(m.rule.head[0] for m in found)


@given(FACTS, st.randoms(use_true_random=False))
def test_order_and_repetition_of_facts_mean_nothing(facts: list[Names], order: random.Random) -> None:
    again = [*facts, *facts[:3]]
    order.shuffle(again)
    assert everything(again) == everything(facts)


def test_portions_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = list(family(50).train)
    whole = everything(facts)
    for portion in (1, 7, 100):
        monkeypatch.setattr(module, "TOGETHER", portion)
        assert everything(facts) == whole


def test_a_rule_that_holds_by_chance_does_not_lead() -> None:
    """q is right 8 times of 10, r once of once."""
    pairs = [(f"x{number}", f"y{number}") for number in range(11)]
    facts = [("q", *pair) for pair in pairs[:10]] + [("p", *pair) for pair in pairs[2:]] + [("r", *pairs[10])]
    smoothed, plain = (mine_rules(facts, min_support=1, smoothing=amount) for amount in (5.0, 0.0))
    assert [mined.rule.body for mined in smoothed if mined.rule.head[0] == "p"] == [
        (("q", "X", "Y"),),
        (("r", "X", "Y"),),
    ]
    assert [mined.rule.body for mined in plain if mined.rule.head[0] == "p"] == [(("r", "X", "Y"),), (("q", "X", "Y"),)]


def test_the_rules_of_a_family_are_found_in_it() -> None:
    world = family(200)
    facts = (*world.train, *world.valid, *world.test)
    found = {mined.rule: mined.confidence for mined in everything(list(facts))}
    for rule in world.rules:
        x, y = rule.head[1:]
        names = {x: "X", "Z": "Y", y: "Z"} if len(rule.body) == 2 else {x: "X", y: "Y"}
        same = Rule(*((rule.head[0], "X", names[y]), tuple((p, names[a], names[b]) for p, a, b in rule.body)))
        assert found[same] == 1.0 or (rule.head[0] in ("brother", "sister") and found[same] > 0.5)


def test_without_facts_there_are_no_rules() -> None:
    assert mine_rules([]) == ()
    assert mine_rules([("p", "a", "b")]) == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_support": 0}, "mine: min_support is 0, wanted 1 or more"),
        ({"min_confidence": 1.5}, "mine: min_confidence is 1.5, wanted a number from 0 to 1"),
        ({"min_confidence": float("nan")}, "mine: min_confidence is nan"),
        ({"most_per_predicate": 0}, "mine: most_per_predicate is 0, wanted 1 or more"),
        ({"smoothing": -1}, "mine: smoothing is -1, wanted 0 or more"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ChoiceError, match=said):
        mine_rules([("p", "a", "b")], **options)


@pytest.mark.slow
def test_a_large_graph_takes_seconds() -> None:
    """86,835 facts with hubs of some hundred neighbours; the symmetric relations of WordNet are found to be such."""
    if not DATA.exists():
        pytest.skip(f"no data sets in {DATA}")
    facts = parse_facts((DATA / "wn18rr" / "train.txt").read_text(), "wn18rr")
    started = time.perf_counter()
    found = mine_rules(facts)
    assert time.perf_counter() - started < 60
    best = {mined.rule.head[0]: mined for mined in reversed(found)}
    for name in ("_derivationally_related_form", "_verb_group", "_similar_to", "_also_see"):
        assert best[name].rule == Rule((name, "X", "Y"), ((name, "Y", "X"),))
    pairs = {fact[1:] for fact in facts if fact[0] == "_verb_group" and fact[1] != fact[2]}
    right = len([pair for pair in pairs if pair[::-1] in pairs])
    assert (best["_verb_group"].support, best["_verb_group"].confidence) == (right, right / len(pairs))
