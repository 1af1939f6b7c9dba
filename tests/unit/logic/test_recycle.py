"""Proofs in few slots obey their laws, and one program serves any number of queries."""

from typing import Any

import pytest
import torch

from purestep.core import keys
from purestep.core.logic.borders import borders
from purestep.core.logic.policy import proof_policy
from purestep.core.logic.terms import atom_numbers
from purestep.core.tree import leaves
from purestep.properties import check
from purestep.properties.framework.compare import EXACT, bits_of, same
from purestep.runtime.compile import program
from purestep.runtime.logic.family import family
from purestep.runtime.logic.proofs import proofs
from purestep.runtime.logic.recycle import IDLE, empty_proof_slots, play, proven_all

from ...laws.logic.recycle import Recycling, recycle_laws
from ...laws.logic.table_policy import table_policy

test_recycling = check(recycle_laws(), Recycling(play, proven_all))


@pytest.mark.slow
def test_one_program_serves_any_number_of_queries() -> None:
    game, world = borders(max_depth=4)
    atoms = [("in", country, region) for country in ("spain", "portugal", "peru") for region in ("europe", "america")]
    every = atom_numbers(game.names, atoms * 3)
    model = table_policy(game.names)
    params = model.init(keys.key(0))
    eager = play(game, model, 3)
    compiled = program(eager)
    for count in (0, 1, 7, 18):
        told, wanted = (
            proven_all(run, params, world.base, empty_proof_slots(game, 4), every[:count], feed=5)
            for run in (compiled, eager)
        )
        same(f"{count} queries", told, wanted, EXACT)
        assert told.number.tolist() == list(range(count))
        if count:
            compiled.settle()
    assert len(compiled.seconds) == 1
    assert told.proven.tolist() == [True, False, True, False, False, False] * 3


def test_a_network_scores_the_same_in_any_number_of_slots() -> None:
    """Up to rounding; and nothing that it was trained with is written to."""
    made = proofs(family(20), max_depth=4)
    model = proof_policy(made.game.names, size=8, hidden=8)
    params = model.init(keys.key(1))
    before: list[tuple[int, Any]] = [(leaf._version, bits_of(leaf.clone())) for leaf in leaves(params)]
    queries = torch.cat([made.world.queries[:9], atom_numbers(made.game.names, made.dataset.test[:3])])
    scores = []
    for slots, steps in ((1, 8), (4, 3), (16, 5)):
        run = play(made.game, model, steps)
        scores.append(
            proven_all(run, params, made.world.base, empty_proof_slots(made.game, slots), queries, feed=12).score
        )
    torch.testing.assert_close(scores[1], scores[0])
    torch.testing.assert_close(scores[2], scores[0])
    assert all(leaf._version == version for leaf, (version, _) in zip(leaves(params), before, strict=True))
    assert all(torch.equal(bits_of(leaf), old) for leaf, (_, old) in zip(leaves(params), before, strict=True))


def test_padding_at_the_end_and_nothing_else() -> None:
    made = proofs(family(10), max_depth=3)
    model = table_policy(made.game.names)
    run = play(made.game, model, 2)
    nothing = torch.zeros(4, 3, dtype=torch.int64)
    told = proven_all(run, model.init(keys.key(0)), made.world.base, empty_proof_slots(made.game, 3), nothing, feed=2)
    assert told.number.tolist() == [IDLE] * 4
    assert told.score.tolist() == [0.0] * 4
