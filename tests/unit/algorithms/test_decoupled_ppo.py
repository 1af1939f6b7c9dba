"""PPO around another policy than the one that played: what it refuses, and that it runs compiled, lagging, for many seeds."""

from functools import partial
from typing import Any, Literal

import pytest
import torch

from purestep.algorithms.algorithm import Algorithm
from purestep.algorithms.decoupled_ppo import FIGURES, decoupled_ppo, lagging
from purestep.algorithms.importance import truncated_weights
from purestep.algorithms.ppo import METRICS, ppo
from purestep.core import keys
from purestep.core.envs import make
from purestep.core.errors import ChoiceError, StructureError
from purestep.core.optim.optimizers import adam
from purestep.core.policy import actor_critic_mlp, flat
from purestep.core.record import take
from purestep.core.tree import leaves
from purestep.runtime.compile import program
from purestep.runtime.population import population
from purestep.runtime.train import Trainer, train, trainer

ENV = make("cartpole")
MODEL = flat(actor_critic_mlp(ENV.observation_space, ENV.action_space, (8,)))
BOUNDED = partial(truncated_weights, high=2.0)


def own(proximal: Literal["recomputed", "interpolated"] = "recomputed", rate: float = 0.01) -> Algorithm:
    return decoupled_ppo(MODEL, adam(rate), proximal=proximal, weights=BOUNDED, epochs=2, minibatches=2)


def trained(algorithm: Algorithm, staleness: int = 0) -> Trainer:
    return trainer(ENV, MODEL, algorithm, envs=2, horizon=8, staleness=staleness)


def test_an_unknown_proximal_policy_is_refused() -> None:
    with pytest.raises(ChoiceError, match="did you mean 'recomputed'"):
        own("recompute")  # type: ignore[arg-type]


def test_interpolation_asks_for_versions() -> None:
    one = trained(own("interpolated"))
    with pytest.raises(StructureError) as error:
        one.iterate(one.init(keys.key(0)))
    assert str(error.value) == (
        "decoupled_ppo: trajectory is without versions, wanted Versioned; "
        'wrap it as Versioned, or take proximal="recomputed"'
    )


def test_a_staleness_below_0_is_refused() -> None:
    with pytest.raises(ChoiceError) as error:
        trained(own(), -1)
    assert str(error.value) == "trainer: staleness is -1, wanted a whole number, 0 or more; change it"


def test_its_figures_are_ppos_and_two_of_the_weights() -> None:
    one = trained(own(), 2)
    assert one.metrics[: len(METRICS) + 2] == (*METRICS, *FIGURES)
    _, metrics = train(one, 6)(one.init(keys.key(3)))
    # The first update learns from its own weights; from the third on they are older, and weights may differ from 1.
    assert metrics["weight"][0].item() == pytest.approx(1.0, abs=1e-6)
    assert metrics["effective_fraction"][0].item() == pytest.approx(1.0, abs=1e-6)
    assert (metrics["effective_fraction"][2:] < 0.9999).all()
    assert (metrics["weight"] <= 2.0).all()


@pytest.mark.parametrize("proximal", ["recomputed", "interpolated"])
def test_without_lag_training_is_ppos(proximal: Literal["recomputed", "interpolated"]) -> None:
    """Six updates, before rounding has had time to grow."""
    one = trained(lagging(own(proximal), 0))
    usual = trained(ppo(MODEL, adam(0.01), epochs=2, minibatches=2))
    state, metrics = train(one, 6)(one.init(keys.key(5)))
    wanted, figures = train(usual, 6)(usual.init(keys.key(5)))
    torch.testing.assert_close(leaves(state), leaves(wanted), rtol=1e-3, atol=1e-5)
    assert all(torch.allclose(metrics[name], figures[name], atol=1e-4) for name in METRICS)


@pytest.mark.slow
def test_many_lagging_seeds_compile_as_one() -> None:
    one = trained(lagging(own("interpolated"), 3), 3)
    many, seeds = population(one), keys.split(keys.key(1), 2)
    run = program(train(many, 5))
    state, metrics = run(many.init(seeds))
    assert metrics["weight"].shape == (5, 2)
    for member in range(2):
        wanted, _ = train(one, 5)(one.init(seeds[member]))
        got: Any = take(state, member)
        torch.testing.assert_close(got.past, wanted.past, rtol=1e-2, atol=1e-4)
