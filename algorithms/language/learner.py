"""The learner from transcripts: one for all objectives, whose update can also be computed in parts of a batch.

    algorithm = learner(model, adamw(1e-3), grpo(clip=0.2))
    state = algorithm.init(params)
    state, figures = algorithm.update(state, transcripts)

`update` composes the other functions on one batch. The same numbers result from parts (micro-batches or packed rows, on one
machine or several):

    reading = algorithm.read(state, transcripts)                        in parts; empty for most objectives
    batch, state, figures = algorithm.prepare(state, transcripts, reading)           whole: groups are compared
    counts = algorithm.counts(batch)                                                 whole: denominators
    gradients, sums = algorithm.gradient(state.params, part, counts)    in parts, to be summed
    state, more = algorithm.apply(state, gradients, sums)
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from attrs import frozen
from torch import Tensor

from ...core.causal import CausalModel
from ...core.errors import ChoiceError, choose, message
from ...core.language.types import Counts, TokenBatch, Transcript
from ...core.optim.interface import Optimizer, check_optimizer
from ...core.optim.optimizers import apply_updates, global_norm
from ...core.record import record, replace, select, tensor
from ...core.tree import clone, leaves
from ..algorithm import Metrics
from ..hyperparameters import Number, check_coefficients, check_number
from ..kl import Estimator, k1, k3
from .batch import FIGURES as BATCH_FIGURES
from .batch import Handling, Reading, count_tokens, learned_from, teaches, token_batch
from .loss import FIGURES as LOSS_FIGURES
from .loss import Sums, Terms, Weights, farthest, figures_of, language_loss
from .objectives import Objective
from .packing import Layout
from .scoring import LearnerParams, Scores, score_tokens, value_head

METRICS = (*BATCH_FIGURES, *LOSS_FIGURES, "gradient_norm")
METRICS_OF = {"sampled": METRICS, "whole": tuple(name for name in METRICS if name != "outside_support")}  # by support
TREATMENTS = ("keep", "mask", "down_weight", "drop", "bootstrap")


@record
class LanguageState:
    """The state of a learner between updates."""

    params: LearnerParams
    optimizer: Any  # the optimiser's state
    step: Tensor = tensor("*", "int")  # number of parameter updates, which is the version of these weights
    memory: Any = ()  # [1] the running baseline, if there is one
    reference: Any = ()  # parameters of the reference policy


class LanguageAlgorithm(Protocol):
    """A learner as one value; the module's docstring shows the order in which its functions are called.

    A `layout` is that of the part's sequences in the model's input; () is one row for each.
    """

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields that `read` fills; if empty, `read` need not be called."""
        ...

    @property
    def support(self) -> str:
        """The support of the policy: the tokens "sampled" from, by top_p, or the "whole" vocabulary."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics that `update` returns, in that order."""
        ...

    def init(self, policy: Any) -> LanguageState:
        """Return the state before the first update, of the policy's parameters."""
        ...

    def read(self, state: LanguageState, transcript: Transcript, layout: Layout = ()) -> Reading:
        """Return what `prepare` needs of the model."""
        ...

    def prepare(
        self, state: LanguageState, transcript: Transcript, reading: Reading
    ) -> tuple[TokenBatch, LanguageState, Metrics]:
        """Return the batch of transcripts, the state with the memory after them, and their metrics."""
        ...

    def counts(self, batch: TokenBatch) -> Counts:
        """Return the denominators of a whole batch."""
        ...

    def loss(self, params: LearnerParams, part: TokenBatch, whole: Counts, layout: Layout = ()) -> tuple[Tensor, Sums]:
        """Return the loss of a part, which `gradient` differentiates."""
        ...

    def gradient(
        self, params: LearnerParams, part: TokenBatch, whole: Counts, layout: Layout = ()
    ) -> tuple[LearnerParams, Sums]:
        """Return the gradient of a part, and its contribution to the metrics."""
        ...

    def distance(self, params: LearnerParams, part: TokenBatch, layout: Layout = ()) -> Tensor:
        """Return the largest |log-prob - sampler's| in the mask."""
        ...

    def apply(self, state: LanguageState, gradients: LearnerParams, sums: Sums) -> tuple[LanguageState, Metrics]:
        """Return the state after the optimiser's step, and the metrics."""
        ...

    def update(self, state: LanguageState, transcript: Transcript) -> tuple[LanguageState, Metrics]:
        """Return the state after one update with all transcripts at once, and the metrics."""
        ...


@frozen(kw_only=True)
class Learner:
    """A `LanguageAlgorithm` that computes all of a part at once, in this process."""

    model: CausalModel
    optimizer: Optimizer
    objective: Objective
    handling: Handling
    terms: Terms
    reads: tuple[str, ...]
    denominators: str
    support: str

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics that `update` returns, in that order."""
        return METRICS_OF[self.support]

    def init(self, policy: Any) -> LanguageState:
        """Return the state before the first update."""
        like = next(leaf for leaf in leaves(policy) if leaf.is_floating_point())
        params = LearnerParams(policy=policy, critic=value_head(self.model, like) if self.objective.critic else ())
        start = self.objective.memory
        return LanguageState(
            params=params,
            optimizer=self.optimizer.init(params),
            step=torch.zeros((), dtype=torch.int64, device=like.device),
            memory=() if isinstance(start, tuple) else torch.full((1,), start, dtype=torch.float32, device=like.device),
            reference=clone(policy) if "reference_log_prob" in self.reads else (),
        )

    def read(self, state: LanguageState, transcript: Transcript, layout: Layout = ()) -> Reading:
        """Return log-probs and values under the weights of a state, and log-probs under those of the reference."""
        found: dict[str, Any] = {}
        columns = token_batch(transcript, of=self.support)
        given = columns.token, columns.length, columns.temperature
        if {"log_prob", "values"} & set(self.reads):
            own = score_tokens(self.model, state.params, *given, top_p=columns.top_p, layout=layout)
            found = {"log_prob": own.log_prob, "values": own.values, "beyond": own.beyond}
        if "reference_log_prob" in self.reads:
            stand = LearnerParams(policy=state.reference)
            other = score_tokens(self.model, stand, *given, top_p=columns.top_p, layout=layout)
            found["reference_log_prob"] = other.log_prob
        return Reading(**{name: found[name].detach() for name in self.reads})

    def prepare(
        self, state: LanguageState, transcript: Transcript, reading: Reading
    ) -> tuple[TokenBatch, LanguageState, Metrics]:
        """Return the batch of transcripts, the state with the memory after them, and their metrics."""
        given = transcript, reading, state.memory, state.step
        batch, memory, figures = learned_from(self.objective, self.handling, *given, support=self.support)
        return batch, replace(state, memory=memory), figures

    def counts(self, batch: TokenBatch) -> Counts:
        """Return the denominators of a whole batch."""
        return count_tokens(batch, of=self.denominators)

    def loss(self, params: LearnerParams, part: TokenBatch, whole: Counts, layout: Layout = ()) -> tuple[Tensor, Sums]:
        """Return the loss of a part, and its contribution to the metrics."""
        return language_loss(self.terms, self._scores(params, part, layout), part, whole)

    def gradient(
        self, params: LearnerParams, part: TokenBatch, whole: Counts, layout: Layout = ()
    ) -> tuple[LearnerParams, Sums]:
        """Return the gradient of `loss`, and the contribution to the metrics."""

        def loss(params: LearnerParams) -> tuple[Tensor, Sums]:
            return self.loss(params, part, whole, layout)

        gradients, sums = torch.func.grad(loss, has_aux=True)(params)
        return gradients, sums

    def distance(self, params: LearnerParams, part: TokenBatch, layout: Layout = ()) -> Tensor:
        """Return the largest |log-prob - sampler's| in the mask."""
        return farthest(self._scores(params, part, layout).log_prob, part)

    def apply(self, state: LanguageState, gradients: LearnerParams, sums: Sums) -> tuple[LanguageState, Metrics]:
        """Return the state after the optimiser's step, and the metrics."""
        updates, optimizer = self.optimizer.update(gradients, state.optimizer, state.params)
        params = apply_updates(state.params, updates)
        after = replace(state, params=params, optimizer=optimizer, step=state.step + 1)
        figures = {name: value for name, value in figures_of(sums).items() if name in self.metrics}
        return after, {**figures, "gradient_norm": global_norm(gradients)}

    def update(self, state: LanguageState, transcript: Transcript) -> tuple[LanguageState, Metrics]:
        """Return the state after one update with all transcripts at once, and the metrics."""
        reading = self.read(state, transcript) if self.reads else Reading()
        batch, state, figures = self.prepare(state, transcript, reading)
        gradients, sums = self.gradient(state.params, batch, self.counts(batch))
        after, more = self.apply(state, gradients, sums)
        return select(teaches(batch), after, state), {**figures, **more}

    def _scores(self, params: LearnerParams, part: TokenBatch, layout: Layout) -> Scores:
        # Outside the mask a temperature may have any value, and a division by 0 would leave NaN in the gradient.
        heat = torch.where(part.mask, part.temperature, 1.0)
        top_p = torch.where(part.mask, part.top_p, 1.0) if isinstance(part.top_p, Tensor) else ()
        return score_tokens(self.model, params, part.token, part.length, heat, top_p=top_p, layout=layout)


def learner(
    model: CausalModel,
    optimizer: Optimizer,
    objective: Objective,
    *,
    truncated: str = "keep",
    down_weight: Number = 0.5,
    denominators: str = "counted",
    proximal: str = "recorded",
    support: str = "sampled",
    correction: Weights | tuple[()] = (),
    kl_in_loss: Number = 0.0,
    kl_in_loss_estimator: Estimator = k3,
    kl_in_reward: Number = 0.0,
    kl_in_reward_estimator: Estimator = k1,
    entropy_coefficient: Number = 0.0,
    value_coefficient: Number = 0.5,
    value_clip: Number = math.inf,
) -> LanguageAlgorithm:
    """Return a learner from transcripts for an objective of `objectives`.

    `truncated` is the treatment of truncated samples: "keep", "mask", "down_weight", "drop" (see `counted`), or "bootstrap"
    from a critic. `denominators`: the tokens "counted" in the loss or all that were "sampled", see `counts`. `proximal` is
    the policy near which an update stays: "recorded" in the transcripts (the sampler's log-probs unless others were
    written); "recomputed" under the weights before the update; "interpolated" between the two by versions.
    `support`: the policy that is trained is the one "sampled" from, at the temperature and within the nucleus of each call's
    top_p, by which current, proximal and reference policy are scored alike, each within its own nucleus and the token that was
    sampled; or the distribution over the "whole" vocabulary, which gives the same bits at top_p 1 and spares the sorting.
    `correction` is an importance weight of the proximal policy against the sampler: `partial(truncated_weights, high=2.0)`.
    It needs proximal="recomputed", or transcripts with proximal log-probs written into them: by default the recorded ones
    are the sampler's own, and every weight is 1.
    If all advantages are 0, and all values equal their targets, no update is made, not even for divergences and entropy.
    The reference of the divergences is the policy passed to `init`; `replace(state, reference=...)` sets another.
    Gradient clipping and schedules belong to the optimiser. Raises: ChoiceError.

    >>> from ...core.optim.optimizers import sgd
    >>> from .objectives import grpo
    >>> def none(*arguments):
    ...     return torch.zeros(0)
    >>> model = CausalModel(init=none, apply=none, head=none, begin=none, extend=none, vocabulary=2, width=3, window=4)
    >>> learner(model, sgd(0.1), grpo()).reads, learner(model, sgd(0.1), grpo(), kl_in_loss=0.1).reads
    ((), ('reference_log_prob',))
    """
    _check(objective, truncated, denominators, proximal, {"kl_in_loss": kl_in_loss, "kl_in_reward": kl_in_reward})
    choose("learner: support", support, METRICS_OF)
    check_optimizer(optimizer)
    check_coefficients("learner", entropy_coefficient=entropy_coefficient, value_coefficient=value_coefficient)
    check_number("learner: value_clip", value_clip, 0.0)
    check_number("learner: down_weight", down_weight, 0.0, 1.0)
    return Learner(
        model=model,
        optimizer=optimizer,
        objective=objective,
        handling=Handling(
            truncated=truncated,
            down_weight=down_weight,
            proximal=proximal,
            kl_in_reward=kl_in_reward,
            kl_in_reward_estimator=kl_in_reward_estimator,
        ),
        terms=Terms(
            loss=objective.loss,
            reduce=objective.reduce,
            outside=objective.outside,
            correction=correction,
            kl_coefficient=kl_in_loss,
            kl_estimator=kl_in_loss_estimator,
            entropy_coefficient=entropy_coefficient,
            value_coefficient=value_coefficient,
            value_clip=value_clip,
        ),
        reads=_reads(objective, proximal, kl_in_loss, kl_in_reward),
        denominators=denominators,
        support=support,
    )


def _check(
    objective: Objective, truncated: str, denominators: str, proximal: str, numbers: Mapping[str, Number]
) -> None:
    choose("learner: truncated", truncated, dict.fromkeys(TREATMENTS))
    choose("learner: denominators", denominators, dict.fromkeys(("counted", "sampled")))
    choose("learner: proximal", proximal, dict.fromkeys(("recorded", "recomputed", "interpolated")))
    for name, number in numbers.items():
        check_number(f"learner: {name}", number, 0.0)
    if truncated == "bootstrap" and not objective.critic:
        wanted, remedy = "one of " + ", ".join(TREATMENTS[:-1]), "bootstrap with ppo, which has a critic"
        raise ChoiceError(message("learner: truncated", got="'bootstrap'", wanted=wanted, remedy=remedy))


def _reads(objective: Objective, proximal: str, *divergences: Number) -> tuple[str, ...]:
    # The forward pass that computes values computes log-probs as well.
    names = ["log_prob"] if proximal == "recomputed" or objective.critic else []
    names += ["reference_log_prob"] if any(isinstance(each, Tensor) or each != 0 for each in divergences) else []
    return (*names, *(("values", "beyond") if objective.critic else ()))
