"""Gymnasium's worlds behind our rollout and trainer: a world that is ours underneath must give the pure run, bit for bit."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from purestep.algorithms.ppo import ppo
from purestep.core import keys
from purestep.core.env import Env, auto_reset, batched, time_limit
from purestep.core.envs import gridworld
from purestep.core.errors import ChoiceError, NonFiniteError, ShapeError, StructureError
from purestep.core.optim.optimizers import adam
from purestep.core.policy import ActorCritic, actor_critic_mlp
from purestep.core.record import replace
from purestep.core.spaces import Box, Discrete, field
from purestep.core.steps import Trajectory, ended
from purestep.core.tree import leaf_names, leaves
from purestep.runtime.effects.gymnasium.env import (
    GymnasiumEnv,
    GymnasiumError,
    GymnasiumVectorEnv,
    GymnasiumWorld,
    begin_anew,
    gymnasium_rollout,
    gymnasium_trainer,
    gymnasium_world,
)
from purestep.runtime.normalizer import running
from purestep.runtime.rollout import Worlds, reset_rollout, rollout
from purestep.runtime.train import RunState, trainer

from ...support.copying import NESTED, copying

ENVS, LENGTH = 3, 30
SAME, NEXT, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED


def rooms() -> Env[Any, Any]:
    """Always begins in one place, so that no reset's key matters; ends either way within six steps."""
    return time_limit(gridworld(["S..", ".#.", "..G"]), 6)


def single() -> GymnasiumEnv:
    return GymnasiumEnv(rooms())


def sync(mode: AutoresetMode) -> Any:
    return SyncVectorEnv([single] * ENVS, autoreset_mode=mode)


WAYS: dict[str, Callable[[], Any]] = {
    "single": single,
    "sync, same step": lambda: sync(SAME),
    "sync, next step": lambda: sync(NEXT),
    "sync, disabled": lambda: sync(DISABLED),
    "ours, same step": lambda: GymnasiumVectorEnv(rooms(), ENVS),
    "ours, disabled": lambda: GymnasiumVectorEnv(rooms(), ENVS, autoreset_mode=DISABLED),
    "rows, next step": lambda: GymnasiumVectorEnv(rooms(), 1, autoreset_mode=NEXT),
}
every_way = pytest.mark.parametrize("way", sorted(WAYS))


def model_of(env: Env[Any, Any]) -> ActorCritic:
    return actor_critic_mlp(env.observation_space, env.action_space, hidden=[8])


def equal(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))


# --- rollouts ---


@every_way
def test_a_rollout_is_the_pure_one(way: str) -> None:
    """Two rollouts in a row, in every autoreset mode: noise, final observations, flags and rewards have the same bits."""
    pure = batched(auto_reset(rooms()), ENVS)
    model = model_of(pure)
    params, first_key, second_key = model.init(keys.key(1)), keys.key(2), keys.key(3)
    with gymnasium_world(WAYS[way], ENVS) as world:
        ours, theirs = reset_rollout(pure, keys.key(0)), reset_rollout(world.env, keys.key(0))
        for key in (first_key, second_key):
            ours, wanted = rollout(pure, model, LENGTH)(params, ours, key)
            theirs, got = gymnasium_rollout(world, model, LENGTH)(params, theirs, key)
            assert leaf_names(got) == leaf_names(wanted)
            assert equal(got, wanted)
            assert equal(theirs.observation, ours.observation)
            assert wanted.terminated.sum() > 0
            assert wanted.truncated.sum() > 3


def test_what_the_policy_sees_may_be_mapped() -> None:
    pure = batched(auto_reset(rooms()), ENVS)
    model = model_of(pure)
    params = model.init(keys.key(1))

    def observe(seen: Any) -> Any:
        return {"features": 5.0 * field(seen, "features"), "action_mask": field(seen, "action_mask")}

    with gymnasium_world(single, ENVS) as world:
        _, wanted = rollout(pure, model, 5)(params, reset_rollout(pure, keys.key(0)), keys.key(2), observe)
        _, got = gymnasium_rollout(world, model, 5)(params, reset_rollout(world.env, keys.key(0)), keys.key(2), observe)
        _, plain = rollout(pure, model, 5)(params, reset_rollout(pure, keys.key(0)), keys.key(2))
    assert equal(got, wanted)
    assert not equal(got.behaviour_log_prob, plain.behaviour_log_prob)


def cartpole_model() -> ActorCritic:
    return actor_critic_mlp(Box(-9.0, 9.0, (4,)), Discrete(2), hidden=[8])


def play(make: Callable[[], Any], key: int, length: int = 60) -> Trajectory:
    model = cartpole_model()
    with gymnasium_world(make, ENVS) as world:
        worlds = reset_rollout(world.env, keys.key(key))
        return gymnasium_rollout(world, model, length)(model.init(keys.key(1)), worlds, keys.key(2))[1]


def poles(mode: AutoresetMode, limit: int = 500) -> Callable[[], Any]:
    kwargs = {"autoreset_mode": mode}
    return lambda: gymnasium.make_vec(
        "CartPole-v1", ENVS, vectorization_mode="sync", vector_kwargs=kwargs, max_episode_steps=limit
    )


@pytest.mark.parametrize("mode", [SAME, NEXT, DISABLED], ids=lambda mode: mode.name)
def test_next_observation_is_what_followed_and_observation_may_be_a_resets(mode: AutoresetMode) -> None:
    trajectory = play(poles(mode, limit=25), 0)
    position, angle = trajectory.next_observation[..., 0].abs(), trajectory.next_observation[..., 2].abs()
    assert torch.equal((position > 2.4) | (angle > 0.2094), trajectory.terminated)
    over = ended(trajectory.terminated, trajectory.truncated)[:-1]
    assert trajectory.terminated.any()
    assert trajectory.truncated.any()
    fresh = trajectory.observation[1:]
    assert torch.equal(fresh[~over], trajectory.next_observation[:-1][~over])
    assert bool((fresh[over].abs() <= 0.05).all())
    assert bool((trajectory.reward == 1.0).all())  # no extra step was paid 0


def test_all_autoreset_modes_give_one_trajectory() -> None:
    same, following, disabled = (play(poles(mode), 0) for mode in (SAME, NEXT, DISABLED))
    assert equal(same, following)
    assert equal(same, disabled)
    assert equal(same, play(lambda: gymnasium.make("CartPole-v1"), 0))


def test_the_key_decides_what_happens() -> None:
    assert equal(play(poles(SAME), 0), play(poles(SAME), 0))
    assert not equal(play(poles(SAME), 0).observation[0], play(poles(SAME), 1).observation[0])


class Scribe(gymnasium.Env[Any, Any]):
    """Writes down the actions it is given."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = spaces.Discrete(3, start=5), action_space
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.int64(5), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        return np.int64(6), 1, False, False, {}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(np.float32(-0.5), np.float32(0.25), (2,)),
        spaces.Box(np.zeros(2), np.ones(2), dtype=np.float64),
        spaces.Box(0, 1, (2,), np.uint8),
        spaces.Discrete(4, start=-7),
    ],
    ids=str,
)
def test_actions_arrive_in_their_space_and_the_trajectory_keeps_what_was_chosen(space: Any) -> None:
    scribe = Scribe(space)
    with gymnasium_world(lambda: scribe, 1) as world:
        model = model_of(world.env)
        _, trajectory = gymnasium_rollout(world, model, 40)(
            model.init(keys.key(0)), reset_rollout(world.env, keys.key(0)), keys.key(1)
        )
    assert all(space.contains(action) for action in scribe.actions)
    chosen, taken = trajectory.action[:, 0].numpy(), np.stack(scribe.actions)
    if isinstance(space, spaces.Discrete):
        assert np.array_equal(taken, chosen - 7)
        assert len(set(taken.tolist())) == 4
    else:
        nearest = chosen if space.dtype.kind == "f" else chosen.round()
        assert np.array_equal(taken, np.clip(nearest, space.low, space.high).astype(space.dtype))
        assert (chosen > space.high).any()
        assert (chosen < space.low).any()
    assert trajectory.observation[:, 0].tolist() == [0] + [1] * 39
    assert trajectory.reward.dtype == torch.float32


# --- what is refused ---


def test_a_world_that_moved_on_refuses_older_worlds() -> None:
    model = model_of(rooms())
    params = model.init(keys.key(1))
    with gymnasium_world(single, ENVS) as world:
        act = gymnasium_rollout(world, model, 4)
        start = reset_rollout(world.env, keys.key(0))
        after, _ = act(params, start, keys.key(2))
        act(params, after, keys.key(3))
        with pytest.raises(
            GymnasiumError, match=r"is at \[1, 4\], wanted at \[1, 8\], where the world stands; pass the newest"
        ):
            act(params, after, keys.key(3))
        reset_rollout(world.env, keys.key(0))
        with pytest.raises(GymnasiumError, match=r"is at \[1, 0\], wanted at \[2, 0\]"):
            act(params, start, keys.key(2))


@pytest.mark.slow
def test_a_full_graph_compile_says_why_it_cannot() -> None:
    model = model_of(rooms())
    with gymnasium_world(single, ENVS) as world:
        worlds = reset_rollout(world.env, keys.key(0))
        compiled = torch.compile(gymnasium_rollout(world, model, 2), fullgraph=True, backend="eager")
        with pytest.raises(Exception, match="Gymnasium steps in Python"):
            compiled(model.init(keys.key(1)), worlds, keys.key(2))


def test_a_vector_env_that_only_resets_in_the_next_step_is_refused() -> None:
    native = gymnasium.make_vec("CartPole-v1", ENVS, vectorization_mode="vector_entry_point")
    with pytest.raises(
        GymnasiumError,
        match="mode of CartPoleVectorEnv is NEXT_STEP, wanted SAME_STEP or DISABLED; let `make` make it with 1 row",
    ):
        gymnasium_world(lambda: native, ENVS)


class Deaf(GymnasiumVectorEnv):
    """Resets all worlds, whatever the mask says, as some native vector envs do."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=seed)


class Mute(GymnasiumVectorEnv):
    """Keeps the final observations to itself."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        seen, reward, terminated, truncated, _ = super().step(actions)
        return seen, reward, terminated, truncated, {}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Deaf(rooms(), ENVS, autoreset_mode=DISABLED), "reset_mask is ignored by this env"),
        (lambda: Mute(rooms(), ENVS), "infos is without final_obs"),
    ],
)
def test_a_vector_env_that_breaks_its_word_is_noticed(make: Callable[[], Any], says: str) -> None:
    model = model_of(rooms())
    with gymnasium_world(make, ENVS) as world:
        worlds, act = reset_rollout(world.env, keys.key(0)), gymnasium_rollout(world, model, LENGTH)
        with pytest.raises(GymnasiumError, match=says):
            act(model.init(keys.key(1)), worlds, keys.key(2))


def test_final_observations_may_come_as_one_batch() -> None:
    class Whole(GymnasiumVectorEnv):
        """Hands over all worlds' final observations as a dict of arrays."""

        def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
            seen, reward, terminated, truncated, infos = super().step(actions)
            if "final_obs" in infos:
                rows = [final or self.single_observation_space.sample() for final in infos["final_obs"]]
                infos = {"final_obs": {name: np.stack([row[name] for row in rows]) for name in rows[0]}}
            return seen, reward, terminated, truncated, infos

    model = model_of(rooms())
    params, trajectories = model.init(keys.key(1)), []
    for make in (lambda: Whole(rooms(), ENVS), lambda: GymnasiumVectorEnv(rooms(), ENVS)):
        with gymnasium_world(make, ENVS) as world:
            worlds = reset_rollout(world.env, keys.key(0))
            trajectories.append(gymnasium_rollout(world, model, LENGTH)(params, worlds, keys.key(2))[1])
    assert equal(*trajectories)


class Digits(gymnasium.Env[Any, Any]):
    """Shows two digits, which the action has to repeat, counted from 1."""

    observation_space: Any = spaces.Dict(two=spaces.MultiDiscrete([3, 4]), more=spaces.Tuple([spaces.MultiBinary(2)]))
    action_space: Any = spaces.MultiDiscrete([3, 4], start=[1, 1])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._shown = {"two": self.np_random.integers(0, [3, 4]), "more": (np.ones(2, np.int8),)}
        return self._shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        return self._shown, float((action - 1 == self._shown["two"]).mean()), True, False, {}


def test_ppo_learns_to_copy_the_digits_of_a_gymnasium_env() -> None:
    with gymnasium_world(Digits, 16) as world:
        model = actor_critic_mlp(world.env.observation_space, world.env.action_space, (32,))
        algorithm = ppo(model, adam(1e-2), entropy_coefficient=0.0)
        iteration = gymnasium_trainer(world, model, algorithm, horizon=16, lower=lambda function: function)
        state = iteration.init(keys.key(0))
        for _ in range(24):
            state, _ = iteration.iterate(state)
        _, metrics = iteration.iterate(state)
        assert float(metrics["return_sum"] / metrics["episodes"]) > 0.95


@pytest.mark.parametrize(
    "make", [lambda: GymnasiumEnv(copying(NESTED)), lambda: GymnasiumVectorEnv(copying(NESTED), 3)]
)
def test_trees_of_actions_and_observations_go_through_a_world(make: Callable[[], Any]) -> None:
    with gymnasium_world(make, 3) as world:
        assert world.env.action_space == world.env.observation_space == NESTED
        model = actor_critic_mlp(world.env.observation_space, world.env.action_space, (8,))
        iteration = gymnasium_trainer(world, model, ppo(model, adam(1e-3), minibatches=2), horizon=4, lower=lambda f: f)
        state, metrics = iteration.iterate(iteration.init(keys.key(0)))
        assert float(metrics["episodes"]) == 3
        assert all(bool(leaf.isfinite().all()) for leaf in leaves(state.learner.params))


def test_wrong_numbers_and_spaces_are_refused_in_one_line() -> None:
    with pytest.raises(ChoiceError, match="envs is 0, wanted 1 or more"):
        gymnasium_world(single, 0)
    with pytest.raises(ShapeError, match="num_envs is 3, wanted 4"):
        gymnasium_world(lambda: sync(SAME), 4)
    with pytest.raises(StructureError, match="gymnasium: action_space is Text, wanted Discrete"):
        gymnasium_world(lambda: Scribe(spaces.Text(2)), 1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [SAME, NEXT, DISABLED], ids=lambda mode: mode.name)
def test_worlds_in_processes_of_their_own_play_the_same(mode: AutoresetMode) -> None:
    def processes(shared_memory: bool) -> Any:
        makers = [lambda: gymnasium.make("CartPole-v1")] * ENVS
        return AsyncVectorEnv(makers, autoreset_mode=mode, context="fork", shared_memory=shared_memory)

    assert equal(play(lambda: processes(True), 0), play(poles(SAME), 0))
    if mode is NEXT:
        with pytest.raises(GymnasiumError, match="wanted SAME_STEP or DISABLED"):
            gymnasium_world(lambda: processes(False), ENVS)
    else:
        assert equal(play(lambda: processes(False), 0), play(poles(SAME), 0))


# --- training ---


def as_it_is(function: Any) -> Any:
    return function


def learner(world: GymnasiumWorld | None, normalizer: Any = None, lower: Any = as_it_is) -> Any:
    env = rooms()
    model = model_of(env)
    algorithm = ppo(model, adam(1e-3), epochs=2, minibatches=2)
    if world is None:
        return trainer(env, model, algorithm, envs=ENVS, horizon=8, normalizer=normalizer)
    return gymnasium_trainer(world, model, algorithm, horizon=8, normalizer=normalizer, lower=lower)


@pytest.mark.parametrize("normalizer", [None, running(observations=False)], ids=["plain", "rewards scaled"])
def test_training_is_the_pure_training(normalizer: Any) -> None:
    """Parameters, optimiser, statistics, key, counters and all metrics, after each of four iterations."""
    pure = learner(None, normalizer)
    with gymnasium_world(single, ENVS) as world:
        foreign = learner(world, normalizer)
        assert (foreign.steps, foreign.metrics) == (pure.steps, pure.metrics)
        ours, theirs = pure.init(keys.key(4)), foreign.init(keys.key(4))
        finished = 0.0
        for _ in range(4):
            ours, wanted = pure.iterate(ours)
            theirs, got = foreign.iterate(theirs)
            unseen = Worlds(state=(), observation=(), memory=())
            assert equal(replace(theirs, worlds=unseen), replace(ours, worlds=unseen))
            assert {name: float(value) for name, value in got.items()} == {n: float(v) for n, v in wanted.items()}
            finished += float(got["episodes"])
        assert finished > 8


def test_only_the_update_is_lowered() -> None:
    seen = []

    def lower(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            seen.append([type(argument).__name__ for argument in arguments])
            return function(*arguments)

        return call

    with gymnasium_world(single, ENVS) as world:
        run = learner(world, lower=lower)
        run.iterate(run.init(keys.key(0)))
    assert seen == [["TrainState", "tuple", "Episodes", "Worlds", "Transition", "Tensor"]]


def test_a_saved_run_goes_on_with_what_it_learnt_and_new_episodes() -> None:
    with gymnasium_world(single, ENVS) as world:
        run = learner(world)
        saved, _ = run.iterate(run.init(keys.key(0)))
    with gymnasium_world(single, ENVS) as world:
        run = learner(world)
        with pytest.raises(GymnasiumError, match="begin again"):
            run.iterate(saved)
        state: RunState = begin_anew(world, saved)
        assert equal(state.learner, saved.learner)
        assert torch.equal(state.env_steps, saved.env_steps)
        assert not torch.equal(state.key, saved.key)
        assert state.episodes.length.tolist() == [0.0] * ENVS
        after, _ = run.iterate(state)
        assert int(after.env_steps) == 2 * run.steps


class Spoilt(gymnasium.Env[Any, Any]):
    """Its rewards, or observations, are NaN from the 11th step on."""

    observation_space, action_space = spaces.Box(-9.0, 9.0, (4,)), spaces.Discrete(2)

    def __init__(self, part: str) -> None:
        self.part, self.steps = part, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        bad = np.nan if self.steps > 10 else 1.0
        seen = np.full(4, bad if self.part == "next_observation" else 1.0, np.float32)
        return seen, bad if self.part == "reward" else 1.0, False, False, {}


@pytest.mark.parametrize("part", ["reward", "next_observation"])
def test_nan_is_an_error_that_names_its_step_and_env(part: str) -> None:
    """The line of the pure loop, in the iteration in which it happened."""
    made = iter(["nothing", part, part])
    model = cartpole_model()
    with gymnasium_world(lambda: Spoilt(next(made)), 3) as world:
        run = gymnasium_trainer(world, model, ppo(model, adam(1e-3)), horizon=8, lower=as_it_is)
        state, metrics = run.iterate(run.init(keys.key(0)))
        assert metrics["finite"] == 1.0
        said = (
            rf"^gymnasium_trainer: iteration 2: {part} is NaN in 2 of 3 envs \(first envs\[1\]\) at step 3 of 8, then "
        )
        with pytest.raises(NonFiniteError, match=said + ".* correct the environment, and go on with begin_anew"):
            run.iterate(state)


def test_a_rate_that_is_too_high_is_no_fault_of_the_env() -> None:
    model = cartpole_model()
    with gymnasium_world(lambda: Spoilt("nothing"), 3) as world:
        run = gymnasium_trainer(world, model, ppo(model, adam(3e38)), horizon=8, lower=as_it_is)
        with pytest.raises(NonFiniteError, match=r"^gymnasium_trainer: iteration 1: \w+.* is .*; lower the learning"):
            run.iterate(run.init(keys.key(0)))
