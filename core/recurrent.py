"""Cells with memory as pure functions, and the actor-critic of an encoder, a cell and two heads.

A cell is `(params, x [*, D], memory) -> (y [*, H], memory)`; the memory is a tree of tensors, passed in and returned.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor

from . import keys
from .distributions import Distribution, illegal
from .errors import ShapeError, StructureError, at_least, choose, message
from .keys import Key
from .networks import ACTIVATIONS, Activation, Linear, functional, init_linear, mlp, tanh
from .numbers import check_number
from .policy import (
    ActorCritic,
    Carry,
    encode,
    encoded_size,
    head_size,
    masked_features,
    policy_head,
    scalar,
    with_action_mask,
)
from .spaces import Space

Params = Any


@frozen
class Cell:
    """A step with memory: `apply(params, x [*, D], memory) -> (y [*, H], memory)`; `init(key)` returns params."""

    init: Callable[[Key], Params]
    apply: Callable[[Params, Tensor, Any], tuple[Tensor, Any]]
    memory: Any  # at the beginning, a tree of tensors without leading axes


def gru(inputs: int, size: int) -> Cell:
    """A gated recurrent unit, the form of `torch.nn.GRUCell`; its output is its memory h, zeros at first.

        r = s(x W_r + b_r + h U_r + c_r),    z = s(x W_z + b_z + h U_z + c_z)
        n = tanh(x W_n + b_n + r (h U_n + c_n)),    h' = n + z (h - n)

    with s(x) = 1 / (1 + exp(-x)). Shapes: x [*, inputs], h [*, size]. Params: {"input": Linear, "memory": Linear}, W and U of
    r, z, n side by side, each orthogonal, biases zero.
    Raises: ShapeError.  Source: Cho et al. 2014, arXiv:1406.1078; with r behind the product as in cuDNN.

    >>> cell = gru(1, 1)
    >>> one = lambda *weights: Linear(weight=torch.tensor([weights]), bias=torch.zeros(3))
    >>> params = {"input": one(0.0, 0.0, 20.0), "memory": one(0.0, 0.0, 0.0)}
    >>> cell.apply(params, torch.tensor([1.0]), torch.tensor([0.5]))[1]  # halfway from 0.5 to tanh(20)
    tensor([0.7500])
    """

    def apply(params: Params, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        r, z, n = _affine(params["input"], x).chunk(3, -1)
        r_h, z_h, n_h = _affine(params["memory"], h).chunk(3, -1)
        reset, keep = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
        new = tanh(n + reset * n_h)
        h = new + keep * (h - new)
        return h, h

    return Cell(init=_init("gru", inputs, size, 3), apply=apply, memory=torch.zeros(size))


def lstm(inputs: int, size: int) -> Cell:
    """A long short-term memory, the form of `torch.nn.LSTMCell`; the memory is (h, c), zeros at first, the output h.

        c' = s(f) c + s(i) tanh(g),    h' = s(o) tanh(c'),    (i, f, g, o) = x W + b + h U + d

    with s(x) = 1 / (1 + exp(-x)). Shapes: x [*, inputs], h and c [*, size]. Params: {"input": Linear, "memory": Linear}, W and
    U of i, f, g, o side by side, each orthogonal, biases zero.
    Raises: ShapeError.  Source: Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735; with the forget gate of Gers
    et al. 2000.

    >>> cell = lstm(1, 1)
    >>> params = {name: Linear(weight=torch.zeros(1, 4), bias=torch.zeros(4)) for name in ("input", "memory")}
    >>> cell.apply(params, torch.ones(1), (torch.ones(1), torch.tensor([4.0])))[1][1]  # half is forgotten
    tensor([2.])
    """

    def apply(params: Params, x: Tensor, memory: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = memory
        i, f, g, o = (_affine(params["input"], x) + _affine(params["memory"], h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * tanh(g)
        h = torch.sigmoid(o) * tanh(c)
        return h, (h, c)

    return Cell(init=_init("lstm", inputs, size, 4), apply=apply, memory=(torch.zeros(size), torch.zeros(size)))


def min_gru(inputs: int, size: int) -> Cell:
    """A gated unit whose gate does not depend on its memory h, zeros at first; its output is h.

        h' = h + z (n - h),    (z, n) = (s(x W_z + b_z), x W_n + b_n)

    with s(x) = 1 / (1 + exp(-x)). Shapes: x [*, inputs], h [*, size]. Params: {"input": Linear}, W of z and n side by side,
    each orthogonal, biases zero. It has a third of the weights of `gru`, and no product that waits for the last step.
    Raises: ShapeError.  Source: Feng et al. 2024, arXiv:2410.01201.

    >>> cell = min_gru(1, 1)
    >>> params = {"input": Linear(weight=torch.tensor([[0.0, 3.0]]), bias=torch.zeros(2))}
    >>> cell.apply(params, torch.ones(1), torch.ones(1))[1]
    tensor([2.])
    """

    def apply(params: Params, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        z, n = _affine(params["input"], x).chunk(2, -1)
        h = h + torch.sigmoid(z) * (n - h)
        return h, h

    init = _init("min_gru", inputs, size, 2)
    return Cell(init=lambda key: {"input": init(key)["input"]}, apply=apply, memory=torch.zeros(size))


def transformer(inputs: int, size: int, *, window: int = 16, heads: int = 4, layers: int = 1) -> Cell:
    """Attention over the last `window` steps of the episode; the memory is the keys and values of these steps.

        q, k, v = n(x) W + b of each head,    a_i = softmax_i(q . k_i / sqrt(size / heads) + p_i)
        y = x + (sum_i a_i v_i) O + c,    x' = y + relu(n(y) U + d) V + e

    where i = 0..window-1 is the age of a step, p the learnt bias of a head for an age, and n(x) = (x - mean) / std over the
    entries of one step. A linear layer makes x of the input, n(x) of the last layer is the output. A window of W and L layers
    reach L (W - 1) steps back. Steps before the episode have no weight, so a fresh memory, zeros, begins one.

    Shapes: x [*, inputs]; memory {"keys", "values"} [*, layers, window, size], "present" [*, window] 1 for a step, else 0.
    Weights are orthogonal, biases and p zero. Raises: ShapeError, ChoiceError.
    Source: Vaswani et al. 2017, arXiv:1706.03762; n before each product as in Parisotto et al. 2019, arXiv:1910.06764.

    >>> cell = transformer(3, 8, window=2, heads=2)
    >>> params, memory = cell.init(keys.key(0)), cell.memory
    >>> for _ in range(3):
    ...     y, memory = cell.apply(params, torch.ones(3), memory)
    >>> y.shape, memory["present"]
    (torch.Size([8]), tensor([1., 1.]))
    """
    for name, number in (("window", window), ("heads", heads), ("layers", layers)):
        at_least(f"transformer: {name}", number, 1)
    if size % heads:
        remedy = "change one of the two"
        raise ShapeError(message("transformer: size", got=size, wanted=f"a multiple of {heads} heads", remedy=remedy))

    def layer(key: Key) -> dict[str, Any]:
        attention, output, first, second = keys.split(key, 4)
        return {
            "attention": init_linear(attention, size, 3 * size, 1.0),
            "age": torch.zeros((*key.shape[:-1], window, heads), device=key.device),
            "output": init_linear(output, size, size, 1.0),
            "first": init_linear(first, size, 2 * size, math.sqrt(2.0)),
            "second": init_linear(second, 2 * size, size, 1.0),
        }

    def init(key: Key) -> Params:
        input_key, *own = keys.split(key, layers + 1)
        return {"input": init_linear(input_key, inputs, size, 1.0), "layers": tuple(map(layer, own))}

    def attended(params: Params, x: Tensor, before: tuple[Tensor, Tensor], present: Tensor) -> Any:
        """Return the layer's output, and its keys and values [*, window, size] with this step's last."""
        query, key, value = _affine(params["attention"], _standardized(x)).chunk(3, -1)
        kept = [
            torch.cat([old[..., 1:, :], new[..., None, :]], -2) for old, new in zip(before, (key, value), strict=True)
        ]
        known, values = (_by_head(one, heads) for one in kept)
        scores = (_by_head(query, heads)[..., None, :, :] * known).sum(-1)
        scores = scores * math.sqrt(heads / size) + params["age"]
        weights = torch.softmax(torch.where(present[..., None] > 0, scores, illegal(scores.dtype)), -2)
        y = x + _affine(params["output"], (weights[..., None] * values).sum(-3).flatten(-2))
        return y + _affine(params["second"], torch.relu(_affine(params["first"], _standardized(y)))), kept

    def apply(params: Params, x: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        old = memory["present"]
        present = torch.cat([old[..., 1:], torch.ones_like(old[..., :1])], -1)
        y, kept = _affine(params["input"], x), []
        for own, *before in zip(params["layers"], memory["keys"].unbind(-3), memory["values"].unbind(-3), strict=True):
            y, both = attended(own, y, (before[0], before[1]), present)
            kept.append(both)
        known, values = (torch.stack(one, -3) for one in zip(*kept, strict=True))
        return _standardized(y), {"keys": known, "values": values, "present": present}

    empty = torch.zeros(layers, window, size)
    return Cell(init=init, apply=apply, memory={"keys": empty, "values": empty.clone(), "present": torch.zeros(window)})


def _by_head(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def _standardized(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def module_cell(module: torch.nn.Module, memory: Any) -> Cell:
    """Return the cell of a module that takes (x, memory) and returns the memory after, e.g. nn.GRUCell or nn.LSTMCell.

    Its output is the memory, or the first entry of it if it is a tuple; `memory` is that of one environment at the beginning.
    Params are as in `functional`: `init` returns the module's. Raises: StructureError.

    >>> from .spaces import Discrete
    >>> model = recurrent_actor_critic(
    ...     Discrete(3), Discrete(2), cell=lambda inputs, size: module_cell(torch.nn.GRUCell(inputs, size), torch.zeros(size)))
    >>> model.apply(model.init(keys.key(0)), torch.tensor([0, 2]), torch.zeros(2, 64))[2].shape
    torch.Size([2, 64])
    """
    network = functional(module, arguments=lambda given: (given, {}))

    def apply(params: Params, x: Tensor, memory: Any) -> tuple[Tensor, Any]:
        after = network.apply(params, (x, memory))
        return (after[0] if isinstance(after, tuple) else after), after

    return Cell(init=network.init, apply=apply, memory=memory)


CELLS: Mapping[str, Callable[[int, int], Cell]] = {
    "gru": gru,
    "lstm": lstm,
    "min_gru": min_gru,
    "transformer": transformer,
}


def _affine(layer: Linear, x: Tensor) -> Tensor:
    return x @ layer.weight + layer.bias


def _init(where: str, inputs: int, size: int, gates: int) -> Callable[[Key], dict[str, Linear]]:
    for name, number in (("inputs", inputs), ("size", size)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ShapeError(message(f"{where}: {name}", got=repr(number), wanted="1 or more", remedy="change it"))

    def layer(key: Key, rows: int) -> Linear:
        made = [init_linear(one, rows, size, 1.0) for one in keys.split(key, gates)]
        return Linear(
            weight=torch.cat([one.weight for one in made], -1), bias=torch.cat([one.bias for one in made], -1)
        )

    def init(key: Key) -> dict[str, Linear]:
        input_key, memory_key = keys.split(key)
        return {"input": layer(input_key, inputs), "memory": layer(memory_key, size)}

    return init


def recurrent_actor_critic(
    observation_space: Space,
    action_space: Space,
    hidden: Sequence[int] = (64,),
    activation: str | Activation = "tanh",
    *,
    cell: str | Callable[[int, int], Cell] = "gru",
    size: int = 64,
    distribution: str = "normal",
    log_std: float = 0.0,
    product: str = "matmul",
) -> ActorCritic:
    """Return an actor-critic with memory: an encoder of `hidden` layers, a cell of `size`, a policy and a value of its output.

    Params: {"encoder", "cell", "policy", "value"}. `cell` is "gru", "lstm", "min_gru", "transformer" or a function
    (inputs, size) -> Cell; actions and observations are as in `actor_critic_mlp`, `product` is that of `mlp`. Weights are
    orthogonal, scaled by sqrt(2) in the encoder, 1 in the cell, 0.01 in the policy and 1 in the value. Without `hidden` the
    cell gets the observation itself.

    Raises: StructureError, ShapeError, ChoiceError.

    >>> from .spaces import Box, Discrete
    >>> model = recurrent_actor_critic(Box(-1.0, 1.0, (4,)), Discrete(2), (8,), size=3)
    >>> distribution, value, memory = model.apply(model.init(keys.key(0)), torch.ones(5, 4), torch.zeros(5, 3))
    >>> distribution.logits.shape, value.shape, memory.shape, model.memory
    (torch.Size([5, 2]), torch.Size([5]), torch.Size([5, 3]), tensor([0., 0., 0.]))
    """
    where = "recurrent_actor_critic"
    if not isinstance(hidden, Sequence) or isinstance(hidden, str):
        remedy = "write (64,) for one layer, () for none"
        raise StructureError(message(f"{where}: hidden", got=repr(hidden), wanted="a sequence of sizes", remedy=remedy))
    check_number(f"{where}: log_std", log_std, -math.inf)
    features = masked_features(where, observation_space, action_space)
    inputs = [encoded_size(features), *hidden]
    function = choose(f"{where}: activation", activation, ACTIVATIONS) if isinstance(activation, str) else activation
    made = (choose(f"{where}: cell", cell, CELLS) if isinstance(cell, str) else cell)(inputs[-1], size)
    layers = mlp(inputs, function, final_gain=math.sqrt(2.0), product=product) if hidden else None
    outputs = mlp([size, head_size(action_space)], final_gain=0.01, product=product)
    policy = policy_head(where, outputs, action_space, distribution, log_std)
    value = scalar(mlp([size, 1], product=product))

    def init(key: Key) -> dict[str, Any]:
        encoder_key, cell_key, policy_key, value_key = keys.split(key, 4)
        return {
            "encoder": layers.init(encoder_key) if layers else (),
            "cell": made.init(cell_key),
            "policy": policy.init(policy_key),
            "value": value.init(value_key),
        }

    def apply(params: dict[str, Any], observation: Any, memory: Carry) -> tuple[Distribution, Tensor, Carry]:
        x = encode(features, observation)
        if layers:
            x = function(layers.apply(params["encoder"], x))
        y, memory = made.apply(params["cell"], x, memory)
        return policy.apply(params["policy"], y), value.apply(params["value"], y), memory

    model = ActorCritic(init=init, apply=apply, memory=made.memory)
    return model if features is observation_space else with_action_mask(model)
