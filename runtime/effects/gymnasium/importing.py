"""Gymnasium environments in the form of ours: a batch of them as one Env whose steps are effects.

Such an environment cannot be inspected, copied or saved: its own state lives in the Gymnasium env. The state here is only a
position (resets and steps so far), so that an outdated state is refused.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import torch
from attrs import define, evolve, field
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from torch import Tensor

from ....core import keys
from ....core.env import Env, Hoisted
from ....core.errors import ChoiceError, PurestepError, ShapeError, message
from ....core.keys import Key
from ....core.record import select, take
from ....core.steps import TimeStep
from ....core.tree import clone, leaves
from .spaces import AutoresetMode, Foreign, from_gymnasium, gymnasium, spaces, to_arrays, to_tensors

F = TypeVar("F", bound=Callable[..., Any])
Single = gymnasium.Env[Any, Any]
Vector = gymnasium.vector.VectorEnv[Any, Any, Any]
SEEDS = (1 << 31) - 1  # upper bound of the seeds that every env takes


class GymnasiumError(PurestepError, RuntimeError):
    """Error for an unsupported operation on a Gymnasium environment."""


def in_python(function: F) -> F:
    """Return the function; a full-graph compile refuses it."""
    return cast(F, torch.compiler.disable(function, reason="Gymnasium steps in Python"))  # type: ignore[no-untyped-call]


@define
class GymnasiumWorld:
    """A batch of Gymnasium environments stepped together; `gymnasium_world` makes one, the end of a `with` block closes it.

    `env` is the argument for `reset_rollout` and `rollout`: batched, and resetting itself. It has the form of an Env but keeps
    none of its laws: reset and step change the environment, so that a second call with the same arguments is refused or has
    another result.
    """

    vector: Vector
    masks: bool = field(init=False)  # whether ended episodes are reset by mask, instead of in the same step
    env: Env[Any, Any] = field(init=False)
    _begun: int = 0
    _steps: int = 0

    def __attrs_post_init__(self) -> None:
        self.masks = _resets_by_mask(self.vector)
        reset, step = in_python(self._reset), in_python(self._step)
        self.env = Env(
            params=(),
            reset=reset,
            step=step,
            observation_space=from_gymnasium(self.vector.single_observation_space, "observation_space"),
            action_space=from_gymnasium(self.vector.single_action_space, "action_space"),
            hoisted=Hoisted(draw=lambda params, key: (), step=step),
            clips=True,
        )

    def __enter__(self) -> "GymnasiumWorld":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the Gymnasium env."""
        self.vector.close()

    @property
    def first(self) -> Env[Any, Any]:
        """Return the environment with resets that show the first row alone, for callers that look at one observation."""

        def reset(params: Any, key: Key) -> tuple[Tensor, TimeStep]:
            first: tuple[Tensor, TimeStep] = take(self.env.reset(params, key), 0)
            return first

        return evolve(self.env, reset=in_python(reset))

    @property
    def longest(self) -> int | None:
        """Return the steps of the longest episode, where the environment's time limit says so."""
        inner = self.vector.unwrapped
        spec = inner.envs[0].spec if isinstance(inner, gymnasium.vector.SyncVectorEnv) else self.vector.spec
        return spec.max_episode_steps if spec else None

    def _stand(self, device: torch.device) -> Tensor:
        """Return the current position: the number of resets and the steps since the last one, the same for each row: [B, 2]."""
        return torch.tensor([[self._begun, self._steps]] * self.vector.num_envs, device=device)

    def _reset(self, params: Any, key: Key) -> tuple[Tensor, TimeStep]:
        del params
        seen, _ = self.vector.reset(seed=int(keys.randint(key, (), 0, SEEDS)))
        self._begun, self._steps = self._begun + 1, 0
        observation = to_tensors(self.vector.single_observation_space, seen, key.device)
        no = torch.zeros(self.vector.num_envs, dtype=torch.bool, device=key.device)
        return self._stand(key.device), TimeStep(
            observation=observation,
            reward=torch.zeros(self.vector.num_envs, device=key.device),
            terminated=no,
            truncated=no.clone(),
            next_observation=clone(observation),
        )

    def _step(self, params: Any, state: Tensor, action: Any, noise: Any) -> tuple[Tensor, TimeStep]:
        del params, noise
        if not torch.equal(state, self._stand(state.device)):
            got, wanted = (f"at {stand.tolist()}" for stand in (state[0], self._stand(state.device)[0]))
            remedy = "pass the newest worlds, or begin again: a Gymnasium world cannot go back"
            where = "gymnasium: worlds (beginnings, steps)"
            raise GymnasiumError(message(where, got=got, wanted=f"{wanted}, where the world stands", remedy=remedy))
        space, device = self.vector.single_observation_space, state.device
        taken = to_arrays(self.vector.single_action_space, _inside(self.vector.single_action_space, action))
        seen, reward, terminated, truncated, infos = self.vector.step(taken)
        self._steps += 1
        observation = to_tensors(space, seen, device)
        following, over = clone(observation), np.logical_or(terminated, truncated)
        if over.any() and self.masks:
            observation = self._reset_some(over, following)
        elif over.any():
            following = to_tensors(space, _with_finals(seen, infos, np.flatnonzero(over).tolist()), device)
        return self._stand(device), TimeStep(
            observation=observation,
            reward=torch.tensor(np.asarray(reward, np.float32), device=device),
            terminated=torch.tensor(np.asarray(terminated, np.bool_), device=device),
            truncated=torch.tensor(np.asarray(truncated, np.bool_), device=device),
            next_observation=following,
        )

    def _reset_some(self, over: Any, before: Any) -> Any:
        """Return the observations after a reset of the rows in `over`. Raises: WorldError if others were reset as well."""
        device = leaves(before)[0].device
        seen, _ = self.vector.reset(options={"reset_mask": over})
        after = to_tensors(self.vector.single_observation_space, seen, device)
        kept = select(torch.tensor(over, device=device), before, after)
        if not all(torch.equal(a, b) for a, b in zip(leaves(kept), leaves(before), strict=True)):
            got, wanted = "ignored by this env", "heeded, as its autoreset mode asks"
            remedy = "make it with autoreset_mode SAME_STEP"
            raise GymnasiumError(message("gymnasium: reset_mask", got=got, wanted=wanted, remedy=remedy))
        return after


def gymnasium_world(make: Callable[[], Single | Vector], envs: int) -> GymnasiumWorld:
    """Return `envs` copies of the environment that `make` makes; or, if it makes a vector env, that one, of `envs` rows.

    The seed of the first resets derives from the key given to `reset_rollout`; later ones use the environments' own
    generators, so key, policy and `make` determine everything that happens. Actions of a Box are clipped into it before they
    are executed; the trajectory keeps the policy's own action, to which its log-prob belongs.

    next_observation is always the one that followed the action. Copies of a single env are reset in the same step and report
    their final observation, and so must a vector env in mode SAME_STEP. One in mode DISABLED gets a reset of the rows that
    ended, and so do Gymnasium's own in mode NEXT_STEP, whose extra steps, which ignore their action, then never happen. Of
    another vector env in mode NEXT_STEP, or in an unknown one, `make` makes a single row and is called `envs` times: a row
    whose episode is over is then reset by itself, so that its extra step never happens either.

    Raises: GymnasiumError (several rows of another env in mode NEXT_STEP), StructureError (a space without counterpart),
    ShapeError, ChoiceError.
    """
    if envs < 1:
        remedy = "pass how many worlds you want"
        raise ChoiceError(message("gymnasium_world: envs", got=envs, wanted="1 or more", remedy=remedy))
    made = make()
    if isinstance(made, gymnasium.vector.VectorEnv) and not _is_row(made):
        vector = made
    else:
        first = _as_single(made)
        copies = [lambda: first, *[lambda: _as_single(make())] * (envs - 1)]
        vector = gymnasium.vector.SyncVectorEnv(copies, autoreset_mode=AutoresetMode.SAME_STEP)
    if vector.num_envs != envs:
        remedy = "let `make` make that many"
        raise ShapeError(message("gymnasium_world: num_envs", got=vector.num_envs, wanted=envs, remedy=remedy))
    return GymnasiumWorld(vector)


def _resets_by_mask(vector: Vector) -> bool:
    mode, heeds = _mode(vector)
    if mode is AutoresetMode.SAME_STEP:
        return False
    if mode is AutoresetMode.DISABLED or (mode is AutoresetMode.NEXT_STEP and heeds):
        return True
    got = mode.name if isinstance(mode, AutoresetMode) else repr(mode)
    remedy = "let `make` make it with 1 row: it is called for each of the others"
    where = f"gymnasium_world: the autoreset mode of {type(vector.unwrapped).__name__}"
    raise GymnasiumError(message(where, got=got, wanted="SAME_STEP or DISABLED", remedy=remedy))


def _is_row(vector: Vector) -> bool:
    """Return whether a vector env is a single row that would be reset one step late."""
    mode, heeds = _mode(vector)
    return vector.num_envs == 1 and not heeds and mode not in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)


class _Row(gymnasium.Env[Any, Any]):
    """A vector env of one row as a single env; its reset, of all its rows, leaves no reset for the next step."""

    def __init__(self, vector: Vector) -> None:
        self.vector, self.spec = vector, vector.spec
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        seen, _ = self.vector.reset(seed=seed, options=options)
        return self._only(seen), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the row."""
        batch = concatenate(self.action_space, [action], cast(Any, create_empty_array(self.action_space, 1)))
        seen, reward, terminated, truncated, _ = self.vector.step(batch)
        return self._only(seen), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def _only(self, seen: Any) -> Any:
        return next(iter(iterate(self.vector.observation_space, seen)))

    def close(self) -> None:
        """Close the vector env."""
        self.vector.close()


def _as_single(made: Single | Vector) -> Single:
    return _Row(made) if isinstance(made, gymnasium.vector.VectorEnv) else made


def _mode(vector: Vector) -> tuple[object, bool]:
    """Return the autoreset mode, and whether a masked reset is known to replace the reset in the next step."""
    inner = vector.unwrapped
    if isinstance(inner, gymnasium.vector.SyncVectorEnv):
        return inner.autoreset_mode, True
    if isinstance(inner, gymnasium.vector.AsyncVectorEnv):
        return inner.autoreset_mode, bool(inner.shared_memory)  # without it, the worker resets a second time
    return vector.metadata.get("autoreset_mode"), False


def _inside(space: Foreign, action: Any) -> Any:
    """Return the action, clipped into a Box: before its dtype changes, which may not be able to hold values beyond."""
    if isinstance(space, spaces.Dict):
        return {name: _inside(part, action[name]) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_inside(part, one) for part, one in zip(space.spaces, action, strict=True))
    if not isinstance(space, spaces.Box):
        return action
    if space.dtype.kind in "iu" and action.is_floating_point():
        action = torch.round(action)
    low, high = (torch.tensor(bound.astype(np.float64), device=action.device) for bound in (space.low, space.high))
    return torch.minimum(torch.maximum(action, low), high)


def _with_finals(seen: Any, infos: dict[str, Any], rows: list[int]) -> Any:
    """Return the observations [B, ...], with the final ones in the rows that ended. Raises: WorldError if there are none."""
    if "final_obs" not in infos:
        remedy = "make it with autoreset_mode DISABLED"
        wanted = "it where an episode ended, as the mode SAME_STEP asks"
        raise GymnasiumError(message("gymnasium: infos", got="without final_obs", wanted=wanted, remedy=remedy))
    return _replaced(seen, [_row(infos["final_obs"], row) for row in rows], rows)


def _row(batch: Any, row: int) -> Any:
    return {name: _row(part, row) for name, part in batch.items()} if isinstance(batch, dict) else batch[row]


def _replaced(batch: Any, values: list[Any], rows: list[int]) -> Any:
    if isinstance(batch, dict):
        return {name: _replaced(part, [value[name] for value in values], rows) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_replaced(part, [value[place] for value in values], rows) for place, part in enumerate(batch))
    changed = np.array(batch)
    changed[rows] = np.stack(values)
    return changed
