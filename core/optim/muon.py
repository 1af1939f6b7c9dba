"""Muon, an optimiser for matrices, and `by_label`, which uses different optimisers for parts of a model.

Muon's update is the momentum with all singular values moved towards 1, so that directions with small singular values are
learned as fast as the dominant ones. It is meant for the matrices between hidden layers; `by_label` assigns embeddings, heads
and vectors to another optimiser by name.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import ShapeError, StructureError, choose, message
from ..numbers import Number
from ..record import record, replace
from ..tree import leaf_names, leaves, tree_map
from .interface import Optimizer, check_hyperparameters
from .master_weights import master_weights

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic: maximum slope at 0 that keeps values of [0, 1] near 1
EPS = 1e-7  # minimum norm by which a gradient is divided
STEPS = 5


def original(rows: int, columns: int) -> float:
    """Return sqrt(max(1, rows / columns)), the learning-rate factor of the original Muon, above 1 for tall matrices.

    >>> original(4, 1), original(1, 4)
    (2.0, 1.0)
    """
    return math.sqrt(max(1.0, rows / columns))


def match_rms_adamw(rows: int, columns: int) -> float:
    """Return 0.2 sqrt(max(rows, columns)), the factor that gives updates of AdamW's usual size, for AdamW's learning rates.

    >>> match_rms_adamw(4, 1)
    0.4
    """
    return 0.2 * math.sqrt(max(rows, columns))


ADJUST = {"original": original, "match_rms_adamw": match_rms_adamw}


@record
class MuonState:
    """State of `muon`."""

    hyperparameters: dict[str, Tensor]  # learning_rate, momentum, weight_decay; each [] float64
    velocity: Any  # like params: the decaying mean of gradients


def muon(
    learning_rate: Number,
    *,
    momentum: Number = 0.95,
    weight_decay: Number = 0.1,
    adjust: str = "original",
    precision: torch.dtype = torch.bfloat16,
) -> Optimizer:
    """Orthogonalised momentum: v' = v + (1 - momentum) (g - v), and with n = g + momentum (v' - g)

    update = -learning_rate adjust(rows, columns) orthogonal(n) - learning_rate weight_decay params.

    All leaves are matrices. `adjust` is "original" or "match_rms_adamw". `precision` is that of `orthogonalized`, for which
    bfloat16 is sufficient; CPUs without bfloat16 support are faster in float32. Raises: ShapeError, ChoiceError.
    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; equal to torch.optim.Muon with Nesterov momentum.

    >>> optimizer = muon(0.1, weight_decay=0.0)
    >>> updates, _ = optimizer.update(torch.tensor([[8.0]]), optimizer.init(torch.zeros(1, 1)), torch.zeros(1, 1))
    >>> bool((-0.13 < updates) & (updates < -0.06))
    True
    """
    scale = choose("muon: adjust", adjust, ADJUST)
    check_hyperparameters("muon", learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay)

    def init(params: Any) -> MuonState:
        _matrices("muon: params", params)
        given = {"learning_rate": learning_rate, "momentum": momentum, "weight_decay": weight_decay}
        device = leaves(params)[0].device
        numbers = {name: torch.as_tensor(n, dtype=torch.float64, device=device).clone() for name, n in given.items()}
        return MuonState(hyperparameters=numbers, velocity=tree_map(torch.zeros_like, params))

    def update(gradients: Any, state: MuonState, params: Any) -> tuple[Any, MuonState]:
        h = state.hyperparameters
        rate, keep, decay = h["learning_rate"], h["momentum"], h["learning_rate"] * h["weight_decay"]
        velocity = tree_map(lambda g, v: torch.lerp(v, g, (1.0 - keep).to(g.dtype)), gradients, state.velocity)

        def step(g: Tensor, v: Tensor, p: Tensor) -> Tensor:
            direction = orthogonalized(torch.lerp(g, v, keep.to(g.dtype)), precision=precision)
            size = rate * scale(g.shape[-2], g.shape[-1])
            return -size.to(p.dtype) * direction - decay.to(p.dtype) * p

        return tree_map(step, gradients, velocity, params), replace(state, velocity=velocity)

    return master_weights(Optimizer(init=init, update=update))


def orthogonalized(matrix: Tensor, *, precision: torch.dtype = torch.float32, steps: int = STEPS) -> Tensor:
    """Return the matrix with the same singular vectors and singular values near 1 (about 0.7 to 1.2 unless they were tiny).

    X_0 = G / |G|,    X_k+1 = a X_k + (b S + c S S) X_k  with  S = X_k X_k^T

    Shapes: [N, M] -> [N, M], of the matrix's dtype, computed in `precision`. 0 stays 0.
    Source: Jordan et al. 2024, the quintic form of Newton and Schulz's iteration.

    >>> turned = orthogonalized(torch.tensor([[0.0, -8.0], [2.0, 0.0]]))
    >>> (turned.abs() > 0.6).tolist(), turned.sign().tolist()
    ([[False, True], [True, False]], [[0.0, -1.0], [1.0, 0.0]])
    """
    a, b, c = COEFFICIENTS
    x = matrix.to(precision)
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = x.mT if tall else x
    x = x / torch.linalg.vector_norm(x).clamp_min(EPS)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrix.dtype)


def by_label(label: Callable[[str, Tensor], str], optimizers: Mapping[str, Optimizer]) -> Optimizer:
    """Return an optimiser for parts of a dict of tensors: `label(name, leaf)` is the key in `optimizers` for each leaf.

    The state is a tuple, in the order of `optimizers`, () for one without leaves. Raises: ChoiceError for an unknown label,
    StructureError for params that are not a dict.

    >>> from .optimizers import sgd
    >>> both = by_label(lambda name, leaf: name, {"fast": sgd(1.0), "slow": sgd(0.5)})
    >>> params = {"slow": torch.zeros(1), "fast": torch.zeros(1)}
    >>> both.update({"slow": torch.ones(1), "fast": torch.ones(1)}, both.init(params), params)[0]
    {'slow': tensor([-0.5000]), 'fast': tensor([-1.])}
    """

    def parts(params: Mapping[str, Tensor]) -> tuple[tuple[str, ...], ...]:
        if not isinstance(params, Mapping):
            got, remedy = type(params).__name__, "use one optimiser for all, or name the leaves"
            raise StructureError(message("divided: params", got=got, wanted="a dict of tensors", remedy=remedy))
        labels = {name: label(name, leaf) for name, leaf in params.items()}
        for chosen in labels.values():
            choose("divided: label", chosen, optimizers)
        return tuple(tuple(name for name in params if labels[name] == part) for part in optimizers)

    def init(params: Mapping[str, Tensor]) -> tuple[Any, ...]:
        every = zip(optimizers.values(), parts(params), strict=True)
        return tuple(one.init({name: params[name] for name in names}) if names else () for one, names in every)

    def update(
        gradients: Mapping[str, Tensor], state: tuple[Any, ...], params: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], tuple[Any, ...]]:
        updates: dict[str, Tensor] = {}
        after: tuple[Any, ...] = ()
        for one, names, inner in zip(optimizers.values(), parts(params), state, strict=True):
            if names:
                mine = ({name: tree[name] for name in names} for tree in (gradients, params))
                new, inner = one.update(next(mine), inner, next(mine))
                updates = {**updates, **new}
            after = (*after, inner)
        return {name: updates[name] for name in params}, after

    return master_weights(Optimizer(init=init, update=update))


def _matrices(where: str, params: Any) -> None:
    for name, leaf in zip(leaf_names(params), leaves(params), strict=True):
        if leaf.ndim != 2:
            at = f"{where}.{name}" if name else where
            remedy = "give it to another optimiser, see `by_label`"
            raise ShapeError(message(at, got=list(leaf.shape), wanted="a matrix", remedy=remedy))
