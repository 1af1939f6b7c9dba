"""Our learners obey their laws; at night they solve the probe worlds."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from purestep.algorithms.a2c import a2c
from purestep.algorithms.algorithm import Algorithm
from purestep.algorithms.decoupled_ppo import decoupled_ppo, lagging
from purestep.algorithms.ppo import minibatch_rows, ppo
from purestep.algorithms.reinforce import reinforce
from purestep.core.optim.optimizers import adam, sgd
from purestep.core.policy import ActorCritic, actor_critic_mlp
from purestep.core.record import replace
from purestep.core.spaces import Box, Discrete
from purestep.core.steps import Trajectory
from purestep.properties import check, named_profile, order_laws, probe_laws, run, same, update_laws, verify
from purestep.properties.framework.crash import CrashingFiles
from purestep.properties.framework.families import prober as ppo_of_probes
from purestep.properties.framework.report import PASSED
from purestep.properties.suites.probe import (
    centres_rewards,
    ends_everywhere,
    mixes_actions,
    mixes_rewards,
    mixes_worlds,
)
from purestep.properties.suites.update import Factory
from purestep.runtime.effects.checkpoint import single
from purestep.runtime.rollout import rollout

from .algorithms.decoupled_update import decoupled_update_laws
from .algorithms.families import NUMBERS
from .algorithms.numbers import numbers_laws
from .runtime.action_bounds import action_bounds_laws
from .runtime.stale_actor import lagging_laws, own_lagging


def on_disk(tree: Any) -> Any:
    """A tree after a real checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        saved = single.save(Path(folder), 1, tree, files=CrashingFiles(-1).files)
        return single.read_checkpoint(saved, tree).tree


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
test_action_bounds = check(action_bounds_laws(), rollout)
test_order = check(order_laws(), minibatch_rows)


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


MIXED = {
    mixes_worlds: ("observation", [[2.0, 1.0]]),
    ends_everywhere: ("terminated", [[True, True]]),
    mixes_actions: ("action", [[1, 0]]),
    centres_rewards: ("reward", [[-1.0, 1.0]]),
    mixes_rewards: ("reward", [[3.0, 1.0]]),
}


@pytest.mark.parametrize("mutant", MIXED)
def test_a_mutant_of_the_probes_changes_one_column_of_what_is_learned_from(mutant: Any) -> None:
    played = Trajectory(
        observation=torch.tensor([[1.0, 2.0]]),
        next_observation=torch.zeros(1, 2),
        action=torch.tensor([[0, 1]]),
        reward=torch.tensor([[1.0, 3.0]]),
        terminated=torch.tensor([[False, True]]),
        truncated=torch.zeros(1, 2).bool(),
        behaviour_log_prob=torch.zeros(1, 2),
    )

    def update(state: Any, trajectory: Trajectory, key: Any) -> Any:
        return trajectory, {}

    kept = evolve(learns_by_a2c(actor_critic_mlp(Box(-1.0, 1.0, (1,)), Discrete(2))), update=update)
    learned, _ = mutant(lambda model: kept)(None).update((), played, torch.zeros(2))
    name, wanted = MIXED[mutant]
    assert getattr(learned, name).tolist() == wanted
    same("the other columns", replace(learned, **{name: getattr(played, name)}), played)


def test_ppo_learns_to_act_on_what_it_sees() -> None:
    law = probe_laws(gamma=0.5)["learns_to_act_on_what_it_sees"]
    result = run(law, ppo_of_probes, profile=evolve(named_profile("night"), examples=1, fixed=True), shrink=False)
    assert result.outcome == PASSED, result.text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["decoupled_ppo", "a2c", "reinforce"])
def test_probes(name: str) -> None:
    """PPO learns them where the mutants of these laws are killed."""
    report = verify(probe_laws(gamma=0.5), prober(name), profile=named_profile("night"))
    assert report, str(report)
