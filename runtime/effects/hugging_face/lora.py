"""LoRA for a causal model: its parameters are two low-rank factors for each of some matrices.

W' = W + (alpha / rank) B A,   A [rank, in], B [out, rank]

B is initialised with zeros, so at first nothing changes. The matrices themselves are frozen: gradients, optimiser states and
checkpoints hold the factors alone. Source: Hu et al. 2021, arXiv:2106.09685.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from attrs import frozen
from torch import Tensor

from ....core import keys
from ....core.causal import Cache, CausalModel
from ....core.errors import ChoiceError, message
from ....core.keys import Key
from ....core.record import record, tensor

Params = Mapping[str, Tensor]
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


@record
class Factors:
    """The trained factors of one matrix."""

    a: Tensor = tensor("* rank inputs", "float")
    b: Tensor = tensor("* outputs rank", "float")


Adapters = dict[str, Factors]


@frozen
class Lora:
    """`model` has adapters as parameters; `merged(adapters)` are all parameters of the base model.

    The model merges at every call, which costs a product of the factors for each matrix: to sample many tokens, pass
    `merged(adapters)` to the base model.
    """

    model: CausalModel
    merged: Callable[[Adapters], dict[str, Tensor]]


def with_lora(
    model: CausalModel,
    params: Params,
    *,
    rank: int,
    alpha: float,
    targets: Sequence[str] = ATTENTION,
    dtype: torch.dtype | tuple[()] = (),
) -> Lora:
    """Return the model whose only parameters are the factors of the matrices named `targets`.

    A target is a name without its ".weight", or the last word of one. `dtype` is that of the factors, by default their
    matrix's: small updates are lost in dtypes of low precision, so for bfloat16 matrices take float32. Merged matrices keep
    their dtype. Raises: ChoiceError for a rank below 1 and for a target that no matrix has.
    """
    names = _chosen(params, targets)
    if rank < 1:
        raise ChoiceError(message("with_lora: rank", got=rank, wanted="at least 1", remedy="8 or 16 are usual"))
    scale = alpha / rank

    def init(key: Key) -> Adapters:
        drawn = zip(names, keys.split(key, len(names)), strict=True)
        return {name: _begun(one, params[name], rank, dtype or params[name].dtype) for name, one in drawn}

    def merged(adapters: Adapters) -> dict[str, Tensor]:
        learned = {
            name: (params[name] + scale * (one.b @ one.a)).to(params[name].dtype) for name, one in adapters.items()
        }
        return {**params, **learned}

    def begin(adapters: Adapters, rows: int, capacity: int) -> Cache:
        return model.begin(merged(adapters), rows, capacity)

    adapted = CausalModel(
        init=init,
        apply=lambda adapters, tokens, position, mask: model.apply(merged(adapters), tokens, position, mask),
        head=lambda adapters, hidden: model.head(merged(adapters), hidden),
        begin=begin,
        extend=lambda adapters, cache, tokens, position: model.extend(merged(adapters), cache, tokens, position),
        vocabulary=model.vocabulary,
        width=model.width,
        window=model.window,
    )
    return Lora(model=adapted, merged=merged)


def _chosen(params: Params, targets: Sequence[str]) -> list[str]:
    """Return the names of the matrices that the targets match, in the order of the parameters."""
    matrices = [name for name, value in params.items() if value.ndim == 2 and name.endswith(".weight")]
    meant = {
        target: [name for name in matrices if f".{name.removesuffix('.weight')}".endswith(f".{target}")]
        for target in targets
    }
    missing = [target for target, names in meant.items() if not names]
    if missing or not targets:
        words = sorted({name.removesuffix(".weight").rpartition(".")[2] for name in matrices})
        got = missing or "empty"
        raise ChoiceError(message("with_lora: targets", got=got, wanted=f"some of {words}", remedy="name matrices"))
    chosen = {name for names in meant.values() for name in names}
    return [name for name in matrices if name in chosen]


def _begun(key: Key, weight: Tensor, rank: int, dtype: torch.dtype) -> Factors:
    """Return the initial factors: A uniform within 1 / sqrt(in), B zero."""
    outputs, inputs = weight.shape
    uniform = 2.0 * keys.uniform(key, (rank, inputs)) - 1.0
    return Factors(a=(uniform * inputs**-0.5).to(weight.device, dtype), b=weight.new_zeros(outputs, rank, dtype=dtype))
