"""The suites about learning from transcripts, each beside subjects that obey it and further edits."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..algorithms import language_objectives as objectives
from ..algorithms.decoupled import decoupled_clip, interpolated, interpolation
from ..algorithms.importance import truncated_weights
from ..algorithms.language import LanguageAlgorithm, learner
from ..algorithms.language_objectives import Objective
from ..algorithms.token_batch import counts, numbered, token_batch, token_rewards
from ..algorithms.token_policy import scored
from ..core.causal import CausalModel
from ..core.optim import Optimizer
from . import column_mutants, decoupled_mutants, learner_mutants, scoring_mutants
from .aggregate_laws import WEIGHTS
from .column_laws import column_laws
from .column_mutants import Columns
from .decoupled_laws import decoupled_laws
from .decoupled_mutants import Anchoring
from .law import Subject, Suite
from .learner_laws import learner_laws
from .learner_mutants import Factory
from .scoring_laws import scoring_laws

Edits = Mapping[str, Callable[[Any], Any]]


def learning(objective: Objective, **choices: Any) -> Factory:
    """What the laws of learners judge: a learner of that objective, of whatever model they give.

    >>> learning(objectives.grpo()).__name__
    'make'
    """

    def make(model: CausalModel, optimizer: Optimizer) -> LanguageAlgorithm:
        return learner(model, optimizer, objective, **choices)

    return make


def own_anchoring() -> Anchoring:
    """Our own decoupled clip and proximal log-probs."""
    return Anchoring(decoupled_clip, interpolation, interpolated)


def own_columns() -> Columns:
    """Our own columns of transcripts."""
    return Columns(token_batch, token_rewards, numbered, counts)


def learner_families() -> list[tuple[Suite, Subject, Edits]]:
    """The learner is one of groups with everything that needs a reading."""
    weights = partial(truncated_weights, high=2.0)
    full = {"kl_in_loss": 0.5, "proximal": "recomputed", "correction": weights}
    grpo = learning(objectives.grpo(clip=0.25), **full)
    return [
        (decoupled_laws(), own_anchoring(), decoupled_mutants.MUTANTS),
        (column_laws(), own_columns(), column_mutants.MUTANTS),
        (scoring_laws(), scored, scoring_mutants.MUTANTS),
        (learner_laws(WEIGHTS["sequence_mean"]), grpo, learner_mutants.MUTANTS),
    ]
