"""Laws of training with stale actors. The subject makes a Trainer: (model, algorithm, staleness) -> Trainer.

The laws use a model whose single parameter counts its updates and determines every log-prob.
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from torch import Tensor

from purestep.algorithms.algorithm import Algorithm, TrainState
from purestep.core import keys
from purestep.core.distributions import Categorical
from purestep.core.envs import make
from purestep.core.policy import ActorCritic
from purestep.core.record import replace
from purestep.core.steps import Trajectory
from purestep.core.tree import leaves, tree_map
from purestep.properties.framework.compare import ROUNDING, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import seeds
from purestep.runtime.train import RunState, Trainer, train, trainer

# --- mutants ---
# Common errors in trainers with stale actors: each is an edit of a right one.


Make = Callable[..., Trainer]  # (model, algorithm, staleness)


def never_late(make: Make) -> Make:
    """Play with the newest weights, whatever the staleness is."""
    return lambda model, algorithm, staleness: make(model, algorithm, 0)


def one_later(make: Make) -> Make:
    """Play with weights that are one update older than the staleness."""
    return lambda model, algorithm, staleness: make(model, algorithm, staleness + 1)


def beside(make: Make) -> Make:
    """Keep old weights in a variable outside the state, which no checkpoint holds."""

    def made(model: Any, algorithm: Any, staleness: int) -> Trainer:
        one, kept = make(model, algorithm, staleness), list[Any]()

        def iterate(state: RunState) -> Any:
            after, metrics = one.iterate(replace(state, past=kept[-1]) if kept else state)
            kept.append(after.past)
            return replace(after, past=state.past), metrics

        return evolve(one, iterate=iterate)

    return made


def _around(change: Callable[[RunState, RunState], RunState]) -> Callable[[Make], Make]:
    def mutant(make: Make) -> Make:
        def made(model: Any, algorithm: Any, staleness: int) -> Trainer:
            one = make(model, algorithm, staleness)

            def iterate(state: RunState) -> Any:
                after, metrics = one.iterate(state)
                return change(state, after), metrics

            return evolve(one, iterate=iterate)

        return made

    return mutant


def _frozen(before: RunState, after: RunState) -> RunState:
    return replace(after, past=before.past)


def _rewritten(before: RunState, after: RunState) -> RunState:
    if isinstance(before.past, tuple) and not before.past:
        return after
    return replace(after, past=tree_map(lambda past, new: past * 0 + new, after.past, before.learner.params))


first_weights = _around(_frozen)  # never looks for newer ones
one_slot = _around(_rewritten)  # keeps the weights before the last update in every place

MUTANTS: dict[str, Callable[[Make], Make]] = {
    "plays with the newest weights": never_late,
    "keeps one set of old weights": one_slot,
}


# --- laws ---


SOURCE = "runtime.train: worlds are played by the params of so many updates ago"
SLOPE = 0.25  # of a logit with each update


@frozen
class Case:
    """A run: the seed of its key, the staleness, and its length."""

    seed: int
    staleness: int
    iterations: int


_CASES = st.builds(Case, seed=seeds(), staleness=st.integers(0, 3), iterations=st.integers(1, 6))


def counting_model() -> ActorCritic:
    """Two actions with logits (SLOPE theta, 0), theta the number of updates: a log-prob identifies the weights that played."""

    def init(key: keys.Key) -> dict[str, Tensor]:
        return {"theta": torch.zeros((), device=key.device)}

    def apply(params: dict[str, Tensor], observation: Any, carry: Any) -> tuple[Categorical, Tensor, Any]:
        zero = torch.zeros_like(leaves(observation)[0][..., 0])
        return Categorical(logits=torch.stack([zero + SLOPE * params["theta"], zero], -1)), zero, carry

    return ActorCritic(init=init, apply=apply)


def counting(told: list[Trajectory]) -> Algorithm:
    """Add 1 to the parameter at each update, and record the arguments."""

    def init(key: keys.Key) -> TrainState:
        params = counting_model().init(key)
        return TrainState(params=params, optimizer=(), step=torch.zeros((), dtype=torch.int64, device=key.device))

    def update(state: TrainState, trajectory: Trajectory, key: keys.Key) -> tuple[TrainState, dict[str, Tensor]]:
        told.append(trajectory)
        return replace(state, params={"theta": state.params["theta"] + 1}, step=state.step + 1), {}

    return Algorithm(init=init, update=update, metrics=())


def own_lagging(model: ActorCritic, algorithm: Algorithm, staleness: int) -> Trainer:
    """The library's own trainer, on two small environments."""
    return trainer(make("cartpole"), model, algorithm, envs=2, horizon=2, staleness=staleness)


def lagging_laws() -> Suite:
    """The laws of a trainer whose environments are played by older weights."""
    return Suite("lagging_laws", (_plays_old(), _learns_new(), _in_parts()))


_law = law_constructor(lambda: _CASES, SOURCE)


def _log_prob(version: int, action: Tensor) -> Tensor:
    logits = torch.tensor([SLOPE * version, 0.0])
    return logits.log_softmax(-1)[action]


def _plays_old() -> Law:
    def check(subject: Make, drawn: Case, seen: Seen) -> None:
        told: list[Trajectory] = []
        one = subject(counting_model(), counting(told), drawn.staleness)
        train(one, drawn.iterations)(one.init(keys.key(drawn.seed)))
        require(len(told) == drawn.iterations, f"{len(told)} updates in {drawn.iterations} iterations")
        for version, played in enumerate(told):
            wanted = max(version - drawn.staleness, 0)
            seen("play that lags behind", wanted < version)
            seen("lagging play that has moved on", 0 < wanted < version)
            got, right = played.behaviour_log_prob, _log_prob(wanted, played.action)
            same(f"log-probs under version {wanted}, for update {version}", got, right, ROUNDING)

    mutant = ("never looks for newer weights", first_weights)
    claim = "What update v learns from was played by the weights of version max(v - staleness, 0)."
    return _law("old_weights_play", claim, mutant, check, "play that lags behind", "lagging play that has moved on")


def _learns_new() -> Law:
    def check(subject: Make, drawn: Case, seen: Seen) -> None:
        one = subject(counting_model(), counting([]), drawn.staleness)
        state, _ = train(one, drawn.iterations)(one.init(keys.key(drawn.seed)))
        same("updates the newest weights have had", state.learner.params["theta"], torch.tensor(1.0 * drawn.iterations))
        kept = leaves(state.past)
        seen("weights kept", bool(kept))
        wanted = torch.arange(drawn.staleness) + drawn.iterations - drawn.staleness
        if drawn.staleness:
            same("the versions kept", kept[0], wanted.clamp(min=0).float())
        require(bool(kept) == bool(drawn.staleness), f"{len(kept)} leaves are kept with staleness {drawn.staleness}")

    mutant = ("keeps one version more than it needs", one_later)
    claim = "Every update is of the newest weights, and as many older ones are kept as play lags behind."
    return _law("newest_weights_learn", claim, mutant, check, "weights kept")


def _in_parts() -> Law:
    def check(subject: Make, drawn: Case, seen: Seen) -> None:
        seen("a run that is cut", drawn.iterations > 1)
        seen("a run that lags", drawn.staleness > 0)
        whole, parts = [list[Trajectory](), list[Trajectory]()]
        one = subject(counting_model(), counting(whole), drawn.staleness)
        end, _ = train(one, drawn.iterations)(one.init(keys.key(drawn.seed)))
        state = one.init(keys.key(drawn.seed))
        for _ in range(drawn.iterations):
            fresh = subject(counting_model(), counting(parts), drawn.staleness)
            state, _ = train(fresh, 1)(state)
        same("the state", state, end)
        same("what updates were given", parts, whole)

    mutant = ("keeps old weights beside the state", beside)
    claim = "A run cut into iterations, each with a trainer made anew, is the run in one piece: the state holds all."
    return _law("the_state_holds_all", claim, mutant, check, "a run that is cut", "a run that lags")
