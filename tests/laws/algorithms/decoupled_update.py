"""Laws of PPO with a behaviour and a proximal policy (U1, L4). The subject makes an Algorithm as `decoupled_ppo` does."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.algorithms.algorithm import Algorithm, TrainState
from purestep.algorithms.decoupled import interpolation
from purestep.algorithms.decoupled_ppo import FIGURES, Versioned, decoupled_ppo, proximal_log_prob
from purestep.algorithms.hyperparameters import Numbers, numbers_of
from purestep.algorithms.importance import effective_fraction, importance_weights
from purestep.algorithms.kl import k3
from purestep.algorithms.losses import ppo_clip
from purestep.algorithms.ppo import METRICS, PPOSample, clip_of, ppo, ppo_learner, prepare_samples
from purestep.core import keys
from purestep.core.optim.interface import Optimizer
from purestep.core.optim.optimizers import sgd
from purestep.core.policy import ActorCritic
from purestep.core.record import replace
from purestep.core.steps import Trajectory
from purestep.core.tree import leaves, tree_map
from purestep.properties.framework.compare import ROUNDING, Tolerance, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import integers, seeds
from purestep.properties.suites.update import small_model, update_inputs

# --- mutants ---
# Common errors in PPO with two anchors: each is the right update, written once more with one mistake.


Make = Callable[..., Algorithm]  # what `decoupled_ppo` is
Row = tuple[Tensor, Tensor, Tensor, Tensor]  # log-probs p, q, b of the rows, and the share of each


@frozen
class _Choices:
    """The parts of the update that mutants replace."""

    near: Callable[[Row], Tensor] = lambda row: row[1]  # around what the ratio is clipped
    weighed: Callable[[Tensor], Tensor] = lambda weight: weight  # of the weights
    share: Callable[[Tensor, Tensor], Tensor] = interpolation  # (version, current)


def _written(choices: _Choices) -> Callable[[Make], Make]:
    def mutant(right: Make) -> Make:
        return partial(_made, choices)

    return mutant


def _made(choices: _Choices, model: ActorCritic, optimizer: Optimizer, **given: Any) -> Algorithm:
    proximal, weights = given.pop("proximal"), given.pop("weights")
    settings = {**(decoupled_ppo.__kwdefaults__ or {}), **given}
    chosen = numbers_of(decoupled_ppo, settings)

    def samples_of(params: Any, told: Any, step: Tensor, numbers: Numbers) -> PPOSample:
        played = told.trajectory if isinstance(told, Versioned) else told
        recomputed = proximal_log_prob(model, params, played)
        share = (
            choices.share(told.version, step) if proximal == "interpolated" else torch.full_like(recomputed, math.nan)
        )
        rates = {"gamma": numbers["gamma"], "lambda_": numbers["gae_lambda"]}
        samples = prepare_samples(model, params, played, **rates, normalize=settings["advantages"] == "batch")
        return replace(samples, anchor=(recomputed.flatten(0, 1), share.flatten(0, 1)))

    def surrogate(
        log_prob: Tensor, sample: PPOSample, advantage: Tensor, numbers: Numbers
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        (recomputed, share), played, now = sample.anchor, sample.behaviour_log_prob, log_prob.detach()
        q = torch.where(share.isnan(), recomputed, played + share.nan_to_num() * (now - played))
        near = choices.near((now, q, played, share))
        weight = choices.weighed(weights(q, played, torch.ones_like(q, dtype=torch.bool)))
        loss = weight * ppo_clip(log_prob, near, advantage, clip=clip_of(numbers))
        return loss, near, (weight.mean(), effective_fraction(weight, torch.ones_like(q, dtype=torch.bool)))

    passes = {name: settings[name] for name in ("epochs", "minibatches")}
    normalize = settings["advantages"] == "minibatch"
    names = (*METRICS, *FIGURES)
    return ppo_learner(model, optimizer, chosen, surrogate, samples_of, names, **passes, normalize=normalize)


right = _written(_Choices())
current_is_proximal = _written(_Choices(near=lambda row: row[0]))
clips_around_sampler = _written(_Choices(near=lambda row: row[2]))
unweighted = _written(_Choices(weighed=torch.ones_like))
inverse_weight = _written(_Choices(weighed=lambda weight: 1 / weight))
of_those_kept = _written(_Choices(weighed=lambda weight: weight / (weight > 0).to(weight.dtype).mean().clamp(min=1e-6)))
one_more = _written(_Choices(share=lambda version, current: interpolation(version, current + 1)))
the_other_end = _written(_Choices(share=lambda version, current: _turned(interpolation(version, current))))


def _turned(share: Tensor) -> Tensor:
    return torch.where(share > 0, 1 - share, share)


def old_values(right: Make) -> Make:
    """Double the count of updates, so that every version seems older than it is."""

    def make(*given: Any, **named: Any) -> Algorithm:
        algorithm = right(*given, **named)

        def update(state: Any, told: Any, key: Any) -> Any:
            return algorithm.update(replace(state, step=2 * state.step), told, key)

        return evolve(algorithm, update=update)

    return make


MUTANTS: dict[str, Callable[[Make], Make]] = {
    "weighs by the inverse": inverse_weight,
    "counts its updates twice": old_values,
}


# --- laws ---


HILTON = "Hilton et al. 2021, arXiv:2110.00641"
APPROXIMATED = "AReaL's loglinear approximation, arXiv:2512.06547"
CLIP, RATE = 0.25, 2.0
STEP: dict[str, Any] = {"epochs": 1, "minibatches": 1, "advantages": "none"}
POLICY: dict[str, Any] = {"value_coefficient": 0.0, "entropy_coefficient": 0.0}
NEAR = Tolerance("sums in another order", 1e-4, 1e-5)


@frozen
class Case:
    """A learner that has made some updates, and a trajectory that older weights played."""

    state: TrainState
    trajectory: Trajectory
    version: Tensor  # int [T, B], of the weights that played each row
    key: Tensor

    def versioned(self) -> Versioned:
        """The trajectory with its versions."""
        return Versioned(trajectory=self.trajectory, version=self.version)

    def on_policy(self) -> "Case":
        """Return the case with log-probs as if the learner's own weights had played the rows."""
        log_prob = proximal_log_prob(MODEL, self.state.params, self.trajectory)
        return Case(self.state, replace(self.trajectory, behaviour_log_prob=log_prob), self.version, self.key)


MODEL = small_model()


@st.composite
def _cases(draw: DrawFn) -> Case:
    lesson, done = draw(update_inputs()), draw(st.integers(2, 6))
    params = MODEL.init(keys.key(lesson.seed))
    state = TrainState(params=params, optimizer=sgd(RATE).init(params), step=torch.tensor(done))
    version = (done - draw(integers((4, 2), 0, 4))).clamp(min=0)
    return Case(state, lesson.trajectory, version, keys.key(draw(seeds())))


def decoupled_update_laws() -> Suite:
    """The laws of an update that clips around another policy than the behaviour policy."""
    return Suite("decoupled_update_laws", (_fresh(), _first(), _weighed(), _kept(), _newest(), _between()))


_law = law_constructor(_cases, HILTON)


def _make(subject: Make, proximal: str, **choices: Any) -> Algorithm:
    return subject(MODEL, sgd(RATE), **{"proximal": proximal, "weights": importance_weights, "clip": CLIP, **choices})


def _updated(algorithm: Algorithm, case: Case, played: Any) -> tuple[TrainState, Any]:
    """Update the case's learner, with the algorithm's own numbers in its state."""
    begun = replace(case.state, numbers=algorithm.init(case.key).numbers)
    return algorithm.update(begun, played, case.key)


def _as_ppo(subject: Make, case: Case, proximal: str, seen: Seen) -> None:
    """Require the result of PPO, over several epochs, so that later ones have ratios beyond the clip."""
    passes: dict[str, Any] = {"epochs": 3, "minibatches": 1}
    wanted, figures = _updated(ppo(MODEL, sgd(RATE), clip=CLIP, **passes), case, case.trajectory)
    seen(f"a ratio beyond the clip, {proximal}", figures["clip_fraction"] > 0)
    got, told = _updated(_make(subject, proximal, **passes), case, case.versioned())
    same(f"{proximal}: the state", got, wanted, NEAR)
    same(f"{proximal}: the figures", {name: told[name] for name in METRICS}, dict(figures), NEAR)
    same(f"{proximal}: (weight, effective_fraction)", (told["weight"], told["effective_fraction"]), (_ONE, _ONE), NEAR)


_ONE = torch.tensor(1.0)


def _fresh() -> Law:
    def check(subject: Make, drawn: Case, seen: Seen) -> None:
        case = drawn.on_policy()
        fresh = Case(case.state, case.trajectory, torch.zeros_like(case.version) + case.state.step, case.key)
        for proximal in ("recomputed", "interpolated"):
            _as_ppo(subject, fresh, proximal, seen)

    needs = ("a ratio beyond the clip, recomputed", "a ratio beyond the clip, interpolated")
    mutant = ("takes the policy as it is for the proximal one", current_is_proximal)
    claim = (
        "Where the weights that are trained have played, the update is PPO's, whatever the proximal policy's origin."
    )
    return _law("fresh_is_ppo", claim, mutant, check, *needs)


def _first() -> Law:
    def check(subject: Make, case: Case, seen: Seen) -> None:
        log_prob = proximal_log_prob(MODEL, case.state.params, case.trajectory)
        ratio = (log_prob - case.trajectory.behaviour_log_prob).exp()
        seen("a row that PPO would clip", ((ratio < 1 - CLIP) | (ratio > 1 + CLIP)).any())
        _, told = _updated(_make(subject, "recomputed", **STEP), case, case.trajectory)
        require(told["clip_fraction"] == 0, f"{float(told['clip_fraction'])} of the rows are clipped before any step")
        same("approximate_kl before any step", told["approximate_kl"], torch.tensor(0.0), ROUNDING)

    mutant = ("clips around the policy that played", clips_around_sampler)
    claim = "Around recomputed log-probs the first step is never clipped, however old the weights that played."
    return _law("first_step_is_free", claim, mutant, check, "a row that PPO would clip")


def _weighed() -> Law:
    def check(subject: Make, case: Case, seen: Seen) -> None:
        algorithm = _make(subject, "recomputed", **STEP, **POLICY)
        before = case.trajectory.behaviour_log_prob
        rarer = replace(case.trajectory, behaviour_log_prob=before - math.log(2))
        steps = [
            tree_map(torch.sub, _updated(algorithm, case, played)[0].params, case.state.params)
            for played in (rarer, case.trajectory)
        ]
        seen("a step", any(bool((leaf != 0).any()) for leaf in leaves(steps[1])))
        same("the step", steps[0], tree_map(lambda leaf: 2 * leaf, steps[1]), NEAR)

    mutant = ("forgets the weight", unweighted)
    claim = "Rows that the sampler was half as likely to choose make the first step twice as long."
    return _law("weight", claim, mutant, check, "a step")


def _kept() -> Law:
    def check(subject: Make, case: Case, seen: Seen) -> None:
        def some(near: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
            weight = importance_weights(near, behaviour, mask)
            return torch.where(weight < 1.0, weight, 0.0)

        samples = prepare_samples(MODEL, case.state.params, case.trajectory, gamma=0.5, lambda_=0.5)
        near = proximal_log_prob(MODEL, case.state.params, case.trajectory).flatten()
        weight = some(near, samples.behaviour_log_prob, torch.ones_like(near, dtype=torch.bool))
        seen("rows kept beside rows left out", (weight > 0).any() & (weight == 0).any())
        chosen = {**STEP, "gamma": 0.5, "gae_lambda": 0.5, "weights": some}
        _, told = _updated(_make(subject, "recomputed", **chosen), case, case.trajectory)
        same("policy_loss", told["policy_loss"], -(weight * samples.advantage).mean(), NEAR)
        same("weight", told["weight"], weight.mean(), NEAR)

    mutant = ("divides by the number of rows that were kept", of_those_kept)
    claim = "Rows that the weights leave out add nothing, and make the others weigh no more."
    return _law("left_out", claim, mutant, check, "rows kept beside rows left out")


def _newest() -> Law:
    def check(subject: Make, drawn: Case, seen: Seen) -> None:
        version = torch.maximum(drawn.version, drawn.state.step - 1)
        seen("rows of the version before", (version < drawn.state.step).any())
        _as_ppo(subject, Case(drawn.state, drawn.trajectory, version, drawn.key), "interpolated", seen)

    mutant = ("counts one version too many", one_more)
    needs = ("rows of the version before", "a ratio beyond the clip, interpolated")
    claim = "Interpolated, an update on rows at most one version old is PPO's."
    return _law("newest_is_ppo", claim, mutant, check, *needs, source=APPROXIMATED)


def _between() -> Law:
    def check(subject: Make, case: Case, seen: Seen) -> None:
        lag = (case.state.step - case.version).clamp(min=1).flatten()
        seen("rows three versions old", (lag > 2).any())
        log_prob = proximal_log_prob(MODEL, case.state.params, case.trajectory).flatten()
        played = case.trajectory.behaviour_log_prob.flatten()
        near = log_prob - (log_prob - played) / lag
        _, told = _updated(_make(subject, "interpolated", **STEP), case, case.versioned())
        same("approximate_kl", told["approximate_kl"], k3(near, log_prob).mean(), NEAR)
        same("weight", told["weight"], (near - played).exp().mean(), NEAR)

    mutant = ("takes the share from the other end", the_other_end)
    claim = "Interpolated, rows d versions old begin with log(p / q) = log(p / b) / d."
    return _law("between", claim, mutant, check, "rows three versions old", source=APPROXIMATED)
