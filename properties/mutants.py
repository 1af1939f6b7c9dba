"""Families: each suite beside a subject that obeys it and the edits of that subject which the suite is there to catch."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st

from ..algorithms.a2c import a2c
from ..algorithms.advantages import gae
from ..algorithms.algorithm import Algorithm
from ..algorithms.decoupled_ppo import decoupled_ppo
from ..algorithms.kl import k2, k3
from ..algorithms.link_prediction import link_prediction_loss
from ..algorithms.policy_losses import ppo_clip
from ..algorithms.ppo import order, ppo
from ..algorithms.returns import lambda_returns
from ..algorithms.value_losses import squared
from ..algorithms.vtrace import vtrace
from ..core.distributions import Categorical
from ..core.env import auto_reset, time_limit
from ..core.envs.cartpole import cartpole
from ..core.envs.tabular import tabular
from ..core.logic.canonical import canonical, state_hash
from ..core.logic.corrupt import corrupt, corruptions
from ..core.logic.derive import derive
from ..core.logic.env import begin
from ..core.logic.game import advance, look
from ..core.logic.knowledge import knowledge, matching
from ..core.logic.policy import proof_policy
from ..core.logic.unify import unify
from ..core.networks import functional
from ..core.optim import adam
from ..core.policy import ActorCritic, actor_critic_mlp
from ..core.scan import scan
from ..core.spaces import Box, Discrete
from ..runtime.logic.recycle import play, proven_all
from ..runtime.rollout import rollout
from . import (
    canonical_mutants,
    checkpoint_mutants,
    corrupt_mutants,
    decoupled_update_mutants,
    derive_mutants,
    estimator_mutants,
    game_mutants,
    kl_mutants,
    knowledge_mutants,
    lagging_mutants,
    link_prediction_mutants,
    loss_mutants,
    memory_mutants,
    recycle_mutants,
    return_mutants,
    scan_mutants,
    step_mutants,
    unify_mutants,
    update_mutants,
    wrapper_mutants,
)
from .batch_families import batch_families
from .canonical_laws import Renaming, canonical_laws
from .categorical_laws import categorical_laws
from .checkpoint_laws import checkpoint_laws, own_store
from .corrupt_laws import corrupt_laws
from .corruptions_laws import corruptions_laws
from .decoupled_update_laws import decoupled_update_laws
from .derive_laws import derive_laws
from .engine_families import engine_families
from .env_laws import env_laws
from .estimator_laws import estimator_laws
from .game_laws import game_laws
from .game_mutants import Moves
from .generating_families import generating_families
from .gradient_laws import gradient_laws
from .kernel_laws import kernel_laws
from .kl_laws import kl_laws
from .knowledge_laws import knowledge_laws, matching_laws
from .lagging_laws import lagging_laws, own_lagging
from .language_families import language_families
from .law import Mutant, Subject, Suite
from .link_prediction_laws import link_prediction_laws
from .logic_strategies import NAMES
from .loss_laws import loss_laws
from .machine_laws import machine_laws
from .machine_mutants import fetcher
from .masked_loss_laws import masked_loss_laws
from .memory_laws import memory_laws
from .module_laws import module_laws
from .moving_families import moving_families
from .optimizer_families import optimizer_families
from .order_laws import order_laws
from .policy_laws import policy_laws
from .probe_laws import probe_laws
from .proof_policy_laws import proof_policy_laws
from .ranks_families import ranks_families
from .recycle_laws import recycle_laws
from .recycle_mutants import Recycling
from .reporting_families import reporting_families
from .return_laws import lambda_return_laws, vtrace_laws
from .scan_laws import scan_laws
from .scheduling_families import scheduling_families
from .sharded_families import sharded_families
from .step_laws import step_laws
from .step_mutants import running_total, totals
from .strategies import dyadic, smooth
from .token_families import token_families
from .transcript_families import transcript_families
from .unify_laws import unify_laws
from .update_laws import update_laws
from .wrapper_laws import auto_reset_laws, time_limit_laws

LIMIT = 4  # steps of an episode in the families of wrappers


@frozen
class Family:
    """A suite, a right subject, and edits beyond those the laws name themselves."""

    suite: Suite
    subject: Subject
    more: tuple[Mutant, ...] = ()
    night: bool = False  # too slow for the matrix of every day

    @property
    def mutants(self) -> tuple[Mutant, ...]:
        """The laws' own mutants, then the others; each edit once."""
        own = [law.mutant for law in self.suite]
        return tuple({mutant.edit: mutant for mutant in (*own, *self.more)}.values())


def _edits(table: dict[str, Callable[[Subject], Subject]]) -> tuple[Mutant, ...]:
    return tuple(Mutant(edit, make) for edit, make in table.items())


def _constant(table: dict[str, Any]) -> tuple[Mutant, ...]:
    """Edits that are functions of their own, whatever the subject."""
    return tuple(Mutant(edit, _instead(wrong)) for edit, wrong in table.items())


def _instead(wrong: Any) -> Callable[[Subject], Subject]:
    return lambda subject: wrong


def _steps_and_folds() -> list[Family]:
    pairs = st.tuples(smooth((2,)), smooth((2,)))
    return [
        Family(step_laws(totals(), carry=0), running_total, _edits(step_mutants.MUTANTS)),
        Family(scan_laws(), scan, _edits(scan_mutants.MUTANTS)),
        Family(gradient_laws(pairs, constant=(1,)), squared),
    ]


def _logic() -> list[Family]:
    return [
        Family(unify_laws(), unify, _edits(unify_mutants.MUTANTS)),
        Family(knowledge_laws(), knowledge, _edits(knowledge_mutants.MUTANTS)),
        Family(matching_laws(), matching),
        Family(canonical_laws(), Renaming(canonical, state_hash), _edits(canonical_mutants.MUTANTS)),
        Family(derive_laws(), derive, _edits(derive_mutants.MUTANTS)),
        Family(corrupt_laws(), corrupt, _edits(corrupt_mutants.CORRUPT)),
        Family(corruptions_laws(), corruptions, _edits(corrupt_mutants.CORRUPTIONS)),
    ]


def _provers() -> list[Family]:
    return [
        Family(game_laws(), Moves(begin, look, advance), _edits(game_mutants.MUTANTS)),
        Family(recycle_laws(), Recycling(play, proven_all), _edits(recycle_mutants.MUTANTS)),
        Family(proof_policy_laws(), proof_policy(NAMES, size=8, hidden=8, blocks=1)),
    ]


def _transcripts() -> list[Family]:
    return [Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in transcript_families()]


def _worlds() -> list[Family]:
    limited = time_limit(cartpole(), LIMIT)
    return [
        Family(env_laws, cartpole()),
        Family(auto_reset_laws(limited), auto_reset(limited), _edits(wrapper_mutants.AUTO_RESET)),
        Family(time_limit_laws(cartpole(), LIMIT), limited, _edits(wrapper_mutants.TIME_LIMIT)),
        Family(kernel_laws(), tabular),
        Family(memory_laws(), rollout, _edits(memory_mutants.MUTANTS)),
    ]


def _objectives() -> list[Family]:
    return [
        Family(estimator_laws(), gae, _constant(estimator_mutants.MUTANTS)),
        Family(lambda_return_laws(), lambda_returns, _constant(return_mutants.LAMBDA_RETURNS)),
        Family(vtrace_laws(), vtrace, _constant(return_mutants.VTRACE)),
        Family(loss_laws(clipped=True), ppo_clip, _constant(loss_mutants.MUTANTS)),
        Family(masked_loss_laws(), loss_mutants.masked_reference, _constant(loss_mutants.MASKED)),
        Family(kl_laws(), k3, _constant(kl_mutants.MUTANTS)),
        Family(kl_laws(unbiased=False), k2),
        Family(link_prediction_laws(), link_prediction_loss, _edits(link_prediction_mutants.MUTANTS)),
    ]


def _languages() -> list[Family]:
    return [Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in language_families()]


def _token_objectives() -> list[Family]:
    return [Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in token_families()]


def _batches() -> list[Family]:
    return [Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in batch_families()]


def _optimizers() -> list[Family]:
    return [Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in optimizer_families()]


def _learner(model: ActorCritic) -> Algorithm:
    return a2c(model, adam(0.01), entropy_coefficient=0.0)


def _prober(model: ActorCritic) -> Algorithm:
    return ppo(model, adam(0.02), gamma=0.5, epochs=2, minibatches=2)


def _learners() -> list[Family]:
    observation, action = Box(-1.0, 1.0, (3,)), Discrete(2)
    module = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(module.weight, 0.5)
    torch.nn.init.constant_(module.bias, 0.25)
    return [
        Family(policy_laws(observation, action), actor_critic_mlp(observation, action, hidden=(8,))),
        Family(categorical_laws(), lambda logits: Categorical(logits=logits)),
        Family(module_laws(dyadic((2, 3))), (module, functional(module))),
        Family(update_laws(), _learner),
        Family(order_laws(), order, _edits(update_mutants.ORDERS)),
        Family(decoupled_update_laws(), decoupled_ppo, _edits(decoupled_update_mutants.MUTANTS)),
        Family(lagging_laws(), own_lagging, _edits(lagging_mutants.MUTANTS)),
        Family(probe_laws(gamma=0.5), _prober, night=True),
    ]


def _effects() -> list[Family]:
    return [
        Family(checkpoint_laws(), own_store(), _edits(checkpoint_mutants.MUTANTS)),
        Family(machine_laws(), fetcher()),
        *(Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in moving_families()),
        *(Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in engine_families()),
        *(Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in sharded_families()),
        *(Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in generating_families()),
        *(Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in scheduling_families()),
        *(Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in reporting_families()),
        *(Family(suite, subject, _edits(dict(edits))) for suite, subject, edits in ranks_families()),
    ]


def families() -> tuple[Family, ...]:
    """Every suite of this package with a subject and its mutants."""
    agents = _steps_and_folds() + _worlds() + _objectives() + _token_objectives() + _learners() + _effects()
    return tuple(agents + _logic() + _provers() + _transcripts() + _batches() + _optimizers() + _languages())
