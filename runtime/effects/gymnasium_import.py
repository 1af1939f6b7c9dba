"""Gymnasium's worlds behind our rollout and trainer: policy and update are ours, the world is a foreign effect.

Such a world cannot be seen, copied or saved: its own state lives in the Gymnasium env. The `Worlds` of a rollout hold what
the policy sees next, the running totals of episodes and where the world stood, so that a stale one is refused; a checkpoint
of them cannot bring the world back. A run that resumes keeps all it has learnt and begins new episodes:
`replace(state, worlds=begin(world.env, key))`.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from attrs import define, field
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from torch import Tensor

from ...algorithms.algorithm import Algorithm, Metrics, TrainState
from ...core import keys
from ...core.env import Env, Hoisted, clear_statistics, episode_statistics
from ...core.errors import ChoiceError, PurestepError, ShapeError, message
from ...core.keys import Key
from ...core.policy import ActorCritic
from ...core.record import replace, select
from ...core.steps import TimeStep, Trajectory
from ...core.tree import all_finite, clone, leaves
from ..compile import program
from ..normalizer import Normalizer, identity
from ..rollout import Rollout, begin, rollout
from ..train import COUNTS, RunState, Trainer
from .gymnasium_spaces import AutoresetMode, Foreign, from_gymnasium, spaces, to_arrays, to_tensors

Vector = VectorEnv[Any, Any, Any]
Lower = Callable[[Callable[..., Any]], Callable[..., Any]]
SEEDS = (1 << 31) - 1  # those that every env takes


class WorldError(PurestepError, RuntimeError):
    """A foreign world was asked for what it cannot do."""


@define
class GymnasiumWorld:
    """A batch of Gymnasium worlds that are stepped together; `gymnasium_world` makes one, leaving a `with` block closes it.

    `env` is what `begin` and `rollout` take: batched, resetting itself, counting its episodes. It has the form of an Env but
    is none by law: its reset and step move the world, so whoever calls them twice with the same arguments gets two answers.
    """

    vector: Vector
    masks: bool  # whether an ending is followed by a reset of its own, instead of one in the same step
    env: Env[Any, Any] = field(init=False)
    _begun: int = 0
    _steps: int = 0

    def __attrs_post_init__(self) -> None:
        reset, step = (torch.compiler.disable(f, reason="Gymnasium steps in Python") for f in (self._reset, self._step))
        foreign: Env[Any, Any] = Env(
            params=(),
            reset=reset,
            step=step,
            observation_space=from_gymnasium(self.vector.single_observation_space, "observation_space"),
            action_space=from_gymnasium(self.vector.single_action_space, "action_space"),
            hoisted=Hoisted(draw=lambda params, key: (), step=step),
        )
        self.env = episode_statistics(foreign)

    def __enter__(self) -> "GymnasiumWorld":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the Gymnasium env."""
        self.vector.close()

    def _stand(self, device: torch.device) -> Tensor:
        """Where the world stands: how often it was begun and the steps since, for each world, as all of a state is: [B, 2]."""
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

    def _step(self, params: Any, state: Tensor, action: Tensor, noise: Any) -> tuple[Tensor, TimeStep]:
        del params, noise
        if not torch.equal(state, self._stand(state.device)):
            got, wanted = (f"at {stand.tolist()}" for stand in (state[0], self._stand(state.device)[0]))
            remedy = "pass the newest worlds, or begin again: a Gymnasium world cannot go back"
            where = "gymnasium: worlds (beginnings, steps)"
            raise WorldError(message(where, got=got, wanted=f"{wanted}, where the world stands", remedy=remedy))
        space, device = self.vector.single_observation_space, action.device
        taken = _inside(self.vector.single_action_space, to_arrays(self.vector.single_action_space, action))
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
        """What is seen after a reset of the worlds in `over`. Raises: WorldError where others were reset as well."""
        device = leaves(before)[0].device
        seen, _ = self.vector.reset(options={"reset_mask": over})
        after = to_tensors(self.vector.single_observation_space, seen, device)
        kept = select(torch.tensor(over, device=device), before, after)
        if not all(torch.equal(a, b) for a, b in zip(leaves(kept), leaves(before), strict=True)):
            got, wanted = "ignored by this env", "heeded, as its autoreset mode asks"
            remedy = "make it with autoreset_mode SAME_STEP"
            raise WorldError(message("gymnasium: reset_mask", got=got, wanted=wanted, remedy=remedy))
        return after


def gymnasium_world(make: Callable[[], gymnasium.Env[Any, Any] | Vector], envs: int) -> GymnasiumWorld:
    """`envs` copies of the world that `make` makes; or, where it makes a vector env, that one, of `envs` worlds.

    The seed of the first resets derives from the key given to `begin`; later ones go on with the worlds' own generators, so
    key, policy and `make` decide all that happens. Actions of a Box are clipped into it on their way; the trajectory keeps
    what the policy chose, to which its log-prob belongs.

    next_observation is always what followed the action. Copies of a single env are reset in the same step and hand over
    their final observation, and so must a vector env in mode SAME_STEP. One in mode DISABLED gets a reset of the worlds that
    ended, and so do Gymnasium's own in mode NEXT_STEP, whose extra steps, which ignore their action, then never come.

    Raises: StructureError (a space without counterpart, another env in mode NEXT_STEP), ShapeError, ChoiceError.
    """
    if envs < 1:
        remedy = "pass how many worlds you want"
        raise ChoiceError(message("gymnasium_world: envs", got=envs, wanted="1 or more", remedy=remedy))
    first = make()
    if not isinstance(first, VectorEnv):
        copies = [lambda: first, *[make] * (envs - 1)]
        first = SyncVectorEnv(copies, autoreset_mode=AutoresetMode.SAME_STEP)
    if first.num_envs != envs:
        remedy = "let `make` make that many"
        raise ShapeError(message("gymnasium_world: num_envs", got=first.num_envs, wanted=envs, remedy=remedy))
    return GymnasiumWorld(first, _resets_by_mask(first))


def _resets_by_mask(vector: Vector) -> bool:
    inner = vector.unwrapped
    own = isinstance(inner, SyncVectorEnv | AsyncVectorEnv)
    mode = inner.autoreset_mode if own else vector.metadata.get("autoreset_mode")
    # Without shared memory Gymnasium's worker forgets to cancel the reset that a masked one has replaced.
    heeds = own and (isinstance(inner, SyncVectorEnv) or inner.shared_memory)
    if mode is AutoresetMode.SAME_STEP:
        return False
    if mode is AutoresetMode.DISABLED or (mode is AutoresetMode.NEXT_STEP and heeds):
        return True
    got = mode.name if isinstance(mode, AutoresetMode) else repr(mode)
    remedy = "make it with such an autoreset_mode, or let `make` make a single env"
    where = f"gymnasium_world: the autoreset mode of {type(inner).__name__}"
    raise WorldError(message(where, got=got, wanted="SAME_STEP or DISABLED", remedy=remedy))


def _inside(space: Foreign, action: Any) -> Any:
    return np.clip(action, space.low, space.high) if isinstance(space, spaces.Box) else action


def _with_finals(seen: Any, infos: dict[str, Any], rows: list[int]) -> Any:
    """The observations [B, ...], in the rows whose episode ended the final ones. Raises: WorldError without any."""
    if "final_obs" not in infos:
        remedy = "make it with autoreset_mode DISABLED"
        wanted = "it where an episode ended, as the mode SAME_STEP asks"
        raise WorldError(message("gymnasium: infos", got="without final_obs", wanted=wanted, remedy=remedy))
    return _replaced(seen, [_row(infos["final_obs"], row) for row in rows], rows)


def _row(batch: Any, row: int) -> Any:
    return {name: _row(part, row) for name, part in batch.items()} if isinstance(batch, dict) else batch[row]


def _replaced(batch: Any, values: list[Any], rows: list[int]) -> Any:
    if isinstance(batch, dict):
        return {name: _replaced(part, [value[name] for value in values], rows) for name, part in batch.items()}
    changed = np.array(batch)
    changed[rows] = np.stack(values)
    return changed


def gymnasium_rollout(world: GymnasiumWorld, model: ActorCritic, length: int) -> Rollout:
    """A function that runs `length` steps of `model` in the world, to be called like what `rollout` makes.

    Not compiled, and not to be: it walks through Python step by step, and a full-graph compile refuses it. The policy's noise
    is that of `rollout` for the same key. The worlds that go in come from `begin(world.env, key)` or the call before.
    Raises: WorldError for older ones.
    """
    return rollout(world.env, model, length)


def gymnasium_trainer(
    world: GymnasiumWorld,
    model: ActorCritic,
    algorithm: Algorithm,
    *,
    horizon: int,
    normalizer: Normalizer | None = None,
    lower: Lower = program,
) -> Trainer:
    """Trains `algorithm` in the world, `horizon` steps at a time; what `trainer` is for our own envs, metrics included.

    Only the update is compiled, by `lower`, e.g. `functools.partial(program, artefact=path)`; so `iterate` is called from
    Python and must not be compiled. It moves the world: its states are to be used once, in order (see above for resuming).
    """
    envs = world.vector.num_envs
    act = gymnasium_rollout(world, model, horizon)
    scaling = normalizer or identity()

    def init(key: Key) -> RunState:
        learner_key, worlds_key, key = keys.split(key, 3)
        return RunState(
            learner=algorithm.init(learner_key),
            worlds=begin(world.env, worlds_key),
            normalizer=scaling.init(world.env.observation_space, envs, key.device),
            key=key,
            env_steps=torch.zeros((), dtype=torch.int64, device=key.device),
        )

    def learn(learner: TrainState, scales: Any, raw: Trajectory, key: Key) -> tuple[TrainState, Any, Metrics]:
        after, metrics = algorithm.update(learner, scaling.scale(scales, raw), key)
        finite = all_finite((after.params, raw.reward)).to(torch.float32)
        return after, scaling.update(scales, raw), {**metrics, "finite": finite}

    update = lower(learn)

    def iterate(state: RunState) -> tuple[RunState, Metrics]:
        act_key, update_key, key = keys.split(state.key, 3)
        worlds = replace(state.worlds, state=clear_statistics(state.worlds.state))
        worlds, raw = act(state.learner.params, worlds, act_key, lambda seen: scaling.observe(state.normalizer, seen))
        learner, scales, metrics = update(state.learner, state.normalizer, raw, update_key)
        counted = worlds.state
        steps = state.env_steps + horizon * envs
        after = RunState(learner=learner, worlds=worlds, normalizer=scales, key=key, env_steps=steps)
        return after, {
            **metrics,
            "episodes": counted.finished.sum().to(torch.float32),
            "return_sum": counted.return_sum.sum(),
            "length_sum": counted.length_sum.sum().to(torch.float32),
        }

    return Trainer(init=init, iterate=iterate, steps=horizon * envs, metrics=(*algorithm.metrics, *COUNTS))
