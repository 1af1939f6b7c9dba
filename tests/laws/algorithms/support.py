"""Laws of sampler and learner together: the tokens of a policy at any temperature and top_p are scored as they were drawn.

The subject: `factory(model, optimizer)` returns a learner.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from purestep.algorithms.language.learner import LanguageAlgorithm
from purestep.algorithms.language.packing import SequenceLayout, packing
from purestep.core import keys
from purestep.core.decoding.decode import sampled
from purestep.core.language.types import Transcript
from purestep.core.record import replace
from purestep.core.transcript.calls import per_token
from purestep.properties.framework.compare import DOUBLE, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.learner import LENGTH, MODEL, Talks, params_of, talks
from purestep.properties.suites.learner import Factory, new_learner, prepared, with_functions

LIMITS = (0.3, 0.6, 1.0)

# --- mutants ---


def over_all_tokens(factory: Factory) -> Factory:
    """Score under the whole distribution, whatever was sampled from."""

    def make(*given: Any) -> LanguageAlgorithm:
        one = factory(*given)

        def forgotten(transcripts: Transcript) -> Transcript:
            return replace(transcripts, top_p=torch.ones_like(transcripts.top_p))

        return with_functions(
            one,
            read=lambda state, transcripts, *rest: one.read(state, forgotten(transcripts), *rest),
            prepare=lambda state, transcripts, reading: one.prepare(state, forgotten(transcripts), reading),
        )

    return make


def reads_all_tokens(factory: Factory) -> Factory:
    """Read proximal and reference policy over all tokens, and train within the nucleus."""

    def make(*given: Any) -> LanguageAlgorithm:
        one = factory(*given)
        return with_functions(one, read=over_all_tokens(lambda *_: one)(*given).read)

    return make


def one_for_all(factory: Factory) -> Factory:
    """Score every call within the nucleus of the least top_p."""

    def make(*given: Any) -> LanguageAlgorithm:
        one = factory(*given)

        def prepare(*rest: Any) -> Any:
            batch, state, figures = one.prepare(*rest)
            return replace(batch, top_p=torch.full_like(batch.temperature, min(LIMITS))), state, figures

        return with_functions(one, prepare=prepare)

    return make


MUTANTS: dict[str, Callable[[Factory], Factory]] = {"takes one top_p for all calls": one_for_all}


# --- laws ---


def support_laws(*, reads: bool = False) -> Suite:
    """The laws of a learner's support; `reads`: it compares with a policy that it reads before the update."""
    return Suite("support_laws", (_on_policy(), *((_reads(),) if reads else ())))


_law = law_constructor(talks, "Ionides 2008: a ratio is that of the policy sampled from", most=60)


def spoken(talk: Talks) -> Transcript:
    """Return the transcripts with tokens drawn from the model, one after the other, each call at its temperature and top_p."""
    said, params = talk.transcripts, params_of(talk)
    limits = torch.tensor(LIMITS)[(torch.arange(said.top_p.shape[1]) + talk.seed) % len(LIMITS)].expand(
        said.top_p.shape
    )
    heat, limit = per_token(said, said.temperature, 1.0), per_token(said, limits, 1.0)
    uniform = keys.uniform(keys.key(talk.seed), said.token.shape, dtype=torch.float64)
    token, log_prob = said.token.clone(), torch.zeros_like(said.behaviour_log_prob)
    for column in range(1, LENGTH):
        logits = MODEL.head(params, MODEL.apply(params, token, (), ()))[:, column - 1]
        for row in said.is_action[:, column].nonzero()[:, 0].tolist():
            draw = sampled(temperature=float(heat[row, column]), top_p=float(limit[row, column]))
            token[row, column], log_prob[row, column] = draw(uniform[row, column], logits[row])
    return replace(said, token=token, top_p=limits, behaviour_log_prob=log_prob, proximal_log_prob=log_prob.clone())


def _figures(factory: Factory, talk: Talks, seen: Seen) -> dict[str, Tensor]:
    """Return the figures of a first update on the policy's own samples, in packed rows."""
    said = spoken(talk)
    algorithm, state = new_learner(factory, talk)
    batch, state = prepared(algorithm, state, said)
    where = packing(batch.length.tolist(), LENGTH + 4, width=LENGTH)
    layout = SequenceLayout(places=batch.mask.flatten().nonzero()[:, 0], packing=where)
    gradients, sums = algorithm.gradient(state.params, batch, algorithm.counts(batch), layout)
    seen("tokens of a nucleus", (batch.mask & (per_token(said, said.top_p, 1.0) < 1)).any())
    _, figures = algorithm.apply(state, gradients, sums)
    return dict(figures)


def _on_policy() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        figures = _figures(factory, talk, seen)
        zero = torch.zeros((), dtype=torch.float64)
        for name in ("log_prob_difference", "approximate_kl", "clip_fraction", "outside_support"):
            same(name, figures[name], zero.to(figures[name].dtype), DOUBLE)

    mutant = ("scores over all tokens", over_all_tokens)
    claim = "Before any update the log-probs of a policy's own samples are the sampler's, at any temperature and top_p."
    return _law("on_policy", claim, mutant, check, "tokens of a nucleus")


def _reads() -> Law:
    def check(factory: Factory, talk: Talks, seen: Seen) -> None:
        figures = _figures(factory, talk, seen)
        zero = torch.zeros((), dtype=torch.float64)
        for name in ("kl", "approximate_kl"):
            same(name, figures[name], zero.to(figures[name].dtype), DOUBLE)
        require(figures["effective_fraction"] > 1 - 1e-9, f"weights differ: {figures['effective_fraction']}")

    mutant = ("reads other policies over all tokens", reads_all_tokens)
    claim = "Before any update divergences from reference and proximal policy are 0, and weights against the sampler 1."
    return _law("other_policies", claim, mutant, check, "tokens of a nucleus")
