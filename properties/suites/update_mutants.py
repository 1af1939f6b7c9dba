"""Learners as people get them wrong: each takes a factory (ActorCritic -> Algorithm) and gives a wrong one."""

import logging
from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from ...algorithms.algorithm import Algorithm, TrainState
from ...core.policy import ActorCritic
from ...core.record import replace
from ...core.steps import Trajectory
from ...core.tree import leaves, tree_map
from ..framework.law import Mutant

Factory = Callable[[ActorCritic], Algorithm]
Result = tuple[TrainState, Any]


def around(change: Callable[[Algorithm, TrainState, Trajectory, Tensor], Result]) -> Callable[[Factory], Factory]:
    def mutant(factory: Factory) -> Factory:
        def made(model: ActorCritic) -> Algorithm:
            algorithm = factory(model)
            return attrs.evolve(algorithm, update=lambda *arguments: change(algorithm, *arguments))

        return made

    return mutant


def _scaled(state: TrainState, before: TrainState, factor: float) -> TrainState:
    params = tree_map(lambda new, old: old + factor * (new - old), state.params, before.params)
    return replace(state, params=params)


def counts_updates(factory: Factory) -> Factory:
    """Halves its step with every call."""

    def made(model: ActorCritic) -> Algorithm:
        algorithm, calls = factory(model), [0]

        def update(state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
            after, metrics = algorithm.update(state, trajectory, key)
            calls[0] += 1
            return _scaled(after, state, 0.5 ** calls[0]), metrics

        return attrs.evolve(algorithm, update=update)

    return made


def momentum_beside(factory: Factory) -> Factory:
    """Remembers the last step outside the state: a saved run forgets it."""

    def made(model: ActorCritic) -> Algorithm:
        algorithm, last = factory(model), [None]

        def update(state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
            after, metrics = algorithm.update(state, trajectory, key)
            step = tree_map(lambda new, old: new - old, after.params, state.params)
            if last[0] is not None:
                after = replace(after, params=tree_map(lambda p, s: p + 0.9 * s, after.params, last[0]))
            last[0] = step
            return after, metrics

        return attrs.evolve(algorithm, update=update)

    return made


@around
def updates_in_place(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Writes the new parameters over the old ones."""
    after, metrics = algorithm.update(state, trajectory, key)
    for old, new in zip(leaves(state.params), leaves(after.params), strict=True):
        old.copy_(new)
    return after, metrics


@around
def float_counter(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Divides its counter once too often."""
    after, metrics = algorithm.update(state, trajectory, key)
    return replace(after, step=after.step / 1), metrics


@around
def global_shuffle(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Shuffles with torch's generator."""
    return algorithm.update(state, trajectory, key + torch.randperm(4)[0])


@around
def logs(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Tells the log what it does."""
    logging.getLogger(__name__).debug("an update")
    return algorithm.update(state, trajectory, key)


@around
def decays(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Shrinks the parameters, whatever the learning rate."""
    after, metrics = algorithm.update(state, trajectory, key)
    return replace(after, params=tree_map(lambda leaf: leaf * 0.99, after.params)), metrics


@around
def turns_rewards(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Takes a cost for a reward."""
    return algorithm.update(state, replace(trajectory, reward=-trajectory.reward), key)


def bonus(factory: Factory) -> Factory:
    """Moves a little towards larger entropy."""

    def made(model: ActorCritic) -> Algorithm:
        algorithm = factory(model)

        def update(state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
            def entropy(params: Any) -> Tensor:
                distribution, _, _ = model.apply(params, trajectory.observation, ())
                return distribution.entropy().mean()

            after, metrics = algorithm.update(state, trajectory, key)
            gradient = torch.func.grad(entropy)(after.params)
            return replace(after, params=tree_map(lambda p, g: p + 0.01 * g, after.params, gradient)), metrics

        return attrs.evolve(algorithm, update=update)

    return made


@around
def on_the_cpu(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Makes its tensors where tensors are made by default."""
    after, metrics = algorithm.update(state, trajectory, key)
    return replace(after, step=torch.cat([after.step.reshape(1), torch.zeros(1, dtype=torch.int64)])[0]), metrics


@around
def views(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Reports a window on the data."""
    after, metrics = algorithm.update(state, trajectory, key)
    return after, {**metrics, "first_reward": trajectory.reward[0, 0]}


@around
def stops_early(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Lets Python decide whether the policy has moved too far."""
    after, metrics = algorithm.update(state, trajectory, key)
    return (after if metrics["approximate_kl"] < 1.0 else state), metrics


OF_STEPS = {
    "same_twice": Mutant("anneals its learning rate by a Python counter", counts_updates),
    "inputs_stay": Mutant("adds its updates in place", updates_in_place),
    "structure_is_fixed": Mutant("counts its updates in float", float_counter),
    "outputs_own_storage": Mutant("reports a view of the data among its metrics", views),
    "batch_is_singles": Mutant("asks Python: if approximate_kl < 1", stops_early),
    "device_follows_inputs": Mutant("makes a tensor without asking where: torch.zeros(1)", on_the_cpu),
    "global_state_stays": Mutant("shuffles with torch's global generator", global_shuffle),
    "compiled_is_eager": Mutant("logs what it does: logger.debug(...)", logs),
}
