"""Our envs as Gymnasium envs: for trainers, wrappers and checkers that need a stateful env.

They hold a state and change it, which is why they are effects. A chain of keys determines everything: `reset(seed=s)` starts it
at key(s), each reset and each step takes one key from it, `key, chain = split(chain)`. A reset without a seed continues the
chain, or starts one from Gymnasium's own generator of the env.
"""

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from ....core import keys
from ....core.env import Env, action_limiter, auto_reset, batched
from ....core.errors import ChoiceError, DtypeError, ShapeError, StructureError, choose, message
from ....core.keys import Key, split
from ....core.record import record, select, take, tensor
from ....core.spaces import sample
from ....core.steps import TimeStep, ended
from .spaces import (
    Array,
    AutoresetMode,
    Foreign,
    gymnasium,
    spaces,
    to_arrays,
    to_gymnasium,
    to_numpy,
    to_tensors,
)

Lower = Callable[[Callable[..., Any]], Callable[..., Any]]
Info = dict[str, Any]


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function unchanged: the lowering that does nothing."""
    return function


@record
class NextStepState:
    """A state, and whether the next step only resets it."""

    inner: Any  # the env's own state
    over: Tensor = tensor("*", "bool")


def next_step_reset(env: Env[Any, Any]) -> Env[Any, NextStepState]:
    """Return an env that resets in the step after an episode's end: that step ignores its action, pays 0, shows the reset."""

    def reset(params: Any, key: Key) -> tuple[NextStepState, TimeStep]:
        inner, timestep = env.reset(params, key)
        return NextStepState(inner=inner, over=torch.zeros_like(timestep.terminated)), timestep

    def step(params: Any, state: NextStepState, action: Tensor, key: Key) -> tuple[NextStepState, TimeStep]:
        step_key, reset_key = split(key)
        stepped = env.step(params, state.inner, action, step_key)
        inner, timestep = select(state.over, env.reset(params, reset_key), stepped)
        return NextStepState(inner=inner, over=ended(timestep.terminated, timestep.truncated)), timestep

    return attrs.evolve(env, reset=reset, step=step, hoisted=None)


MODES: dict[str, Callable[[Env[Any, Any]], Env[Any, Any]]] = {
    AutoresetMode.SAME_STEP.value: lambda env: auto_reset(env, "select"),
    AutoresetMode.NEXT_STEP.value: next_step_reset,
    AutoresetMode.DISABLED.value: lambda env: env,
}


class GymnasiumEnv(gymnasium.Env[Any, Any]):
    """One environment as a `gymnasium.Env`; `env` is one that does not reset itself.

    Observations, actions and rewards are numpy's, infos empty. An action outside a Box is clipped into it. `lower` compiles
    reset and step, e.g. `program`.
    Raises: StructureError for a space that has no counterpart.
    """

    def __init__(self, env: Env[Any, Any], *, lower: Lower = as_it_is) -> None:
        self.observation_space, self.action_space = _spaces(env)
        self._reset, self._step = _functions(env, lower)
        self._chain: Key | None = None
        self._state: Any = None
        self._over = True

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Start a new episode: return (observation, {}). Raises: ChoiceError for any option, as there is none."""
        super().reset(seed=seed)
        _refuse(options)
        reset_key, self._chain = split(_begin(seed, self._chain, self.np_random))
        self._state, timestep = self._reset(reset_key)
        self._over = False
        return to_arrays(self.observation_space, timestep.observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Return (observation, reward, terminated, truncated, {}). Raises: ResetNeeded, ShapeError, DtypeError."""
        if self._over or self._chain is None:
            raise _must_reset("step: the episode", "over", "call reset")
        taken = _action(self.action_space, action, ())
        step_key, self._chain = split(self._chain)
        self._state, timestep = self._step(self._state, taken, step_key)
        terminated, truncated = bool(timestep.terminated), bool(timestep.truncated)
        self._over = terminated or truncated
        observation = to_arrays(self.observation_space, timestep.observation)
        return observation, float(timestep.reward), terminated, truncated, {}


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Array]):
    """`num_envs` environments as a `gymnasium.vector.VectorEnv`; `env` is a single one that does not reset itself.

    `autoreset_mode` is one of Gymnasium's, and is in the metadata: in "SameStep" infos hold final_obs and final_info
    where an episode ended, in "NextStep" the step after that one resets, in "Disabled" nothing does. In each of them
    `reset(options={"reset_mask": flags})` resets some environments and leaves the others. Environment i of a reset or step
    with `key` gets split(key, num_envs)[i]. `lower` compiles reset and step, e.g. `program`.
    Raises: StructureError, ChoiceError.
    """

    def __init__(
        self,
        env: Env[Any, Any],
        num_envs: int,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
        lower: Lower = as_it_is,
    ) -> None:
        if num_envs < 1:
            remedy = "pass how many worlds you want"
            raise ChoiceError(message("GymnasiumVectorEnv: num_envs", got=num_envs, wanted="1 or more", remedy=remedy))
        name = autoreset_mode.value if isinstance(autoreset_mode, AutoresetMode) else autoreset_mode
        wrap = choose("GymnasiumVectorEnv: autoreset_mode", name, MODES)
        self.mode = AutoresetMode(name)
        self.metadata = {"autoreset_mode": self.mode}
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = _spaces(env)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._reset, self._step = _functions(batched(wrap(env), num_envs), lower)
        self._chain: Key | None = None
        self._now: Any = None  # the environments' state and observations
        self._over = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Start new episodes, in all environments or in those of options["reset_mask"]: return (observations, {}).

        Raises: ChoiceError for any other option, ShapeError and DtypeError for a mask that is not bool [num_envs],
        ResetNeeded for a mask at the first reset.
        """
        super().reset(seed=seed)
        rest = dict(options or {})
        mask = rest.pop("reset_mask", None)
        _refuse(rest)
        if mask is not None:
            self._check_mask(mask)
        reset_key, self._chain = split(_begin(seed, self._chain, self.np_random))
        state, timestep = self._reset(reset_key)
        fresh = state, timestep.observation
        self._now = fresh if mask is None else select(torch.tensor(mask), fresh, self._now)
        self._over = np.where(True if mask is None else mask, False, self._over)
        return to_arrays(self.single_observation_space, self._now[1]), {}

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Info]:
        """Return (observations, rewards, terminated, truncated, infos), each [num_envs, ...].

        Raises: ShapeError, DtypeError, ResetNeeded before the first reset and, in the mode "Disabled", if an environment's
        episode is over.
        """
        self._check_running()
        taken = _action(self.single_action_space, actions, (self.num_envs,))
        step_key, self._chain = split(_begin(None, self._chain, self.np_random))
        state, timestep = self._step(self._now[0], taken, step_key)
        self._now = state, timestep.observation
        terminated, truncated = to_numpy(timestep.terminated), to_numpy(timestep.truncated)
        self._over = terminated | truncated
        observations = to_arrays(self.single_observation_space, timestep.observation)
        infos = self._final(timestep) if self.mode is AutoresetMode.SAME_STEP else {}
        return observations, to_numpy(timestep.reward).astype(np.float64), terminated, truncated, infos

    def _final(self, timestep: TimeStep) -> Info:
        """Return the infos of the episodes that ended, in the layout of Gymnasium's own vector envs."""
        infos: Info = {}
        for i in np.flatnonzero(self._over).tolist():
            final = to_arrays(self.single_observation_space, take(timestep.next_observation, i))
            infos = self._add_info(infos, {"final_obs": final, "final_info": {}}, i)
        return infos

    def _check_running(self) -> None:
        waiting = self._over if self.mode is AutoresetMode.DISABLED else np.zeros(self.num_envs, np.bool_)
        if self._now is None or waiting.any():
            got = "not begun" if self._now is None else f"over in worlds {np.flatnonzero(waiting).tolist()}"
            remedy = "call reset" if self._now is None else "call reset with the option reset_mask"
            raise _must_reset("step: the episode", got, remedy)

    def _check_mask(self, mask: Any) -> None:
        where, wanted, remedy = "reset: reset_mask", f"bool [{self.num_envs}]", "pass one flag for each world"
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            got = mask.dtype if isinstance(mask, np.ndarray) else type(mask).__name__
            raise DtypeError(message(where, got=got, wanted=wanted, remedy=remedy))
        if mask.shape != (self.num_envs,):
            raise ShapeError(message(where, got=list(mask.shape), wanted=wanted, remedy=remedy))
        if self._now is None:
            raise _must_reset("reset: the episode of the other worlds", "not begun", "leave reset_mask out")


def _spaces(env: Env[Any, Any]) -> tuple[Foreign, Foreign]:
    _, timestep = env.reset(env.params, keys.key(0))
    action = sample(env.action_space, keys.key(0))
    return to_gymnasium(env.observation_space, timestep.observation), to_gymnasium(env.action_space, action)


def _functions(env: Env[Any, Any], lower: Lower) -> tuple[Callable[..., Any], Callable[..., Any]]:
    limited = action_limiter(env)

    def reset(key: Key) -> tuple[Any, TimeStep]:
        return env.reset(env.params, key)

    def step(state: Any, action: Tensor, key: Key) -> tuple[Any, TimeStep]:
        return env.step(env.params, state, limited(action), key)

    return lower(reset), lower(step)


def _begin(seed: int | None, chain: Key | None, generator: np.random.Generator) -> Key:
    if seed is not None:
        return keys.key(seed)
    return keys.key(int(generator.integers(1 << 63))) if chain is None else chain


def _must_reset(where: str, got: str, remedy: str) -> gymnasium.error.ResetNeeded:
    return gymnasium.error.ResetNeeded(message(where, got=got, wanted="one that runs", remedy=remedy))


def _refuse(options: Info | None) -> None:
    if options:
        remedy = "what can vary stands in the env's params"
        raise ChoiceError(message("reset: options", got=sorted(options), wanted="none", remedy=remedy))


def _action(space: Foreign, action: Any, lead: tuple[int, ...], where: str = "step: action") -> Any:
    """Return our action for Gymnasium's, of one environment or of a batch with the leading axes `lead`."""
    if isinstance(space, spaces.Dict):
        _has_parts(where, action, dict, list(space.spaces))
        return {name: _action(part, action[name], lead, f"{where}.{name}") for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        _has_parts(where, action, tuple, list(range(len(space.spaces))))
        return tuple(_action(part, action[k], lead, f"{where}.{k}") for k, part in enumerate(space.spaces))
    array = np.asarray(action)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) and array.dtype.kind not in "iu":
        raise DtypeError(message(where, got=array.dtype, wanted="integers", remedy="convert it"))
    wanted = (*lead, *(space.shape or ()))
    if array.shape != wanted:
        remedy = "pass one action for each world"
        raise ShapeError(message(where, got=list(array.shape), wanted=list(wanted), remedy=remedy))
    return to_tensors(space, array.astype(space.dtype))


def _has_parts(where: str, action: Any, kind: type, names: list[Any]) -> None:
    given = list(action) if isinstance(action, dict) else list(range(len(action))) if isinstance(action, tuple) else []
    if not isinstance(action, kind) or set(given) != set(names):
        got, wanted = f"a {type(action).__name__} with {given}", f"a {kind.__name__} with {names}"
        raise StructureError(message(where, got=got, wanted=wanted, remedy="pass each part of the action"))
