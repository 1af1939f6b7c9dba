"""The suites about losses of tokens, each beside a subject that obeys it and edits beyond those its laws name themselves."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..algorithms.aggregate import sequence_count, sequence_mean, token_count, token_mean
from ..algorithms.group_advantages import grpo_advantages, rloo_advantages
from ..algorithms.importance import masked_weights, truncated_weights
from ..algorithms.policy_losses import ppo_clip
from ..algorithms.token_losses import cispo, dual_clip, gspo
from . import aggregate_mutants, group_mutants, importance_mutants, token_loss_mutants
from .aggregate_laws import WEIGHTS, aggregate_laws
from .aggregate_mutants import Reduction
from .group_laws import group_laws
from .importance_laws import importance_laws
from .law import Subject, Suite
from .learner_families import learner_families
from .token_loss_laws import as_token_loss, token_loss_laws

Edits = Mapping[str, Callable[[Any], Any]]


def token_families() -> list[tuple[Suite, Subject, Edits]]:
    """One subject for each way a suite can be asked for that changes its laws."""
    truncated = partial(truncated_weights, low=0.5, high=2.0)
    geometric = partial(masked_weights, low=0.5, high=2.0, level="geometric")
    reductions = {
        "token_mean": Reduction(token_mean, token_count),
        "sequence_mean": Reduction(sequence_mean, sequence_count),
    }
    losses = [
        (token_loss_laws(token_loss_mutants.dual_step), as_token_loss(dual_clip, clip=0.25, c=2.0)),
        (token_loss_laws(token_loss_mutants.cispo_step), as_token_loss(cispo, low=0.5, high=2.0)),
        (token_loss_laws(partial(ppo_clip, clip=0.25), level="sequence"), as_token_loss(gspo, clip=0.25)),
    ]
    weights = [
        (importance_laws(low=0.5, high=2.0), truncated),
        (importance_laws(low=0.5, high=2.0, level="geometric", outside="zero"), geometric),
    ]
    return [
        (group_laws(), grpo_advantages, group_mutants.MUTANTS),
        (group_laws(centre="leave_one_out", scaled=False), rloo_advantages, group_mutants.MUTANTS),
        *[(aggregate_laws(WEIGHTS[name]), one, aggregate_mutants.MUTANTS) for name, one in reductions.items()],
        *[(suite, loss, token_loss_mutants.MUTANTS) for suite, loss in losses],
        *[(suite, weighting, importance_mutants.MUTANTS) for suite, weighting in weights],
        *learner_families(),
    ]
