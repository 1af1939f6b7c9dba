"""Our learners obey their laws; at night they solve the probe worlds."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from purestep.algorithms.a2c import a2c
from purestep.algorithms.algorithm import Algorithm
from purestep.algorithms.decoupled_ppo import decoupled_ppo, lagging
from purestep.algorithms.ppo import order, ppo
from purestep.algorithms.reinforce import reinforce
from purestep.core.optim.optimizers import adam, sgd
from purestep.core.policy import ActorCritic
from purestep.properties import check, named_profile, order_laws, probe_laws, update_laws, verify
from purestep.properties.framework.crash import CrashingFiles
from purestep.properties.suites.update import Factory
from purestep.runtime.effects.checkpoint import single

from .algorithms.decoupled_update import decoupled_update_laws
from .algorithms.families import NUMBERS
from .algorithms.numbers import numbers_laws
from .runtime.stale_actor import lagging_laws, own_lagging


def on_disk(tree: Any) -> Any:
    """A tree after a real checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        saved = single.save(Path(folder), 1, tree, files=CrashingFiles(-1).files)
        return single.load(saved, tree).tree


def learns_by_ppo(model: ActorCritic) -> Algorithm:
    """PPO whose every step sees the whole batch."""
    return ppo(model, sgd(0.05), entropy_coefficient=0.0, minibatches=1, epochs=2, advantages="none")


def learns_by_minibatches(model: ActorCritic) -> Algorithm:
    """PPO as it is used."""
    return ppo(model, adam(0.01), entropy_coefficient=0.0, minibatches=2, epochs=2)


def learns_by_a2c(model: ActorCritic) -> Algorithm:
    """A2C with momentum in its state."""
    return a2c(model, adam(0.01), entropy_coefficient=0.0)


def learns_by_reinforce(model: ActorCritic) -> Algorithm:
    """REINFORCE with a value for a baseline."""
    return reinforce(model, sgd(0.05))


def learns_decoupled(model: ActorCritic) -> Algorithm:
    """PPO near recomputed log-probs; what played need not be the policy."""
    return decoupled_ppo(model, sgd(0.05), entropy_coefficient=0.0, minibatches=1, epochs=2, advantages="none")


def learns_interpolated(model: ActorCritic) -> Algorithm:
    """PPO near interpolated log-probs, as after three updates."""
    return lagging(
        decoupled_ppo(model, adam(0.01), proximal="interpolated", entropy_coefficient=0.0, minibatches=2, epochs=2), 3
    )


NOISY = {"ascent": "minibatches are samples: a step may go down"}
COMPILED = {"compiled_is_eager": "PPO stands for all, in the slow set: compiling is the costly part"}

test_ppo = check(update_laws(), learns_by_ppo, skip=COMPILED)
test_ppo_in_full = pytest.mark.slow(check(update_laws(), learns_by_ppo))
test_ppo_minibatches = pytest.mark.slow(check(update_laws(), learns_by_minibatches, skip=NOISY | COMPILED))
test_a2c = check(update_laws(), learns_by_a2c, skip=COMPILED)
test_reinforce = pytest.mark.slow(check(update_laws(), learns_by_reinforce, skip=COMPILED))
test_decoupled_ppo = check(decoupled_update_laws(), decoupled_ppo)
test_decoupled_learner = pytest.mark.slow(check(update_laws(), learns_decoupled, skip=COMPILED))
test_interpolated_learner = pytest.mark.slow(check(update_laws(), learns_interpolated, skip=NOISY | COMPILED))
test_numbers = check(numbers_laws(*NUMBERS), a2c)
test_numbers_of_ppo = check(numbers_laws(*NUMBERS, "clip", "value_clip"), partial(ppo, epochs=2, minibatches=1))
test_lagging = check(lagging_laws(), own_lagging)
test_order = check(order_laws(), order)


def test_a_checkpoint_on_disk_loses_nothing() -> None:
    suite = update_laws(round_trip=on_disk)
    report = verify(suite - {law.name for law in suite if law.name != "resumed_is_unbroken"}, learns_by_a2c)
    assert report, str(report)


def prober(name: str) -> Factory:
    """Learners beside PPO, set up for a budget of some thousand steps."""
    return {
        "decoupled_ppo": lambda model: decoupled_ppo(model, adam(0.02), gamma=0.5, epochs=2, minibatches=2),
        "a2c": lambda model: a2c(model, adam(0.02), gamma=0.5),
        "reinforce": lambda model: reinforce(model, adam(0.02), gamma=0.5),
    }[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["decoupled_ppo", "a2c", "reinforce"])
def test_probes(name: str) -> None:
    """PPO learns them where the mutants of these laws are killed."""
    report = verify(probe_laws(gamma=0.5), prober(name), profile=named_profile("night"))
    assert report, str(report)
