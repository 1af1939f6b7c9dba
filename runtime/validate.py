"""Validation of an environment before anything is built on it: one reset and one step, single and batched."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..core import keys
from ..core.agents import each_agent
from ..core.check import check
from ..core.env import Env, batched
from ..core.errors import ChoiceError, DtypeError, NonFiniteError, ShapeError, StructureError, at_least, message
from ..core.record import stack, take
from ..core.spaces import Box, Fields, MultiBinary, Space, Tuple, contains, field, parts, sample, shape_of
from ..core.steps import TimeStep
from ..core.tree import all_finite, leaf_names, leaves, same_structure

P = TypeVar("P")
S = TypeVar("S")


def validate(env: Env[P, S]) -> Env[P, S]:
    """Return `env`, a single environment, if a reset and a step of it keep the contract that training relies on.

    State and observation keep structure, shapes and dtypes, alone and in a batch; observations are of their space; reward
    and flags are numbers without axes, the reward a finite float32; a reset has reward 0 and no flag; no argument is
    written to; and both run under vmap. `purestep.properties.env_laws` checks more than one step can show.

    Raises: StructureError, ShapeError, DtypeError, NonFiniteError, ChoiceError; the first fault, with its remedy.

    >>> from purestep.core.envs.cartpole import cartpole
    >>> env = cartpole()
    >>> validate(env) is env
    True
    """
    if not isinstance(env, Env):
        remedy = "make one by name, e.g. make('cartpole'), or wrap a Gymnasium env with `gymnasium_world`"
        raise StructureError(message("validate: env", got=type(env).__name__, wanted="an Env", remedy=remedy))
    key, action_key, step_key = keys.split(key_near(env, 0), 3)
    action = sample(env.action_space, action_key)
    if env.agents is not None:
        at_least("validate: env.agents", env.agents, 1)
        action = stack([sample(env.action_space, own) for own in keys.split(action_key, env.agents)])
    state, first = _told("reset", _unwritten("reset", env.reset, params=env.params, key=key), env.agents)
    _reset_tells_nothing(first)
    arguments = {"params": env.params, "state": state, "action": action, "key": step_key}
    after, timestep = _told("step", _unwritten("step", env.step, **arguments), env.agents)
    same_structure("validate: step: state", after, state)
    for name, told in (("reset", first), ("step", timestep)):
        _finite(f"validate: {name}", told)
        for agent in range(env.agents or 1):
            seen = told.observation if env.agents is None else take(told.observation, agent)
            _member(f"validate: {name}: observation", env.observation_space, seen)
        same_structure(f"validate: {name}: next_observation", told.next_observation, first.observation)
        if told.reward.dtype != torch.float32:
            where, remedy = (
                f"validate: {name}: reward",
                "convert it with .to(torch.float32): returns are summed up in it",
            )
            raise DtypeError(message(where, got=told.reward.dtype, wanted="torch.float32", remedy=remedy))
    same_structure("validate: step: observation", timestep.observation, first.observation)
    _in_batch(env, action, (state, first), (after, timestep))
    return env


def key_near(env: Env[Any, Any], seed: int) -> keys.Key:
    """Return the key of a seed on the device of the env's params.

    >>> from purestep.core.envs.cartpole import cartpole
    >>> key_near(cartpole(), 7)
    tensor([7, 0])
    """
    return keys.key(seed, device=next((leaf.device for leaf in leaves(env.params) if isinstance(leaf, Tensor)), None))


def _told(where: str, result: Any, agents: int | None) -> tuple[Any, TimeStep]:
    """Return the result as (state, timestep), where the timestep is of a single environment, with its agents."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], TimeStep)):
        got = [type(part).__name__ for part in result] if isinstance(result, tuple) else type(result).__name__
        remedy = "return both, the second made by `first` or `following`"
        raise StructureError(message(f"validate: {where}", got=got, wanted="(state, TimeStep)", remedy=remedy))
    state, timestep = result
    try:
        check(*((timestep, ()) if agents is None else (_of_agents(where, timestep, agents), (agents,))))
    except (StructureError, ShapeError, DtypeError) as fault:
        raise type(fault)(f"validate: {where}: {fault}") from fault
    return state, timestep


def _of_agents(where: str, told: TimeStep, agents: int) -> TimeStep:
    for name in ("reward", "terminated", "truncated"):
        value, shapes = getattr(told, name), ((), (agents,)) if name == "reward" else ((),)
        if not isinstance(value, Tensor) or tuple(value.shape) not in shapes:
            got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            remedy = "end an episode for all agents at once; an agent that is done waits with rewards of 0"
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            raise ShapeError(
                message(f"validate: {where}: {name} of {agents} agents", got=got, wanted=wanted, remedy=remedy)
            )
    return each_agent(told, agents)


def _unwritten(where: str, function: Callable[..., Any], **arguments: Any) -> Any:
    """Return the function's result, if it has written into none of its arguments."""
    names, tensors = leaf_names(arguments), leaves(arguments)
    for name, leaf in zip(names, tensors, strict=True):
        if not isinstance(leaf, Tensor):
            got, remedy = type(leaf).__name__, "wrap it in torch.tensor, or make the field static"
            raise StructureError(message(f"validate: {where}: {name}", got=got, wanted="a tensor", remedy=remedy))
    before = [leaf._version for leaf in tensors]
    result = function(*arguments.values())
    for name, leaf, version in zip(names, tensors, before, strict=True):
        if leaf._version != version:
            remedy = "compute a new tensor instead of writing into this one (x = x + 1, not x += 1)"
            raise StructureError(
                message(f"validate: {where}: {name}", got="written to", wanted="left as it was", remedy=remedy)
            )
    return result


def _reset_tells_nothing(first: TimeStep) -> None:
    reward = float(first.reward.abs().max())
    if bool(first.terminated) or bool(first.truncated) or reward != 0.0:
        got = f"reward {reward}, terminated {bool(first.terminated)}, truncated {bool(first.truncated)}"
        remedy = "make the TimeStep of a reset with `first(observation)`"
        raise ChoiceError(message("validate: reset", got=got, wanted="reward 0 and no flag", remedy=remedy))


def _finite(where: str, told: TimeStep) -> None:
    for name in ("reward", "observation"):
        if not bool(all_finite(getattr(told, name))):
            remedy = "keep the world's numbers within bounds, and divide by nothing that can be 0"
            raise NonFiniteError(message(f"{where}: {name}", got="NaN or infinite", wanted="finite", remedy=remedy))


def _member(where: str, space: Space, value: Any) -> None:
    """Raise an error unless the value has the shape and dtype of the space, and lies in it."""
    if isinstance(space, Fields | Tuple):
        for name, inner in parts(space):
            _member(f"{where}.{name}", inner, field(value, name))
        return
    if not isinstance(value, Tensor):
        got, remedy = type(value).__name__, "describe it with Fields or a Tuple, or make it one tensor"
        raise StructureError(message(where, got=got, wanted="a tensor", remedy=remedy))
    shape = shape_of(space)
    if tuple(value.shape) != shape:
        remedy = "change observation_space, or what the world shows"
        raise ShapeError(message(where, got=list(value.shape), wanted=list(shape), remedy=remedy))
    bits = isinstance(space, MultiBinary) and value.dtype == torch.bool
    if not isinstance(space, Box) and not bits and value.dtype != torch.int64:
        raise DtypeError(message(where, got=value.dtype, wanted="torch.int64", remedy="convert it with .to"))
    if math.prod(shape) and not bool(contains(space, value)):
        got, remedy = shortened(value), "widen observation_space, or keep the world within it"
        raise ChoiceError(message(where, got=got, wanted=f"in {space}", remedy=remedy))


def shortened(value: Tensor, limit: int = 6) -> str:
    """Return the numbers of a tensor as text, at most the first `limit`.

    >>> shortened(torch.arange(9), 2)
    '[0, 1, ...]'
    """
    numbers = [str(number) for number in value.flatten()[:limit].tolist()]
    return f"[{', '.join(numbers + ['...'] * (value.numel() > limit))}]"


def _in_batch(env: Env[Any, Any], action: Any, begun: Any, moved: Any) -> None:
    """Raise an error unless two environments in a batch can be reset and stepped, with the shapes and dtypes of one."""
    two = batched(env, 2)
    try:
        first = two.reset(env.params, key_near(env, 0))
        after = two.step(env.params, first[0], stack([action, action]), key_near(env, 1))
    except Exception as fault:
        got = f"refused by torch.vmap ({str(fault).strip().splitlines()[0]})"
        remedy = "write choices with torch.where, and call neither .item() nor bool() on a tensor"
        wanted = "the same code for one world and for many"
        raise StructureError(message("validate: step", got=got, wanted=wanted, remedy=remedy)) from fault
    for name, several, one in (("reset", first, begun), ("step", after, moved)):
        for part, got_, wanted_ in zip(("state", "timestep"), several, one, strict=True):
            same_structure(f"validate: {name} of a batch: {part}", take(got_, 0), wanted_)
