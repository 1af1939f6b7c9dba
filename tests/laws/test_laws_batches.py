"""Credit, advantages over tokens, micro-batches, packing and cuts obey their laws, and are steps."""

from functools import partial

import torch
from hypothesis import strategies as st
from torch import Tensor

from purestep.algorithms.language import credit
from purestep.algorithms.language.advantages import token_gae
from purestep.algorithms.language.group_advantages import rloo_advantages
from purestep.algorithms.language.packing import (
    Packing,
    micro_batches,
    pack,
    packed_log_probs,
    packing,
    segment_mask,
    shards,
    unpack,
)
from purestep.core.language.types import Transcript
from purestep.core.transcript.edit import Cut, cut_to
from purestep.properties import (
    ROUNDING,
    check,
    credit_laws,
    dyadic,
    flags,
    from_record,
    integers,
    step_laws,
    token_gae_laws,
)
from purestep.properties.framework.families import own_crediting

from .algorithms.families import own_packer
from .algorithms.micro_batch import Batching, micro_batch_laws
from .algorithms.packing import packing_laws
from .core.transcript_cut import transcript_cut_laws

test_credit = check(credit_laws(), own_crediting())
test_token_gae = check(token_gae_laws(nan_padding=True), token_gae)
test_micro_batches = check(micro_batch_laws(), Batching(micro_batches, shards))
test_packing = check(packing_laws(), own_packer())
test_cuts = check(transcript_cut_laws(), cut_to)

N, C, L = 2, 3, 4


def credits(reward: Tensor, calls: Tensor, group: Tensor, transcript: Transcript) -> tuple[Tensor, ...]:
    """All credits, and what they come to at tokens."""
    estimator = partial(rloo_advantages, groups=1)
    found = (
        credit.own_rewards(reward, calls),
        credit.episode(reward, calls),
        credit.monte_carlo(reward, calls, gamma=0.5),
        credit.group(reward, calls, group, estimator=estimator),
    )
    return (*found, *(credit.token_credit(transcript, one) for one in found))


def advantages(*columns: Tensor) -> Tensor:
    """Over sampled tokens, with a discount of its own."""
    *given, gamma = columns
    return token_gae(*given, gamma=gamma, lambda_=0.5)


def learned(where: Packing, tokens: Tensor, logits: Tensor) -> tuple[Tensor, ...]:
    """Columns into rows, scores out of them."""
    packed = pack(where, tokens)
    scores = packed_log_probs(where, logits, packed)
    return packed, segment_mask(where.segment), unpack(where, scores)


def shorter(transcript: Transcript) -> Cut:
    """Three tokens at most."""
    return cut_to(transcript, 3)


written = from_record(Transcript, B=N, L=L, C=C, call=integers((N, L), -1, C), length=integers((N,), 0, L + 1))
rewards = st.tuples(dyadic((N, C)), integers((N,), 0, C + 1), integers((N,), -1, 1), written)
talks = st.tuples(dyadic((N, L)), dyadic((N, L)), flags((N, L)), dyadic((N,)), flags((N,)), st.just(torch.tensor(0.5)))
places = st.builds(partial(packing, capacity=5, width=L), st.sampled_from(((3, 2), (0, 4), (1, 1))))
packs = st.tuples(places, integers((N, L), 0, 3), dyadic((1, 5, 3), limit=2))
test_credits_as_a_step = check(step_laws(rewards, tolerance=ROUNDING), credits)
test_advantages_as_a_step = check(step_laws(talks, tolerance=ROUNDING), advantages)
test_packing_as_a_step = check(step_laws(packs, tolerance=ROUNDING), learned)
test_cutting_as_a_step = check(step_laws(written.map(lambda one: (one,))), shorter)
