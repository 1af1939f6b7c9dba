"""Imitation of searched proofs: its laws, the share of each proof, and a policy that learns what it is shown."""

import pytest
import torch
from torch import Tensor

from purestep.algorithms.imitation import imitation, imitation_loss
from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.logic.knowledge import knowledge
from purestep.core.logic.policy import proof_policy
from purestep.core.logic.terms import vocabulary
from purestep.core.optim.optimizers import adam
from purestep.properties import check
from purestep.runtime.logic.demonstrate import demonstrations
from purestep.runtime.logic.proof_scores import ProofSearcher
from purestep.runtime.logic.search import SearchLimits, roomy

from ...laws.algorithms.imitation import imitation_laws
from ...laws.logic.demonstrations import proof_demonstration_laws

test_loss = check(imitation_laws(), imitation_loss)
test_demonstrations = check(proof_demonstration_laws(), demonstrations)

NAMES = vocabulary(["p", "q", "r", "s"], ["a", "b"], variables=9)  # a, b are 1, 2; X, Y are 3, 4
FACTS = torch.tensor([[2, 1, 1], [2, 1, 2], [3, 1, 1], [3, 1, 2]])  # q(a, a), q(a, b), r(a, a), r(a, b)


def own(*weights: float, facts: Tensor = FACTS) -> ProofSearcher:
    """Return a prover of p by rules on q, r and s of these weights; there are no facts of s."""
    heads, bodies = torch.tensor([[1, 3, 4]] * 3), torch.tensor([[[2, 3, 4]], [[3, 3, 4]], [[4, 3, 4]]])
    names, base = roomy(NAMES, knowledge(NAMES, facts, heads, bodies), 1)
    return ProofSearcher(names, base, torch.tensor(weights, dtype=torch.float64), SearchLimits(1))


def test_proofs_are_shown_by_their_shares() -> None:
    asked = torch.tensor([[1, 1, 2]]).repeat(256, 1)  # p(a, b): by q(a, b) with .75, by r(a, b) with .25
    shown = demonstrations(own(0.75, 0.25, 0.5), NAMES, asked, "tail", 2048, keys.key(0))
    opened = shown.observation.sub_index[:, 0, 2] > 2  # p(a, X), by which q(a, Y) follows, and s(a, Y)
    first = shown.observation.sub_index[:, 0, 0] == 1
    goal = shown.observation.derived_sub_indices[torch.arange(2048), shown.action][:, 0, 0]
    share = float((goal[opened & first] == 2).to(torch.float64).mean())
    assert 0.7 < share < 0.8
    assert not bool((goal == 4).any())


def test_a_policy_learns_what_it_is_shown() -> None:
    single = own(1.0, 1e-6, 0.5, facts=FACTS[1:2])  # with one proof, as a policy sees no difference between proofs
    shown = demonstrations(single, NAMES, torch.tensor([[1, 1, 2]]), "tail", 64, keys.key(0))
    model = proof_policy(NAMES, size=8, hidden=8, blocks=1)
    begin = model.init(keys.key(1))
    params, losses = imitation(model, adam(0.01), 16)(begin, shown, keys.split(keys.key(2), 100))
    assert float(imitation_loss(model, params, shown)) < 0.2 < float(losses[0])


def test_a_search_without_proofs_is_refused() -> None:
    with pytest.raises(ChoiceError, match=r"proofs of 1 facts is none, wanted .*--imitated-rules"):
        demonstrations(own(0.5, 0.5, 0.5), NAMES, torch.tensor([[1, 2, 1]]), "both", 8, keys.key(0))
