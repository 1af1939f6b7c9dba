"""Networks as values: `init(key) -> params`, `apply(params, x) -> y`; the multi-layer perceptron and any nn.Module."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from attrs import frozen
from torch import Tensor

from . import keys
from .errors import DtypeError, ShapeError, StructureError, choose, message
from .keys import Key
from .numbers import check_number
from .record import record, tensor

Params = Any
Activation = Callable[[Tensor], Tensor]
Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]


def tanh(x: Tensor) -> Tensor:
    """Return tanh(x) = 2 / (1 + exp(-2 x)) - 1, within 2e-7 of torch.tanh: [*].

    Compiled for a CPU it takes a quarter of the time (0.35 against 1.45 ns per number, AVX-512, one thread), and activations
    are a large part of an update of small networks.

    >>> tanh(torch.tensor([0.0, 20.0]))
    tensor([0., 1.])
    """
    return 2.0 * torch.sigmoid(2.0 * x) - 1.0


ACTIVATIONS: Mapping[str, Activation] = {
    "elu": F.elu,
    "gelu": F.gelu,
    "identity": lambda x: x,
    "relu": torch.relu,
    "silu": F.silu,
    "tanh": tanh,
}
FEW_ROWS = 16  # up to here, multiply-and-sum is faster than a call of the matrix library
FEW_OUTPUTS = 4  # likewise, for a product with few columns
MANY_ROWS = 32  # from here on that product is (W^T x^T)^T: with one row per output, losses are vectorised


def as_they_are(params: Params) -> Params:
    """Return params whose leaves have names already.

    >>> as_they_are({"weight": 1})
    {'weight': 1}
    """
    return params


@frozen
class Network:
    """A pair of pure functions; `apply` takes x with any leading axes [*, ...]."""

    init: Callable[[Key], Params]
    apply: Callable[[Params, Any], Any]
    named: Callable[[Params], Any] = as_they_are  # the params as a tree whose leaves have names, for messages


@record
class Linear:
    """The parameters of y = x W + b."""

    weight: Tensor = tensor("* inputs outputs", "float")
    bias: Tensor = tensor("* outputs", "float")


def orthogonal(key: Key, shape: tuple[int, int], gain: float = 1.0) -> Tensor:
    """Return a random matrix with orthonormal rows or columns (the fewer ones), times `gain`: key [*, 2] -> [*, m, n].

    It is Q of the QR decomposition of a normal matrix, with the signs of R's diagonal moved into Q so that the
    distribution is uniform. Source: Saxe et al. 2013, arXiv:1312.6120; Mezzadri 2006, arXiv:math-ph/0609050.

    >>> w = orthogonal(keys.key(0), (2, 3), gain=2.0)
    >>> torch.allclose(w @ w.T, 4 * torch.eye(2), atol=1e-5)
    True
    """
    rows, columns = shape
    tall = keys.normal(key, (max(shape), min(shape)))
    q: Tensor
    q, r = torch.linalg.qr(tall)
    signs = torch.where(torch.diagonal(r, dim1=-2, dim2=-1) < 0, -1.0, 1.0)
    q = q * signs[..., None, :]
    matrix = q if rows >= columns else q.transpose(-2, -1)
    return gain * matrix.contiguous()


def init_linear(key: Key, inputs: int, outputs: int, gain: float) -> Linear:
    """Return an orthogonal weight [*, inputs, outputs] and a zero bias [*, outputs], for key [*, 2].

    >>> layer = init_linear(keys.key(0), 3, 2, 1.0)
    >>> layer.weight.shape, layer.bias
    (torch.Size([3, 2]), tensor([0., 0.]))
    """
    weight = orthogonal(key, (inputs, outputs), gain)
    return Linear(weight=weight, bias=weight.new_zeros((*key.shape[:-1], outputs)))


def init_linear_uniform(key: Key, inputs: int, outputs: int, gain: float) -> Linear:
    """Return a weight [*, inputs, outputs] and a bias [*, outputs], uniform within gain / sqrt(inputs), for key [*, 2].

    With gain 1 this is the initialisation of `torch.nn.Linear`.

    >>> layer = init_linear_uniform(keys.key(0), 4, 2, 1.0)
    >>> bool((layer.weight.abs() <= 0.5).all())
    True
    """
    weight_key, bias_key = keys.split(key)
    bound = gain / math.sqrt(inputs)
    weight = bound * (2.0 * keys.uniform(weight_key, (inputs, outputs)) - 1.0)
    return Linear(weight=weight, bias=bound * (2.0 * keys.uniform(bias_key, (outputs,)) - 1.0))


INITIAL = {"orthogonal": init_linear, "uniform": init_linear_uniform}


def _matmul(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


def _broadcast(x: Tensor, weight: Tensor) -> Tensor:
    return (x[..., :, None] * weight).sum(-2)


def _columns(x: Tensor, weight: Tensor) -> Tensor:
    return torch.stack([(x * column).sum(-1) for column in weight.unbind(-1)], -1)


def _transposed(x: Tensor, weight: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return (weight.mT.contiguous() @ rows.mT).mT.reshape(*x.shape[:-1], weight.shape[-1])


def _auto(x: Tensor, weight: Tensor) -> Tensor:
    rows = math.prod(x.shape[:-1])
    if weight.shape[-1] <= FEW_OUTPUTS:
        return _columns(x, weight) if rows < MANY_ROWS else _transposed(x, weight)
    return _broadcast(x, weight) if rows <= FEW_ROWS else _matmul(x, weight)


PRODUCTS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "auto": _auto,
    "broadcast": _broadcast,
    "matmul": _matmul,
}


def mlp(
    sizes: Sequence[int],
    activation: str | Activation = "tanh",
    *,
    gain: float = math.sqrt(2.0),
    final_gain: float = 1.0,
    initial: str = "orthogonal",
    product: str = "matmul",
) -> Network:
    """A multi-layer perceptron: x_{k+1} = activation(x_k W_k + b_k), the last layer without activation.

    Shapes: [*, sizes[0]] -> [*, sizes[-1]]; params are a tuple of `Linear`, orthogonal weights scaled by `gain` (the last
    by `final_gain`), biases zero; a batch of keys [*, 2] gives a batch of params for vmap. With `initial` "uniform" they are
    those of `torch.nn.Linear`, times both gains: action values are learnt better from them. `product` selects the form of
    x W, which affects only its last bits and its speed: "matmul"; "broadcast" as multiply-and-sum, which the compiler
    fuses with other operations and which is faster for a few rows; "auto" chooses by the numbers of rows and outputs.

    Raises: ShapeError, ChoiceError.

    >>> network = mlp([4, 8, 2])
    >>> network.apply(network.init(keys.key(0)), torch.ones(3, 5, 4)).shape
    torch.Size([3, 5, 2])
    """
    if isinstance(activation, type):
        got, remedy = activation.__name__, "pass a name, as 'tanh', or a function, as torch.tanh"
        raise StructureError(message("mlp: activation", got=f"the class {got}", wanted="a function", remedy=remedy))
    check_number("mlp: gain", gain, 0.0)
    check_number("mlp: final_gain", final_gain, 0.0)
    if len(sizes) < 2 or not all(isinstance(size, int) and size >= 1 for size in sizes):
        remedy = "pass the input size, any hidden sizes and the output size"
        raise ShapeError(message("mlp: sizes", got=list(sizes), wanted="two or more positive ints", remedy=remedy))
    pairs = list(itertools.pairwise(sizes))
    function = choose("mlp: activation", activation, ACTIVATIONS) if isinstance(activation, str) else activation
    times, layer_of = choose("mlp: product", product, PRODUCTS), choose("mlp: initial", initial, INITIAL)

    def init(key: Key) -> tuple[Linear, ...]:
        gains = [gain] * (len(pairs) - 1) + [final_gain]
        return tuple(
            layer_of(layer_key, inputs, outputs, scale)
            for layer_key, (inputs, outputs), scale in zip(keys.split(key, len(pairs)), pairs, gains, strict=True)
        )

    def apply(params: tuple[Linear, ...], x: Tensor) -> Tensor:
        *hidden, last = params
        for layer in hidden:
            x = function(times(x, layer.weight) + layer.bias)
        return times(x, last.weight) + last.bias

    return Network(init=init, apply=apply)


def composed(first: Network, second: Network) -> Network:
    """Return the network x -> second(first(x)). Params: {"first": ..., "second": ...}.

    >>> network = composed(mlp([4, 8]), mlp([8, 2]))
    >>> network.apply(network.init(keys.key(0)), torch.zeros(3, 4)).shape
    torch.Size([3, 2])
    """

    def init(key: Key) -> dict[str, Any]:
        first_key, second_key = keys.split(key)
        return {"first": first.init(first_key), "second": second.init(second_key)}

    def apply(params: dict[str, Any], x: Any) -> Any:
        return second.apply(params["second"], first.apply(params["first"], x))

    def named(params: dict[str, Any]) -> Any:
        return {"first": first.named(params["first"]), "second": second.named(params["second"])}

    return Network(init=init, apply=apply, named=named)


def _single_argument(x: Any) -> Arguments:
    return (x,), {}


def functional(module: torch.nn.Module, *, arguments: Callable[[Any], Arguments] = _single_argument) -> Network:
    """Return a module as a pure network: apply(params, x) = module(x) with `params` as its trainable parameters.

    `init` ignores its key and returns detached copies of the parameters that require a gradient, by name. Everything else is
    a constant of the network and gets no gradient: parameters that require none, which it shares with the module, and the
    buffers as they were when `functional` was called. Writes of the forward pass to a buffer are dropped, so the module is
    not changed. `arguments(x)` returns the positional and named arguments of the call, e.g. for a Hugging Face model.
    A submodule that in training mode draws random numbers or updates its statistics (dropout, batch normalisation) is not
    pure, so call `.eval()` first. Raises: StructureError, also when the network is called later.

    >>> module = torch.nn.Linear(2, 1)
    >>> network = functional(module)
    >>> bool((network.apply(network.init(keys.key(0)), torch.ones(3, 2)) == module(torch.ones(3, 2))).all())
    True
    """
    if not isinstance(module, torch.nn.Module):
        remedy = "pass a torch.nn.Module, or make a Network of two functions"
        raise StructureError(message("functional: module", got=type(module).__name__, wanted="a Module", remedy=remedy))
    buffers = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    moving = [(name, part, said) for name, part in module.named_modules() for said in _moves_in_training(part)]

    def check_mode() -> None:
        for name, part, said in moving:
            if part.training:
                where = f"functional: {name or 'module'}"
                remedy = "call .eval() on the module first"
                raise StructureError(
                    message(where, got=f"training with {said}", wanted="a pure function", remedy=remedy)
                )

    check_mode()

    def init(key: Key) -> dict[str, Tensor]:
        del key
        return {name: value.detach().clone() for name, value in module.named_parameters() if value.requires_grad}

    def apply(params: dict[str, Tensor], x: Any) -> Any:
        check_mode()
        positional, named = arguments(x)
        values = {**{name: buffer.clone() for name, buffer in buffers.items()}, **params}
        return torch.func.functional_call(module, values, positional, dict(named))

    return Network(init=init, apply=apply)


def any_leading_axes(network: Network, axes: int) -> Network:
    """Return the network with any leading axes, of one that takes exactly one, such as `functional` of an nn.Conv2d.

    `axes` is the number of axes of one input, 3 of an image; each leaf of the input has so many behind its leading axes. The
    outputs have one leading axis, which becomes the input's. Raises: ShapeError for an input of fewer axes.

    >>> network = any_leading_axes(functional(torch.nn.Conv2d(1, 2, 3)), 3)
    >>> network.apply(network.init(keys.key(0)), torch.zeros(4, 5, 1, 8, 8)).shape
    torch.Size([4, 5, 2, 6, 6])
    """

    def apply(params: Params, x: Any) -> Any:
        first = pytree.tree_leaves(x)[0]
        lead = first.shape[: first.ndim - axes]
        if first.ndim < axes:
            remedy = "pass one input or a batch of them"
            raise ShapeError(
                message("any_leading_axes: x", got=list(first.shape), wanted=f"{axes} axes", remedy=remedy)
            )
        rows = pytree.tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[len(lead) :]), x)
        return pytree.tree_map(lambda leaf: leaf.reshape(*lead, *leaf.shape[1:]), network.apply(params, rows))

    return Network(init=network.init, apply=apply, named=network.named)


def _moves_in_training(part: torch.nn.Module) -> list[str]:
    """Return the names of this module's effects in training mode that make it impure."""
    kind = type(part).__name__
    drops = {name: value for name, value in vars(part).items() if "drop" in name or (name == "p" and "Drop" in kind)}
    said = [f"{kind}'s {name} = {value}" for name, value in drops.items() if type(value) in (float, int) and value > 0]
    if isinstance(part, torch.nn.modules.batchnorm._NormBase) and part.running_mean is not None:
        said.append(f"{kind}'s running statistics")
    if isinstance(part, torch.nn.RReLU) and part.lower < part.upper:
        said.append("RReLU's random slopes")
    if isinstance(part, torch.nn.utils.parametrizations._SpectralNorm):
        said.append("the power iteration of spectral_norm")
    return said


@frozen
class Layout:
    """The positions of a tree's leaves in one vector."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    def ravel(self, tree: Any) -> Tensor:
        """Return the leaves in one vector: each [*, *shape] -> [*, N]."""
        flat = [
            leaf.reshape(*leaf.shape[: leaf.ndim - len(shape)], -1)
            for leaf, shape in zip(pytree.tree_leaves(tree), self.shapes, strict=True)
        ]
        return torch.cat(flat, -1)

    def unravel(self, vector: Tensor) -> Any:
        """Return the tree whose leaves are views of `vector`: [*, N] -> each [*, *shape]."""
        parts = torch.split(vector, [math.prod(shape) for shape in self.shapes], -1)
        leaves = [part.reshape(vector.shape[:-1] + shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return pytree.tree_unflatten(leaves, self.structure)


def tree_layout(tree: Any) -> Layout:
    """Return the layout of a tree of floating-point tensors of one dtype.

    Raises: DtypeError, StructureError.

    >>> two = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor(3.0)}
    >>> tree_layout(two).ravel(two)
    tensor([1., 2., 3.])
    """
    leaves, structure = pytree.tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            got, remedy = type(leaf).__name__, "wrap it in torch.tensor, or close over it"
            raise StructureError(message("layout: a leaf", got=got, wanted="a tensor", remedy=remedy))
    dtypes = {leaf.dtype for leaf in leaves}
    if len(dtypes) != 1 or not leaves[0].is_floating_point():
        remedy = "convert the leaves, or keep the tree as it is"
        raise DtypeError(
            message("layout: dtypes", got=sorted(map(str, dtypes)), wanted="one float type", remedy=remedy)
        )
    return Layout(structure=structure, shapes=tuple(tuple(leaf.shape) for leaf in leaves))
