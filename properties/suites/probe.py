"""Learners on probe environments (U5): each failure points to one part of the learner. For the night profile.

The subject makes an Algorithm from an ActorCritic, as in `update_laws`; a learning rate of 0.01 suits the budget.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from torch import Tensor

from ...algorithms.algorithm import Algorithm, TrainState
from ...core import keys
from ...core.env import Env
from ...core.envs import probes
from ...core.policy import actor_critic_mlp
from ...core.record import replace
from ...core.steps import Trajectory
from ...runtime.train import trainer
from ..framework.compare import Tolerance, require, same
from ..framework.law import Law, Mutant, Seen, Suite
from .update import Factory, Result, around

# --- mutants ---
# Learners that no longer learn, each the subject with one edit.


@around
def mixes_worlds(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Shift the observations by one environment in the batch."""
    return algorithm.update(state, replace(trajectory, observation=trajectory.observation.roll(1, 1)), key)


@around
def ends_everywhere(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Mark every step as terminated, so that nothing is bootstrapped."""
    return algorithm.update(state, replace(trajectory, terminated=torch.ones_like(trajectory.terminated)), key)


@around
def mixes_actions(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Swap the two actions."""
    return algorithm.update(state, replace(trajectory, action=1 - trajectory.action), key)


@around
def centres_rewards(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Centre the rewards over the batch: a constant reward becomes 0."""
    centred = trajectory.reward - trajectory.reward.mean()
    return algorithm.update(state, replace(trajectory, reward=centred), key)


@around
def mixes_rewards(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Shift the rewards by one environment in the batch."""
    return algorithm.update(state, replace(trajectory, reward=trajectory.reward.roll(1, 1)), key)


# --- laws ---


SOURCE = "Andy Jones 2021, Debugging reinforcement learning systems"
ENVS, HORIZON, ITERATIONS = 16, 8, 120
NEAR = Tolerance("learnt", 0.0, 0.2)
SURE = 0.8


@frozen
class Probe:
    """An environment, the value of each observation, and the index of the best action for each observation (none if empty)."""

    name: str
    env: Callable[[], Env[Any, Any]]
    worth: Mapping[float, float]
    best: Mapping[float, int]
    claim: str
    mutant: Mutant


def probe_laws(*, gamma: float) -> Suite:
    """One law for each probe environment; `gamma` is the learner's discount."""
    return Suite("probe_laws", tuple(_law(probe) for probe in (*_of_values(gamma), *_of_actions())))


def _of_values(gamma: float) -> tuple[Probe, ...]:
    return (
        Probe(
            "learns_a_constant",
            probes.probe_constant,
            {0.0: 1.0},
            {},
            "A reward of 1 at every step: V = 1. Otherwise the value loss or the optimiser is wrong.",
            Mutant("centres the rewards over the batch", centres_rewards),
        ),
        Probe(
            "learns_from_observations",
            probes.probe_observation,
            {1.0: 1.0, -1.0: -1.0},
            {},
            "The observation is the reward: V(o) = o. Otherwise the batch is mixed up.",
            Mutant("reads the observations of the next world in the batch", mixes_worlds),
        ),
        Probe(
            "learns_to_discount",
            probes.probe_discount,
            {0.0: gamma, 1.0: 1.0},
            {},
            "A reward one step later: V(0) = gamma. Otherwise bootstrapping is wrong.",
            Mutant("takes every step for a termination", ends_everywhere),
        ),
    )


def _of_actions() -> tuple[Probe, ...]:
    return (
        Probe(
            "learns_to_act",
            probes.probe_action,
            {0.0: 1.0},
            {0.0: 1},
            "One action is right: the policy finds it. Otherwise the advantage or its sign is wrong.",
            Mutant("mixes the two actions up", mixes_actions),
        ),
        Probe(
            "learns_to_act_on_what_it_sees",
            probes.probe_both,
            {1.0: 1.0, -1.0: 1.0},
            {1.0: 1, -1.0: 0},
            "The right action depends on the observation. Otherwise experience is shuffled.",
            Mutant("pays each world the reward of the next", mixes_rewards),
        ),
    )


def _law(probe: Probe) -> Law:
    def check(factory: Factory, seed: int, seen: Seen) -> None:
        env = probe.env()
        model = actor_critic_mlp(env.observation_space, env.action_space, hidden=(16,))
        learner = trainer(env, model, factory(model), envs=ENVS, horizon=HORIZON)
        state = learner.init(keys.key(seed))
        for _ in range(ITERATIONS):
            state, _ = learner.iterate(state)
        for signal, worth in probe.worth.items():
            distribution, value, _ = model.apply(state.learner.params, torch.tensor([signal]), ())
            same(f"V({signal})", value, torch.tensor(worth), NEAR)
            if signal in probe.best:
                share = float(distribution.log_prob(torch.tensor(probe.best[signal])).exp())
                require(share > SURE, f"the right action at {signal} has the probability {share:.2f}")

    return Law(
        name=probe.name,
        claim=probe.claim,
        source=SOURCE,
        inputs=lambda subject: st.just(0),
        check=check,
        mutant=probe.mutant,
        least="night",
        most=1,
    )
