"""From a data set to a game: domains and candidates, what is refused, and room for everything that can follow."""

from typing import Any

import pytest
import torch
from attrs import evolve

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.logic.call_patterns import calls
from purestep.core.logic.corrupt import TAIL
from purestep.core.logic.env import begin_proof
from purestep.core.logic.game import advance, look
from purestep.core.logic.rules import Rule
from purestep.core.logic.terms import atom_numbers, atom_text
from purestep.core.record import select
from purestep.core.steps import ended
from purestep.runtime.logic.dataset import Dataset
from purestep.runtime.logic.family import family
from purestep.runtime.logic.proofs import Proofs, candidates, proofs
from purestep.runtime.logic.rank import candidates_of

RULE = Rule(("in", "X", "Z"), (("borders", "X", "Y"), ("in", "Y", "Z")))
SMALL = Dataset(
    "small",
    train=(("borders", "spain", "france"), ("in", "france", "europe"), ("in", "spain", "europe")),
    valid=(("in", "portugal", "europe"),),
    test=(("in", "italy", "europe"), ("in", "peru", "america")),
    rules=(RULE,),
    domains={("in", TAIL): ("africa", "america", "europe")},
)


def words(made: Proofs, atoms: torch.Tensor) -> list[str]:
    return [atom_text(made.game.names, atom) for atom in atoms.tolist()]


def test_queries_are_the_train_facts_that_a_rule_can_prove() -> None:
    made = proofs(SMALL)
    assert words(made, made.world.queries) == ["in(france, europe)", "in(spain, europe)"]
    assert len(made.world.base.facts) - 1 == len(SMALL.train)


def test_candidates_are_the_query_and_what_is_not_known_in_its_domain() -> None:
    made = proofs(SMALL, argument="tail")
    every = candidates_of(made, SMALL.test, 4, keys.key(0))
    assert every.shape == (1, 2, 5, 3)
    first, second = (words(made, row) for row in every[0])
    assert first[0] == "in(italy, europe)"
    assert set(first[1:3]) == {"in(italy, africa)", "in(italy, america)"}
    assert first[3:] == ["", ""]
    assert second[0] == "in(peru, america)"
    assert set(second[1:3]) == {"in(peru, africa)", "in(peru, europe)"}


def test_what_any_split_knows_is_no_candidate() -> None:
    made = proofs(SMALL)
    heads, tails = candidates_of(made, SMALL.test[:1], 9, keys.key(1))
    found = words(made, heads[0])
    assert found[0] == words(made, tails[0])[0] == "in(italy, europe)"
    negatives = {word for word in found[1:] if word}
    known = {f"in({place}, europe)" for place in ("france", "spain", "portugal", "italy")}
    everything = {f"in({name}, europe)" for name in made.game.names.constants}
    assert negatives == everything - known


@pytest.mark.parametrize(("argument", "modes"), [("head", 1), ("tail", 1), ("both", 2)])
def test_candidates_for_each_argument(argument: Any, modes: int) -> None:
    made = proofs(family(30), argument=argument)
    every = candidates_of(made, made.dataset.test, 5, keys.key(2), queries=4)
    assert every.shape == (modes, 4, 6, 3)
    query = atom_numbers(made.game.names, made.dataset.test[:4])
    assert torch.equal(every[:, :, 0], query.expand(modes, 4, 3))
    same = (every[:, :, 1:] == query[:, None]).all(1).all(1)  # of all modes: which part stays
    stays = {"head": [[True, False, True]], "tail": [[True, True, False]]}
    assert same.tolist() == stays.get(argument, stays["head"] + stays["tail"])


def test_candidates_depend_on_the_key_alone_and_each_query_has_its_own() -> None:
    made = proofs(family(30), argument="tail")
    names, within, known = made.game.names, made.world.within, made.world.known
    twice = atom_numbers(names, made.dataset.test[:1] * 2)
    one, again, other = (candidates(names, within, known, twice, "tail", 5, keys.key(k)) for k in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.equal(one[0, 0], one[0, 1])


def test_a_graph_without_rules_is_refused() -> None:
    with pytest.raises(ChoiceError, match=r"small: rules is none.*mine them"):
        proofs(evolve(SMALL, rules=()))


def test_rules_that_prove_no_train_fact_are_refused() -> None:
    other = Rule(("near", "X", "Y"), (("borders", "X", "Y"),))
    with pytest.raises(ChoiceError, match=r"small: train facts that a rule proves is none"):
        proofs(evolve(SMALL, rules=(other,)))


def test_calls_bind_what_stands_before() -> None:
    assert calls((RULE,), ["in"]) == {("in", True, True), ("borders", True, False)}
    backwards = Rule(("in", "X", "Z"), (("in", "Y", "Z"), ("borders", "X", "Y")))
    assert calls((backwards,), ["in"]) == {
        ("in", True, True),
        ("in", False, True),
        ("borders", True, True),
        ("borders", False, True),  # of in(X, Z) with an open X
    }
    loose = Rule(("p", "X", "a"), (("q", "Y", "W"), ("q", "X", "b")))
    assert calls((loose,), ["p"]) == {("p", True, True), ("q", False, False), ("q", True, True)}


@pytest.mark.slow
@pytest.mark.parametrize("rules", [{}, {"end_proof": True, "memory": False}])
def test_there_is_room_for_all_that_follows(rules: dict[str, Any]) -> None:
    """200 random moves in each of 64 slots, positives and negatives: nothing is left out for want of facts or places."""
    made = proofs(family(50), **rules)
    game, world, slots = made.game, made.world, 64
    zero = torch.zeros(slots, dtype=torch.int64)
    counter, most = torch.arange(slots), 0
    state = look(game, world.base, begin_proof(game, world, keys.split(keys.key(0), slots), zero, counter))
    for t in range(200):
        most = max(most, int(state.derived_count.max()))
        assert int(state.too_many.sum()) == 0, f"after {t} moves"
        draw = keys.split(keys.fold_in(keys.key(1), t), slots)
        state = advance(game, state, keys.randint(draw, (), 0, state.derived_count.clamp_min(1)))
        over = ended(state.terminated, state.truncated)
        fresh = begin_proof(game, world, keys.split(keys.fold_in(keys.key(2), t), slots), zero, counter + t)
        state = look(game, world.base, select(over, fresh, state))
    assert most >= 4  # there was something to leave out


def test_too_little_room_is_counted() -> None:
    """The same game with one slot less for facts: what has no room is not forgotten."""
    made = proofs(family(50))
    narrow = evolve(made.game, widths=evolve(made.game.widths, facts=1, successors=2))
    queries = made.world.queries
    zero = torch.zeros(len(queries), dtype=torch.int64)
    state = begin_proof(narrow, made.world, keys.split(keys.key(0), len(queries)), zero, zero)
    lost = 0
    for _ in range(3):
        state = look(narrow, made.world.base, state)
        lost = int(state.too_many.sum())
        state = advance(narrow, state, zero)
    assert lost > 0
