"""Validation of a model and an algorithm before a trainer is built on them: one call on one observation."""

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from ..algorithms.algorithm import Algorithm
from ..core import keys
from ..core.distributions import Categorical, MultiCategorical, Product
from ..core.errors import DtypeError, ShapeError, StructureError, message
from ..core.policy import ActorCritic, check_model, check_no_memory, first_memory
from ..core.spaces import (
    Box,
    Discrete,
    Fields,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    field,
    parts,
    shape_of,
    sizes_of,
    tree_of,
)
from ..core.tree import leaf_names, leaf_paths, leaves, same_structure, tree_map

SHARED = "pass the model that the algorithm was made with"


def validate_learner(model: ActorCritic, algorithm: Algorithm, observation: Any, action_space: Space) -> None:
    """Raise an error unless a trainer can act with `model` and train `algorithm`, for these observations and actions.

    The model's params are tensors, and those that the algorithm begins with; for a batch of observations it returns a
    distribution over actions of the space and one value each. Where it has a memory, it returns one like it, and the algorithm
    can train it.
    Raises: StructureError, ShapeError, DtypeError; the first fault, with its remedy.

    >>> from purestep.algorithms.a2c import a2c
    >>> from purestep.core.optim.optimizers import adam
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box
    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (3,)), Discrete(2))
    >>> validate_learner(model, a2c(model, adam(1e-3)), torch.zeros(3), Discrete(2))
    """
    check_model(model)
    if not isinstance(algorithm, Algorithm):
        got, remedy = type(algorithm).__name__, "make it with e.g. ppo(model, adam(1e-3))"
        raise StructureError(message("trainer: algorithm", got=got, wanted="an Algorithm", remedy=remedy))
    key = keys.key(0, device=leaves(observation)[0].device)
    params = model.init(key)
    for name, leaf in zip(leaf_names(params), leaves(params), strict=True):
        if not isinstance(leaf, Tensor):
            where = ".".join(part for part in ("trainer: the model's params", name) if part)
            remedy = "wrap it in torch.tensor, or close over it"
            raise StructureError(message(where, got=type(leaf).__name__, wanted="a tensor", remedy=remedy))
    _same_params(algorithm.init(key).params, params)
    if not algorithm.memory:
        check_no_memory("trainer", model)
    memory = _memory(model, key)
    distribution, value = _looked(model, params, tree_map(lambda leaf: leaf[None], observation), memory)
    if not isinstance(value, Tensor) or tuple(value.shape) != (1,):
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        remedy = "give one number for each observation, e.g. with `scalar`"
        raise ShapeError(message("trainer: the model's value of a batch of 1", got=got, wanted=[1], remedy=remedy))
    _acts(distribution, action_space, key)


def _same_params(begun: Any, params: Any) -> None:
    try:
        same_structure("params", begun, params)
    except StructureError as fault:
        difference = str(fault).split(";")[0]
        raise StructureError(
            message("trainer: model", got=f"not the algorithm's ({difference})", wanted="one model", remedy=SHARED)
        ) from fault


def _memory(model: ActorCritic, key: keys.Key) -> Any:
    for path, leaf in zip(leaf_paths(model.memory), leaves(model.memory), strict=True):
        if not isinstance(leaf, Tensor):
            where, remedy = (
                ".".join(("trainer: the model's memory", *path)),
                "give the tensors to begin an episode with",
            )
            raise StructureError(message(where, got=type(leaf).__name__, wanted="a tensor", remedy=remedy))
    return first_memory(model, 1, key.device)


def _looked(model: ActorCritic, params: Any, observation: Any, memory: Any) -> tuple[Any, Any]:
    """Return the distribution and value of a batch of one observation."""
    luck, drawn = (
        torch.get_rng_state(),
        "call .eval() on its module: dropout and the like are off where a policy is pure",
    )
    began, own = "its memory" if leaves(memory) else "the memory ()", "name a model's memory in the field `memory`"
    try:
        result = model.apply(params, observation, memory)
    except Exception as fault:
        reason = (str(fault).strip().splitlines() or [""])[0]
        got = f"one that fails on an observation of the env and {began} ({type(fault).__name__}: {reason})"
        remedy = f"fit it to observation_space; {own}"
        raise StructureError(message("trainer: model", got=got, wanted="one that acts", remedy=remedy)) from fault
    if not torch.equal(torch.get_rng_state(), luck):
        got = "one that draws from torch's global generator"
        raise StructureError(message("trainer: model", got=got, wanted="a pure function", remedy=drawn))
    if not (isinstance(result, tuple) and len(result) == 3):
        remedy = "let `apply` give all three, () for the memory"
        got, wanted = type(result).__name__, "(distribution, value, carry)"
        raise StructureError(message("trainer: what the model's apply gives", got=got, wanted=wanted, remedy=remedy))
    distribution, value, carry = result
    if leaves(carry) and not leaves(memory):
        got = f"one that returns a memory ({', '.join(name or 'a tensor' for name in leaf_names(carry)[:4])})"
        raise StructureError(message("trainer: model", got=got, wanted="one that begins with it", remedy=own))
    if leaves(memory):
        same_structure("trainer: the memory that the model returns", carry, memory)
    return distribution, value


def _acts(distribution: Any, space: Space, key: keys.Key) -> None:
    where = "trainer: the model's actions"
    if not hasattr(distribution, "log_prob") or not hasattr(distribution, "transform"):
        remedy = "give one, e.g. with `categorical_head` or `normal_head`"
        got = type(distribution).__name__
        raise StructureError(message("trainer: what the model gives", got=got, wanted="a Distribution", remedy=remedy))
    _takes(where, space, distribution, distribution.sample(keys.split(key, 1)))


def _takes(where: str, space: Space, distribution: Any, action: Any) -> None:
    """Raise an error unless a batch of one action has the kind of the space."""
    remedy = "make the model for the env's action_space"
    if isinstance(space, Fields | Tuple):
        if pytree.tree_structure(action) != pytree.tree_structure(tree_of(space, 0)):
            got = f"a tree of {leaf_names(action)}" if leaf_names(action) != [""] else "one tensor"
            raise StructureError(message(where, got=got, wanted=f"a tree as of {space}", remedy=remedy))
        for name, inner in parts(space):
            own = field(distribution.parts, name) if isinstance(distribution, Product) else distribution
            _takes(f"{where}.{name}", inner, own, field(action, name))
        return
    if not isinstance(action, Tensor):
        raise StructureError(message(where, got=f"a tree of {leaf_names(action)}", wanted="one tensor", remedy=remedy))
    shape = shape_of(space)
    if tuple(action.shape) != (1, *shape):
        raise ShapeError(message(where, got=list(action.shape[1:]), wanted=list(shape), remedy=remedy))
    if not isinstance(space, Box) and action.dtype != torch.int64:
        raise DtypeError(message(where, got=action.dtype, wanted="torch.int64", remedy=remedy))
    if isinstance(space, Discrete) and isinstance(distribution, Categorical):
        count = distribution.logits.shape[-1]
        if count != space.n:
            raise ShapeError(message(where, got=f"{count} choices", wanted=f"{space.n}, as of {space}", remedy=remedy))
    if isinstance(space, MultiDiscrete | MultiBinary) and isinstance(distribution, MultiCategorical):
        sizes = distribution.sizes
        if sizes != sizes_of(space):
            raise ShapeError(message(where, got=f"of sizes {sizes}", wanted=sizes_of(space), remedy=remedy))
