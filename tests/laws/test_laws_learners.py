"""Learners from transcripts obey their laws, whatever the objective; decoupled losses, scores and columns do too."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from purestep.algorithms.importance import truncated_weights
from purestep.algorithms.language import objectives
from purestep.algorithms.language.batch import overlong_penalty
from purestep.algorithms.language.learner import LanguageAlgorithm, LanguageState
from purestep.algorithms.language.objectives import by_token, dual_clipped
from purestep.algorithms.language.scoring import score_tokens
from purestep.core.language.types import Transcript
from purestep.core.optim.optimizers import adamw
from purestep.core.record import replace
from purestep.properties import ROUNDING, Suite, check, learner_laws, step_laws
from purestep.properties.strategies.learner import MODEL, talks
from purestep.properties.suites.aggregate import WEIGHTS
from purestep.properties.suites.learner import learning, new_learner

from .algorithms.column import column_laws
from .algorithms.decoupled import decoupled_laws
from .algorithms.families import own_anchoring, own_columns
from .algorithms.scoring import scoring_laws
from .algorithms.support import support_laws

test_decoupled = check(decoupled_laws(), own_anchoring())
test_columns = check(column_laws(), own_columns())
test_scores = check(scoring_laws(), score_tokens)

TOKENS, SEQUENCES = WEIGHTS["token_mean"], WEIGHTS["sequence_mean"]
LENGTH = 6.0


def sums(lengths: Tensor) -> Tensor:
    """The mean over sequences of their sums."""
    return torch.ones_like(lengths) / (lengths > 0).sum().clamp(min=1)


def of_constant_length(lengths: Tensor) -> Tensor:
    return sums(lengths) / LENGTH


def most_telling(suite: Suite) -> Suite:
    """For objectives that share all but their advantage, loss and reduction with others, which obey the whole suite."""
    return suite - ({law.name for law in suite} - {"split", "on_policy", "composed"})


weights = partial(truncated_weights, high=2.0)
full = {"kl_in_loss": 0.5, "proximal": "recomputed", "correction": weights}
critic = {"value_coefficient": 0.0, "truncated": "bootstrap", "kl_in_reward": 0.25}
overlong = partial(overlong_penalty, limit=6, buffer=3)
punished = objectives.dapo(overlong=overlong)
backwards = objectives.reinforce(baseline="leave_one_out", credit="monte_carlo")
written = objectives.credited(dual_clipped(0.25, c=2.0), by_token)

test_reinforce = check(learner_laws(sums, grouped=False), learning(objectives.reinforce()))
test_grpo = check(learner_laws(SEQUENCES), learning(objectives.grpo(clip=0.25), **full))
test_dapo = check(most_telling(learner_laws(TOKENS)), learning(objectives.dapo()))
test_ppo = check(learner_laws(TOKENS, grouped=False), learning(objectives.ppo(lambda_=0.5), **critic))

test_leave_one_out = check(most_telling(learner_laws(sums, grouped=False)), learning(backwards, truncated="drop"))
test_rloo = check(most_telling(learner_laws(sums)), learning(objectives.rloo()))
test_dr_grpo = check(most_telling(learner_laws(of_constant_length)), learning(objectives.dr_grpo(length=LENGTH)))
test_punished = check(most_telling(learner_laws(TOKENS)), learning(punished, truncated="mask"))
test_gspo = check(most_telling(learner_laws(SEQUENCES)), learning(objectives.gspo(clip=0.25)))
test_cispo = check(most_telling(learner_laws(TOKENS)), learning(objectives.cispo(), proximal="interpolated"))
test_credited = check(most_telling(learner_laws(TOKENS, grouped=False)), learning(written))

test_support = check(support_laws(), learning(objectives.grpo(clip=0.25)))
test_support_of_a_critic = check(support_laws(), learning(objectives.ppo(lambda_=0.5), **critic))
test_support_of_other_policies = check(support_laws(reads=True), learning(objectives.dr_grpo(length=LENGTH), **full))
test_support_between = check(support_laws(), learning(objectives.cispo(), proximal="interpolated"))

compared = learning(objectives.grpo(clip=0.25))(MODEL, adamw(0.01))
everything = learning(
    objectives.ppo(), truncated="bootstrap", kl_in_loss=0.1, kl_in_reward=0.1, entropy_coefficient=0.1, value_clip=0.5
)(MODEL, adamw(0.01))


def lessons(algorithm: LanguageAlgorithm) -> SearchStrategy[tuple[LanguageState, Transcript]]:
    """What an update takes."""

    def lesson(talk: Any) -> tuple[LanguageState, Transcript]:
        _, state = new_learner(lambda model, _: algorithm, talk)
        return replace(state, step=state.step + 2), talk.transcripts

    return talks((3,)).map(lesson)


COMPILED = {"compiled_is_eager": "in the slow set, with all options"}

test_update_as_a_step = check(step_laws(lessons(compared), tolerance=ROUNDING, carry=0), compared.update, skip=COMPILED)
test_full_update_as_a_step = pytest.mark.slow(
    check(step_laws(lessons(everything), tolerance=ROUNDING, carry=0), everything.update)
)
