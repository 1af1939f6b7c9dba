"""The policy over successors obeys its laws, embeds as published, and learns from the log-probs it acted by."""

from typing import Any

import pytest
import torch

from purestep.algorithms.ppo import prepare_samples
from purestep.core import keys
from purestep.core.env import batched
from purestep.core.errors import ChoiceError
from purestep.core.logic.embedding import FORMS, POOLS, Embedding, state_embedding
from purestep.core.logic.env import proving
from purestep.core.logic.policy import proof_policy
from purestep.core.logic.terms import vocabulary
from purestep.core.policy import flat
from purestep.core.tree import leaves
from purestep.properties import check
from purestep.runtime.logic.family import family
from purestep.runtime.logic.proofs import proofs
from purestep.runtime.rollout import reset_rollout, rollout

from ...laws.logic.logic_strategies import NAMES
from ...laws.logic.proof_policy import proof_policy_laws

test_policy = check(proof_policy_laws(), proof_policy(NAMES, size=8, hidden=8, blocks=1))
test_policy_of_rotations = check(
    proof_policy_laws(), flat(proof_policy(NAMES, size=8, hidden=8, form="rotate", pool="sum", temperature=0.5))
)


def halves(vector: torch.Tensor) -> torch.Tensor:
    """The halves of a vector as one complex vector, computed by PyTorch's own complex numbers."""
    return torch.complex(*vector.chunk(2, -1))


def joined(numbers: torch.Tensor) -> torch.Tensor:
    return torch.cat([numbers.real, numbers.imag], -1)


DEFINITIONS: dict[str, Any] = {
    "transe": lambda r, h, t: h + r - t,
    "distmult": lambda r, h, t: h * r * t,
    "complex": lambda r, h, t: joined(halves(r) * halves(h) * halves(t).conj()),
    "rotate": lambda r, h, t: joined(halves(h) * torch.exp(1j * r.chunk(2, -1)[0]) - halves(t)),
}


@pytest.mark.parametrize("form", sorted(DEFINITIONS))
def test_forms_are_their_definitions(form: str) -> None:
    triple = keys.normal(keys.key(4), (3, 5, 8)).unbind(0)
    torch.testing.assert_close(FORMS[form](*triple), DEFINITIONS[form](*triple), rtol=1e-6, atol=1e-6)


def test_every_form_has_a_definition() -> None:
    assert set(FORMS) == set(DEFINITIONS)


@pytest.mark.parametrize("pool", sorted(POOLS))
def test_a_state_is_the_mean_or_sum_of_its_atoms(pool: str) -> None:
    names = vocabulary(["p", "q"], ["a", "b"], variables=2)
    network = state_embedding(names, 4, pool=pool)
    params: Embedding = network.init(keys.key(0))
    atoms = torch.tensor([[1, 1, 3], [2, 2, 2], [0, 0, 0]])
    each = [params.predicates[p] + params.terms[h] - params.terms[t] for p, h, t in atoms[:2].tolist()]
    wanted = torch.stack(each).mean(0) if pool == "mean" else torch.stack(each).sum(0)
    torch.testing.assert_close(network.apply(params, atoms), wanted)
    assert torch.equal(network.apply(params, torch.zeros_like(atoms)), torch.zeros(4))


def test_embeddings_have_the_variance_that_is_said() -> None:
    names = vocabulary(["p"], [f"c{number}" for number in range(500)], variables=0)
    params = state_embedding(names, 50).init(keys.key(1))
    assert float(params.terms.var()) == pytest.approx(1 / 50, rel=0.05)
    assert params.predicates.shape == (names.end + 1, 50)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"form": "trans"}, "transe"),
        ({"pool": "max"}, "mean"),
        ({"size": 3, "form": "rotate"}, "even"),
        ({"size": 0}, "1"),
    ],
)
def test_what_cannot_be_embedded_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ChoiceError, match=said):
        proof_policy(NAMES, **wrong)


@pytest.mark.parametrize("temperature", [0.1, 0.02])
def test_the_first_ratio_of_an_update_is_one(temperature: float) -> None:
    """pi(a) of the update over pi(a) at acting, before anything is learnt: acted in a batch of 6, learnt from 48 rows."""
    made = proofs(family(30), end_proof=True)
    env = batched(proving(made.game, made.world, reset="own"), 6)
    model = flat(proof_policy(made.game.names, size=16, hidden=16, temperature=temperature))
    params = model.init(keys.key(2))
    _, trajectory = rollout(env, model, 8)(params, reset_rollout(env, keys.key(3)), keys.key(4))
    samples = prepare_samples(model, params, trajectory, gamma=0.99, lambda_=0.95)
    distribution, value, _ = model.apply(params, samples.observation, ())
    ratio = torch.exp(distribution.log_prob(samples.action) - samples.behaviour_log_prob)
    assert float((ratio - 1).abs().max()) < 1e-5
    assert float((value - samples.behaviour_value).abs().max()) < 1e-5
    assert float(samples.behaviour_log_prob.min()) < -0.1  # there was something to choose
    assert bool(trajectory.terminated.any())


def test_what_is_padded_gets_no_gradient() -> None:
    """The vectors of padding stand at place 0, and no state holds them."""
    names = vocabulary(["p"], ["a", "b"], variables=1)
    network = state_embedding(names, 4, form="rotate")
    atoms = torch.tensor([[[1, 1, 2], [0, 0, 0]], [[1, 2, 1], [0, 0, 0]]])
    gradient = torch.func.grad(lambda params: network.apply(params, atoms).square().sum())(network.init(keys.key(0)))
    for table in leaves(gradient):
        assert torch.equal(table[0], torch.zeros(4))
        assert bool(table[1].abs().max() > 0)


@pytest.mark.parametrize("form", ["transe", "distmult", "complex", "rotate"])
def test_a_mark_stands_for_itself_whatever_the_padding_row_holds(form: str) -> None:
    names = vocabulary(["p"], ["a"], variables=1)
    network = state_embedding(names, 4, form=form)
    params = network.init(keys.key(0))
    told = network.apply(params, torch.tensor([[names.true, 0, 0]]))
    assert torch.equal(told, params.predicates[names.true])
