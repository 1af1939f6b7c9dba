"""Conversations to learn from, drawn as whole transcripts, and their log-probs under a plainly written model."""

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...core import keys
from ...core.causal import CausalModel, Params
from ...core.language.types import Transcript
from ...core.record import replace
from ...core.transcript.calls import per_token
from ...core.transcript.log_probs import token_log_probs
from ...core.transcript.record import ABSENT, empty
from .tiny_causal import tiny_causal
from .values import POISON, dyadic, flags, integers, seeds

LENGTH, CALLS, VOCABULARY = 8, 4, 5
MODEL = tiny_causal(vocabulary=VOCABULARY)


@attrs.frozen
class Talks:
    """Transcripts [N] with numbers in float64, and the settings of the laws that use them."""

    transcripts: Transcript
    seed: int  # of the model's parameters
    poison: float
    more: int  # columns of padding to add


@st.composite
def talks(draw: DrawFn, sizes: tuple[int, ...] = (2, 4)) -> Talks:
    """Conversations of two groups, as many as one of `sizes`: up to four calls each, with own temperatures; a few are empty."""
    rows = draw(st.sampled_from(sizes))
    shape, place = (rows, LENGTH), torch.arange(LENGTH)
    length = draw(integers((rows,), 2, LENGTH + 1)) * (~draw(flags((rows,)))).long()
    speaks = (place > 0) & (place < length[:, None]) & ~draw(flags(shape))
    starts = speaks & ~torch.nn.functional.pad(speaks, (1, 0))[:, :-1]
    log_prob = torch.where(speaks, -draw(dyadic(shape, limit=2, dtype=torch.float64)).abs(), 0.0)
    heat = torch.tensor([1.0, 0.5, 2.0])[draw(integers((rows, CALLS), 0, 3))]
    truncated = draw(flags((rows,)))
    blank = empty(LENGTH, CALLS, id=torch.arange(rows), group=10 * draw(integers((rows,), 0, 2)) + 7)
    transcripts = replace(
        blank,
        token=draw(integers(shape, 0, VOCABULARY)) * (place < length[:, None]),
        is_action=speaks,
        behaviour_log_prob=log_prob,
        proximal_log_prob=log_prob.clone(),
        version=torch.where(speaks, draw(integers(shape, 0, 4)), ABSENT),
        call=torch.where(speaks, starts.cumsum(-1) - 1, ABSENT),
        length=length,
        calls=starts.sum(-1),
        temperature=heat.double(),
        reward=draw(dyadic((rows, CALLS), limit=2, dtype=torch.float64)),
        credit=draw(dyadic((rows, CALLS), limit=2, dtype=torch.float64)),
        terminated=~truncated,
        truncated=truncated,
    )
    return Talks(transcripts, draw(seeds()), draw(st.sampled_from(POISON)), draw(st.sampled_from((1, 3))))


def params_of(talk: Talks, model: CausalModel = MODEL) -> Params:
    """Return the policy's parameters."""
    return model.init(keys.key(talk.seed))


def heat_of(transcripts: Transcript) -> Tensor:
    """Return the temperature of each token: [N, L]."""
    return per_token(transcripts, transcripts.temperature, 1.0)


def sequence_logits(params: Params, token: Tensor) -> Tensor:
    """Return the logits of each sequence, computed in a batch of one: int [N, L] -> [N, L, V]."""
    rows = [MODEL.head(params, MODEL.apply(params, row[None], (), ())) for row in token]
    return torch.cat(rows)


def log_probs_of(params: Params, transcripts: Transcript) -> Tensor:
    """Return the policy's log-prob of each token: [N, L]."""
    return token_log_probs(
        sequence_logits(params, transcripts.token), transcripts.token, temperature=heat_of(transcripts)
    )


def on_policy(talk: Talks) -> Talks:
    """Return the same with the policy's own log-probs, as if it had sampled the tokens."""
    own = log_probs_of(params_of(talk), talk.transcripts).detach()
    said = torch.where(talk.transcripts.is_action, own, 0.0)
    changed = replace(talk.transcripts, behaviour_log_prob=said, proximal_log_prob=said.clone())
    return attrs.evolve(talk, transcripts=changed)
