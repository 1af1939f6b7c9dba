"""The search for all proofs, joint evidence, learned weights, and rankings among all entities."""

from typing import Literal

import pytest
import torch
from attrs import evolve

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.logic.evidence import best_first, noisy_or
from purestep.core.logic.parse import parse_rules
from purestep.core.logic.policy import proof_policy
from purestep.properties import check
from purestep.runtime.logic.confidence import with_confidences
from purestep.runtime.logic.dataset import Dataset, with_rules
from purestep.runtime.logic.family import family
from purestep.runtime.logic.guide import policy_guide
from purestep.runtime.logic.link_ranking import allowed, among_all, among_negatives, ranked_by
from purestep.runtime.logic.mine import mine_rules
from purestep.runtime.logic.proof_scores import Effort, ProofTable, prover, rule_weights
from purestep.runtime.logic.proofs import Proofs, candidates, proofs
from purestep.runtime.logic.rank import ranking_result, scored_by_length
from purestep.runtime.logic.search import SearchLimits, search

from ...laws.logic.proof_search import proof_search_laws, subject

test_search = pytest.mark.slow(check(proof_search_laws(), subject()))


@pytest.fixture(scope="module")
def made() -> Proofs:
    return with_confidences(proofs(family(40), max_depth=5))


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (SearchLimits(expansions=0), "search: expansions is 0"),
        (SearchLimits(rules=0), "search: rules is 0"),
        (SearchLimits(strategy="beam"), "search: width is 0"),
        (SearchLimits(strategy="sample", width=2), "search: key is none"),
    ],
)
def test_bounds_that_find_nothing_are_refused(bounds: SearchLimits, said: str, made: Proofs) -> None:
    own = prover(made, rule_weights(made), SearchLimits())
    with pytest.raises(ChoiceError, match=said):
        search(own.names, own.base, own.weights, made.world.queries[:1], bounds)


def test_a_budget_is_kept_and_what_it_cuts_is_counted(made: Proofs) -> None:
    told: list[Effort] = []
    own = prover(made, rule_weights(made), SearchLimits(rules=3, expansions=40))
    ProofTable(own, "noisy_or", told.append)(made.world.queries[:20], 1)
    found, _ = own.open_proofs(made.world.queries[:20], 1)
    assert int(found.expanded.max()) == 40
    assert told[0].cut == int((found.cut > 0).sum()) > 0
    assert told[0].expanded == int(found.expanded.sum())


def test_a_query_with_two_variables_is_allowed_and_bounded(made: Proofs) -> None:
    own = prover(made, rule_weights(made), SearchLimits(rules=1, expansions=5))
    names = own.names
    asked = torch.tensor([[names.predicates.index("wife") + 1, len(names.constants) + 1, len(names.constants) + 2]])
    found = own.proofs(asked)
    assert int(found.expanded) <= 5
    assert found.answer.shape[0] > 5


@pytest.mark.parametrize("strategy", ["beam", "sample"])
def test_a_policy_guides_beams_and_walks_and_proves_no_more_than_exact_search(
    strategy: Literal["beam", "sample"], made: Proofs
) -> None:
    model = proof_policy(made.game.names, size=8, hidden=8, blocks=1)
    guide = policy_guide(made.game.names, model, model.init(keys.key(0)))
    own = prover(made, rule_weights(made), SearchLimits(rules=2, expansions=10_000))
    every, _ = own.open_proofs(made.world.queries[:10], 1)
    narrow = evolve(own.bounds, strategy=strategy, width=3, order="policy")
    some, _ = evolve(own, bounds=narrow, guide=guide, key=keys.key(1)).open_proofs(made.world.queries[:10], 1)

    def pairs(found: object) -> set[tuple[int, ...]]:
        return set(map(tuple, torch.cat([found.owner[:, None], found.answer, found.rules()[:, :2]], -1).tolist()))  # type: ignore[attr-defined]

    assert pairs(some) < pairs(every)
    assert some.owner.shape[0] > 0
    assert bool((some.log_prob < 0).any())


def test_evidence_of_many_proofs_near_certainty_stays_apart() -> None:
    weights = torch.log(torch.tensor([0.99] * 20 + [0.99] * 21, dtype=torch.float64))
    answer = torch.tensor([0] * 20 + [1] * 21)
    score = noisy_or(weights, answer, 2)
    assert score[1] > score[0]
    best = best_first(weights, answer, 2, torch.zeros(2, dtype=torch.int64))
    assert best[1] > best[0] > 0


def test_rankings_among_all_are_those_among_as_many_negatives_as_there_are(made: Proofs) -> None:
    table = ProofTable(prover(made, rule_weights(made), SearchLimits(rules=1, expansions=10_000)), "max")
    facts, most = made.dataset.test[:12], len(made.game.names.constants)
    every, drawn = ranked_by(
        made, table, among_all(made, facts), among_negatives(made, facts, "both", most, keys.key(0)), chunk=5
    )
    assert torch.equal(every.rank, drawn.rank)
    (again,) = ranked_by(made, table, among_all(made, facts))
    assert torch.equal(every.rank, again.rank)  # in one chunk
    assert every.protocol == "all entities, filtered"
    assert drawn.protocol == f"{most} filtered negatives"
    assert set(every.by_argument()) == {"head", "tail"}
    assert sum(many for many, _ in every.by_relation(made.game.names).values()) == 24


def test_allowed_is_what_negatives_are_drawn_of(made: Proofs) -> None:
    queries, names = made.world.queries[:6], made.game.names
    for side, argument in ((0, "head"), (1, "tail")):
        drawn = candidates(names, made.world.within, made.world.known, queries, argument, 60, keys.key(0))[0, :, 1:]
        mask = allowed(made, queries, side)
        for row, own in enumerate(drawn):
            constants = own[own[:, 0] > 0][:, 1 + side]
            assert sorted(constants.tolist()) == mask[row].nonzero()[:, 0].tolist()


def test_measured_confidences_are_those_of_the_miner() -> None:
    data = family(40)
    mined = with_rules(data, [each.rule for each in mine_rules(data.train)])
    told = with_confidences(proofs(mined))
    given = {rule: rule.confidence for rule in mined.rules}
    for rule in told.dataset.rules:
        assert rule.confidence == pytest.approx(given[rule])


def test_pca_confidence_leaves_out_subjects_without_a_fact() -> None:
    train = (("q", "a", "b"), ("q", "c", "d"), ("q", "a", "e"), ("p", "a", "b"))
    rules = parse_rules("p(X, Y) :- q(X, Y).", "x")
    made = proofs(Dataset("small", train, (), train[:1], rules))
    standard, pca = (with_confidences(made, kind, smoothing=0.0).dataset.rules[0] for kind in ("standard", "pca"))
    assert standard.confidence == pytest.approx(1 / 3)
    assert pca.confidence == pytest.approx(1 / 2)


def test_rules_without_confidence_are_refused_where_it_is_used() -> None:
    made = proofs(family(20))
    with pytest.raises(ChoiceError, match="confidence is absent for 28 of 28 rules"):
        rule_weights(made)


def test_the_shortest_proofs_line_has_its_protocol() -> None:
    told = ranking_result(scored_by_length(torch.tensor([[[1, 0]]]), torch.ones(1, 1, 2, dtype=torch.bool)))
    assert told.line("1 filtered negatives").startswith("1 rankings among 1 filtered negatives: MRR 1.000")


def test_paths_of_three_steps_visit_no_constant_twice_and_stop_with_the_time() -> None:
    facts = [("q", "a", "b"), ("q", "b", "c"), ("q", "c", "d"), ("p", "a", "d"), ("q", "x", "y"), ("q", "y", "x")]
    facts += [("q", "e", "f"), ("q", "f", "g"), ("q", "g", "h"), ("p", "e", "h"), ("p", "x", "y")]
    found = {str(each.rule): (each.support, each.confidence) for each in mine_rules(facts, length=3)}
    assert found["p(X, W) :- q(X, Y), q(Y, Z), q(Z, W)"] == (2, 1.0)
    assert all(
        ":- q(X, Y), q(Y, Z), q(Z" not in str(each.rule) for each in mine_rules(facts, length=3, going=lambda: False)
    )
    with pytest.raises(ChoiceError, match="mine: length is 4"):
        mine_rules(facts, length=4)
