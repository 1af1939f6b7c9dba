"""Laws of learners (U1, U2 and U4). The subject makes an Algorithm from an ActorCritic: `lambda model: ppo(model, sgd(0.1))`.

It is called with models that the laws make; some of them return the exact values of a small process.
"""

import logging
from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...algorithms.algorithm import Algorithm, TrainState
from ...core import keys
from ...core.distributions import Categorical
from ...core.optim.optimizers import hyperparameters, with_hyperparameters
from ...core.policy import ActorCritic, actor_critic_mlp
from ...core.record import replace
from ...core.spaces import Box, Discrete
from ...core.steps import Trajectory, Transition
from ...core.tree import leaves, tree_map
from ..framework.compare import ROUNDING, Tolerance, require, same
from ..framework.law import Law, Mutant, Seen, Suite, law_constructor, lifted
from ..strategies.mdps import histories, layered_mdps, objective, values
from ..strategies.values import dyadic, from_record, integers, seeds
from .env import through_bytes
from .step import step_laws

# --- mutants ---
# Common errors in learners: each takes a factory (ActorCritic -> Algorithm) and returns a wrong one.


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
    """Halve the size of the step with every call."""

    def made(model: ActorCritic) -> Algorithm:
        algorithm, calls = factory(model), [0]

        def update(state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
            after, metrics = algorithm.update(state, trajectory, key)
            calls[0] += 1
            return _scaled(after, state, 0.5 ** calls[0]), metrics

        return attrs.evolve(algorithm, update=update)

    return made


def momentum_beside(factory: Factory) -> Factory:
    """Keep the last step outside the state, so that a saved run loses it."""

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
def mutates_parameters(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Write the new parameters over the old ones in place."""
    after, metrics = algorithm.update(state, trajectory, key)
    for old, new in zip(leaves(state.params), leaves(after.params), strict=True):
        old.copy_(new)
    return after, metrics


@around
def float_counter(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Return the step counter as a float."""
    after, metrics = algorithm.update(state, trajectory, key)
    return replace(after, step=after.step / 1), metrics


@around
def global_shuffle(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Shuffle with torch's global generator."""
    return algorithm.update(state, trajectory, key + torch.randperm(4)[0])


@around
def logs(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Write a log record in each update."""
    logging.getLogger(__name__).debug("an update")
    return algorithm.update(state, trajectory, key)


@around
def decays(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Shrink the parameters, whatever the learning rate is."""
    after, metrics = algorithm.update(state, trajectory, key)
    return replace(after, params=tree_map(lambda leaf: leaf * 0.99, after.params)), metrics


@around
def turns_rewards(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Change the sign of the rewards."""
    return algorithm.update(state, replace(trajectory, reward=-trajectory.reward), key)


def bonus(factory: Factory) -> Factory:
    """Add a gradient step towards larger entropy."""

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
    """Create a tensor on the default device."""
    after, metrics = algorithm.update(state, trajectory, key)
    return replace(after, step=torch.cat([after.step.reshape(1), torch.zeros(1, dtype=torch.int64)])[0]), metrics


@around
def metric_views(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Report a view of the data among the metrics."""
    after, metrics = algorithm.update(state, trajectory, key)
    return after, {**metrics, "first_reward": trajectory.reward[0, 0]}


@around
def stops_at_kl(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Branch in Python on the approximate KL, to discard an update that moved too far."""
    after, metrics = algorithm.update(state, trajectory, key)
    return (after if metrics["approximate_kl"] < 1.0 else state), metrics


OF_STEPS = {
    "same_twice": Mutant("anneals its learning rate by a Python counter", counts_updates),
    "inputs_stay": Mutant("adds its updates in place", mutates_parameters),
    "structure_is_fixed": Mutant("counts its updates in float", float_counter),
    "outputs_own_storage": Mutant("reports a view of the data among its metrics", metric_views),
    "batch_is_singles": Mutant("asks Python: if approximate_kl < 1", stops_at_kl),
    "device_follows_inputs": Mutant("makes a tensor without asking where: torch.zeros(1)", on_the_cpu),
    "global_state_stays": Mutant("shuffles with torch's global generator", global_shuffle),
    "compiled_is_eager": Mutant("logs what it does: logger.debug(...)", logs),
}


# --- laws ---


CONTRACT = "algorithms.algorithm: a learner is two pure functions over one state"
OBSERVATION, ACTION = Box(-1.0, 1.0, (2,)), Discrete(2)


def small_model() -> ActorCritic:
    """Return a perceptron with four hidden units, for observations of two numbers and two actions."""
    return actor_critic_mlp(OBSERVATION, ACTION, hidden=(4,))


@attrs.frozen
class UpdateInputs:
    """One update: the seed of the parameters, the data, and the seed of the update's key."""

    seed: int
    trajectory: Trajectory
    update_seed: int


@st.composite
def update_inputs(draw: DrawFn, length: int = 4, batch: int = 2) -> UpdateInputs:
    """Draw trajectories [length, batch] of dyadic numbers; the data need not come from the policy."""
    shape = (length, batch)
    behaviour = draw(dyadic(shape, limit=2)).abs()
    observation = draw(dyadic((*shape, 2), limit=1))
    action = draw(integers(shape, 0, 2))
    trajectory = from_record(
        Transition,
        T=length,
        B=batch,
        observation=observation,
        next_observation=dyadic((*shape, 2), limit=1),
        action=action,
        behaviour_log_prob=-behaviour,
    )
    return UpdateInputs(draw(seeds()), draw(trajectory), draw(seeds()))


def update_laws(*, round_trip: Callable[[Any], Any] | None = None, tolerance: Tolerance = ROUNDING) -> Suite:
    """The laws of a learner; `round_trip` saves a state and loads it, with torch.save by default.

    The learner must have no entropy bonus, and an optimiser with the hyper-parameter learning_rate.
    """
    save = round_trip or through_bytes
    steps = step_laws(update_inputs(), tolerance=tolerance, carry=0)
    lifts = tuple(lifted(law, _update_of, _arguments, mutant=OF_STEPS[law.name]) for law in steps)
    return Suite("update_laws", (*lifts, _resumed(save), _zero_rate(), _zero_advantage(), _ascent()))


def _update_of(factory: Factory) -> Callable[..., Any]:
    return factory(small_model()).update


def _arguments(factory: Factory, drawn: Any) -> Any:
    if isinstance(drawn, tuple):
        return tuple(_arguments(factory, given) for given in drawn)
    state = factory(small_model()).init(keys.key(drawn.seed))
    return state, drawn.trajectory, keys.key(drawn.update_seed)


_law = law_constructor(st.nothing, CONTRACT)


def _resumed(round_trip: Callable[[Any], Any]) -> Law:
    def check(factory: Factory, drawn: list[UpdateInputs], seen: Seen) -> None:
        algorithm = factory(small_model())
        live = stored = algorithm.init(keys.key(drawn[0].seed))
        for i, given in enumerate(drawn):
            key = keys.key(given.update_seed)
            live, wanted = algorithm.update(live, given.trajectory, key)
            fresh = factory(small_model())
            stored, got = fresh.update(round_trip(stored), given.trajectory, key)
            same(f"update {i + 1}, saved and loaded before it", (stored, dict(got)), (live, dict(wanted)))
        seen("two updates", len(drawn) > 1)

    mutant = Mutant("keeps its momentum beside the state", momentum_beside)
    claim = "Updates with a save and a load before each are the updates without, bit for bit."
    inputs = st.lists(update_inputs(), min_size=1, max_size=3)
    return _law("resumed_is_unbroken", claim, mutant, check, "two updates", inputs=inputs)


def _zero_rate() -> Law:
    def check(factory: Factory, given: UpdateInputs, seen: Seen) -> None:
        algorithm = factory(small_model())
        state = algorithm.init(keys.key(given.seed))
        moved, _ = algorithm.update(state, given.trajectory, keys.key(given.update_seed))
        seen("an update that moves", _differs(moved.params, state.params))
        known = hyperparameters(state.optimizer)
        require("learning_rate" in known, f"the optimiser has {sorted(known)}, wanted a learning_rate")
        still = replace(state, optimizer=with_hyperparameters(state.optimizer, {"learning_rate": 0.0}))
        after, _ = algorithm.update(still, given.trajectory, keys.key(given.update_seed))
        same("params after an update at rate 0", after.params, state.params)

    mutant = Mutant("decays its weights by a fixed share", decays)
    claim = "At learning rate 0 an update leaves the parameters."
    return _law("rate_0_changes_nothing", claim, mutant, check, "an update that moves", inputs=update_inputs())


def _differs(a: Any, b: Any) -> bool:
    pairs = zip(leaves(a), leaves(b), strict=True)
    return any(bool((x != y).any()) for x, y in pairs)


def worthless(model: ActorCritic) -> ActorCritic:
    """Return the model's policy with the constant value 0."""

    def apply(params: Any, observation: Any, carry: Any) -> tuple[Any, Tensor, Any]:
        distribution, value, carry = model.apply(params, observation, carry)
        return distribution, torch.zeros_like(value), carry

    return attrs.evolve(model, apply=apply)


def _zero_advantage() -> Law:
    def check(factory: Factory, given: UpdateInputs, seen: Seen) -> None:
        algorithm = factory(worthless(small_model()))
        state = algorithm.init(keys.key(given.seed))
        unpaid = replace(given.trajectory, reward=torch.zeros_like(given.trajectory.reward))
        after, _ = algorithm.update(state, unpaid, keys.key(given.update_seed))
        same("params after an update on advantages of 0", after.params, state.params)

    mutant = Mutant("adds an entropy bonus nobody asked for", bonus)
    claim = "Where every advantage is 0 and there is no bonus, an update leaves the policy."
    return _law("advantage_0_changes_nothing", claim, mutant, check, inputs=update_inputs())


def knowing(exact: Tensor) -> ActorCritic:
    """Return a model with one logit per state and action, and the values in `exact`; observations are one-hot states."""
    states = len(exact)

    def init(key: keys.Key) -> Tensor:
        return torch.zeros(states, 2, device=key.device)

    def apply(params: Tensor, observation: Tensor, carry: Any) -> tuple[Categorical, Tensor, Any]:
        return Categorical(logits=observation @ params), observation @ exact.to(observation.dtype), carry

    return ActorCritic(init=init, apply=apply)


def _ascent() -> Law:
    def check(factory: Factory, mdp: Any, seen: Seen) -> None:
        policy = torch.full(mdp.transition.shape[:2], 0.5, dtype=torch.float64)
        algorithm = factory(knowing(values(mdp, policy, 1.0)))
        state = algorithm.init(keys.key(0))
        after, _ = algorithm.update(state, _every_history(mdp, policy), keys.key(0))
        before, now = (objective(mdp, s.params.double().softmax(-1), 1.0) for s in (state, after))
        seen("a better policy", now > before + 1e-6)
        require(now >= before - 1e-6, f"J went from {float(before)} to {float(now)}")

    inputs = layered_mdps(horizon=2, parts=4)
    return _law(
        "ascent",
        "One small step on exact advantages, over every history there is, does not lower the expected return.",
        Mutant("turns the sign of the rewards", turns_rewards),
        check,
        "a better policy",
        source="Sutton et al. 2000: for a softmax table each component of the gradient has the advantage's sign",
        inputs=inputs,
    )


def _every_history(mdp: Any, policy: Tensor) -> Trajectory:
    """All histories, each repeated in proportion to its probability: the mean over the batch is the expectation."""
    all_ = histories(mdp, policy, 2)
    counts = (all_.probability / all_.probability.min()).round().to(torch.int64)
    columns = torch.arange(len(counts)).repeat_interleave(counts)
    eye = torch.eye(len(mdp.initial))
    return Transition(
        observation=eye[all_.state][:, columns],
        action=all_.action[:, columns],
        reward=all_.reward[:, columns].float(),
        terminated=all_.terminated[:, columns],
        truncated=all_.truncated[:, columns],
        next_observation=eye[all_.next_state][:, columns],
        behaviour_log_prob=policy.log().float()[all_.state, all_.action][:, columns],
    )
