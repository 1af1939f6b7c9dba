"""A policy over successor states: it compares the state with each of its successors, for any number of them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import keys
from ..distributions import Distribution, masked
from ..errors import choose
from ..keys import Key
from ..networks import Linear, Network, init_linear
from ..policy import ActorCritic
from ..record import record
from ..tree import tree_map
from .embedding import state_embedding
from .terms import Vocabulary


@record
class Residual:
    """The parameters of a residual perceptron."""

    first: Linear  # from the input's size to the hidden size
    blocks: tuple[Linear, ...]
    last: Linear  # to the output's size


@record
class ProofParams:
    """The parameters of a `proof_policy`."""

    embedding: Any
    policy: Residual
    value: Residual


def residual(inputs: int, hidden: int, outputs: int, blocks: int) -> Network:
    """Return a residual perceptron: [*, inputs] -> [*, outputs].

    x_0 = x W_in + b, x_{k+1} = x_k + norm(relu(x_k W_k + b_k)), y = x_n W_out + b
    `norm` normalises each vector to mean 0 and variance 1, without parameters. Source: He et al. 2015, arXiv:1512.03385.

    >>> network = residual(3, 8, 2, 1)
    >>> network.apply(network.init(keys.key(0)), torch.ones(5, 3)).shape
    torch.Size([5, 2])
    """

    def init(key: Key) -> Residual:
        first, last, *between = keys.split(key, blocks + 2)
        return Residual(
            first=init_linear(first, inputs, hidden, 1.0),
            blocks=tuple(init_linear(block, hidden, hidden, 2.0**0.5) for block in between),
            last=init_linear(last, hidden, outputs, 1.0),
        )

    def apply(params: Residual, x: Tensor) -> Tensor:
        x = x @ params.first.weight + params.first.bias
        for block in params.blocks:
            x = x + F.layer_norm(torch.relu(x @ block.weight + block.bias), x.shape[-1:])
        return x @ params.last.weight + params.last.bias

    return Network(init=init, apply=apply)


def proof_policy(
    names: Vocabulary,
    *,
    size: int = 64,
    hidden: int = 64,
    blocks: int = 2,
    temperature: float = 0.1,
    form: str = "transe",
    pool: str = "mean",
    embeddings: str = "learnt",
) -> ActorCritic:
    """Return an actor-critic for `ProofObservation`, with residual perceptrons f and g on the embeddings of states.

    logit_i = <f(s) / |f(s)|, f(s_i) / |f(s_i)|> / temperature,    V = g(s)

    for the state s and its successors s_i. So the policy has as many actions as there are successors, and is equivariant to
    their order. V depends on the state only. With `embeddings` "fixed" they get no gradient, for embeddings that were trained
    before, e.g. by `link_prediction`. Raises: ChoiceError.

    >>> from .env import ProofObservation
    >>> from .terms import vocabulary
    >>> model = proof_policy(vocabulary(["p"], ["a"], variables=1))
    >>> seen = ProofObservation(sub_index=torch.tensor([[1, 1, 2]]), derived_sub_indices=torch.tensor([[[1, 1, 1]]]),
    ...                         action_mask=torch.tensor([True]))
    >>> model.apply(model.init(keys.key(0)), seen, ())[0].log_prob(torch.tensor(0)) == 0
    tensor(True)
    """
    passed = choose("proof_policy: embeddings", embeddings, {"learnt": lambda leaf: leaf, "fixed": torch.Tensor.detach})
    embed = state_embedding(names, size, form=form, pool=pool)
    body, critic = residual(size, hidden, size, blocks), residual(size, hidden, 1, blocks)

    def init(key: Key) -> ProofParams:
        first, second, third = keys.split(key, 3)
        return ProofParams(embedding=embed.init(first), policy=body.init(second), value=critic.init(third))

    def apply(params: ProofParams, observation: Any, carry: Any) -> tuple[Distribution, Tensor, Any]:
        embedding = tree_map(passed, params.embedding)
        state = embed.apply(embedding, observation.sub_index)
        following = embed.apply(embedding, observation.derived_sub_indices)
        here, there = (F.normalize(body.apply(params.policy, each), dim=-1) for each in (state, following))
        logits = (here[..., None, :] * there).sum(-1) / temperature
        value = critic.apply(params.value, state)[..., 0]
        return masked(logits, observation.action_mask), value, carry

    return ActorCritic(init=init, apply=apply)
