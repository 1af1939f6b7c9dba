"""Our envs as Gymnasium's: its own checkers pass, and its own vector envs, around our singles or its CartPole, agree."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from hypothesis import given
from hypothesis import strategies as st

from purestep.core import keys
from purestep.core.env import Env, auto_reset, batched, time_limit
from purestep.core.envs import gridworld, make, pendulum
from purestep.core.errors import ChoiceError, DtypeError, ShapeError, StructureError
from purestep.core.record import take
from purestep.core.spaces import Box, Discrete, Fields, MultiBinary, MultiDiscrete, Space, Tuple, contains, sample
from purestep.core.tree import leaves
from purestep.runtime.compile import program
from purestep.runtime.effects.gymnasium.env import GymnasiumEnv, GymnasiumVectorEnv, from_gymnasium, to_gymnasium
from purestep.runtime.effects.gymnasium.spaces import to_arrays, to_tensors

from ...support.copying import NESTED, copying

MODES = list(AutoresetMode)
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def rooms() -> Env[Any, Any]:
    """Always begins in one place, ends either way within six steps, and shows a dict of floats and flags."""
    return time_limit(gridworld(["S..", ".#.", "..G"]), 6)


# --- spaces ---

numbers = st.integers(-8, 8).map(float)
bounds = st.tuples(numbers, numbers).map(sorted)
boxes = st.lists(bounds, min_size=1, max_size=4).map(
    lambda pairs: Box(tuple(low for low, _ in pairs), tuple(high for _, high in pairs), (len(pairs),))
)
flat_spaces: st.SearchStrategy[Space] = st.one_of(boxes, st.integers(1, 5).map(Discrete))
any_space: st.SearchStrategy[Space] = st.one_of(
    flat_spaces,
    st.dictionaries(st.sampled_from("zyx"), flat_spaces, min_size=1).map(lambda d: Fields(tuple(d.items()))),
)


def member(space: Space, seed: int) -> Any:
    if isinstance(space, Fields):
        return {name: member(part, seed) for name, part in space.spaces}
    return sample(space, keys.key(seed))


@given(any_space, st.integers(0, 9))
def test_members_of_a_space_are_members_there_and_back(space: Space, seed: int) -> None:
    value = member(space, seed)
    foreign = to_gymnasium(space, value)
    array = to_arrays(foreign, value)
    assert foreign.contains(array)
    assert all(torch.equal(a, b) for a, b in zip(leaves(to_tensors(foreign, array)), leaves(value), strict=True))
    foreign.seed(seed)
    theirs = to_tensors(foreign, foreign.sample())
    assert bool(contains(space, theirs))
    assert bool(contains(from_gymnasium(foreign), theirs))


@given(any_space)
def test_a_space_that_went_there_and_back_has_the_same_bounds(space: Space) -> None:
    foreign = to_gymnasium(space, member(space, 0))
    assert to_gymnasium(from_gymnasium(foreign), member(space, 0)) == foreign


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [(np.float64, torch.float32), (np.uint8, torch.uint8), (np.int16, torch.int64), (np.bool_, torch.bool)],
)
def test_dtypes_become_those_that_a_network_or_an_index_takes(dtype: Any, wanted: torch.dtype) -> None:
    foreign = spaces.Box(np.zeros(3, dtype), np.ones(3, dtype), (3,), dtype)
    tensor = to_tensors(foreign, np.array([0, 1, 1], dtype))
    assert tensor.dtype == wanted
    assert tensor.tolist() == [0, 1, 1]
    assert to_arrays(foreign, tensor).dtype == dtype


def test_a_bound_beyond_float32_is_none() -> None:
    huge = float(np.finfo(np.float64).max)
    assert from_gymnasium(spaces.Box(-huge, huge, (2,), np.float64)) == Box(-np.inf, np.inf, (2,))


def test_what_is_handed_over_is_a_copy() -> None:
    space, value = spaces.Box(-1.0, 1.0, (2,)), torch.zeros(2)
    to_arrays(space, value)[0] = 1.0
    array = np.zeros(2, np.float32)
    to_tensors(space, array)[0] = 1.0
    assert value.tolist() == array.tolist() == [0.0, 0.0]


PLAIN_AND_OURS: dict[str, tuple[Any, Space]] = {
    "numbers": (spaces.MultiDiscrete([2, 3], start=[1, -1]), MultiDiscrete((2, 3))),
    "rows of numbers": (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), MultiDiscrete((2, 3, 4, 5))),
    "rows of bits": (spaces.MultiBinary([2, 3]), MultiBinary(6)),
    "positions": (
        spaces.Tuple([spaces.Discrete(3, start=2), spaces.Dict(a=spaces.Box(0, 9, (2,), np.int16))]),
        Tuple((Discrete(3), Fields((("a", Box(0.0, 9.0, (2,), torch.int64)),)))),
    ),
}


@pytest.mark.parametrize(("foreign", "ours"), PLAIN_AND_OURS.values(), ids=PLAIN_AND_OURS)
def test_members_go_from_space_to_space_and_back(foreign: Any, ours: Space) -> None:
    assert from_gymnasium(foreign) == ours
    many = keys.split(keys.key(0), 7)
    mine = sample(ours, many)
    theirs = to_arrays(foreign, mine)
    for row in range(7):
        one = to_arrays(foreign, take(mine, row))
        assert one in foreign
        back = to_tensors(foreign, one)
        torch.testing.assert_close(back, take(mine, row), atol=0.0, rtol=0.0)
    torch.testing.assert_close(to_tensors(foreign, theirs), mine, atol=0.0, rtol=0.0)
    foreign.seed(0)
    drawn = foreign.sample()
    assert contains(ours, to_tensors(foreign, drawn)).all()
    assert from_gymnasium(to_gymnasium(ours, take(mine, 0))) == ours


def test_actions_of_every_space_pass_gymnasiums_checker() -> None:
    env = GymnasiumEnv(copying(NESTED))
    check_env(env, skip_render_check=True)
    env.reset(seed=0)
    with pytest.raises(StructureError, match=r"step: action.hands is a list with \[\], wanted a tuple with \[0, 1\]"):
        env.step({**env.action_space.sample(), "hands": []})


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Graph(spaces.Discrete(2), None)])
def test_a_space_without_counterpart_is_refused_by_name(space: Any) -> None:
    with pytest.raises(
        StructureError, match=rf"space\.a is {type(space).__name__}, wanted Discrete, .* or Tuple; wrap"
    ):
        from_gymnasium(spaces.Dict(a=space))


# --- one env ---

WARNS = {  # Gymnasium advises against these bounds, which are its own envs'
    "cartpole": "infinity",
    "pendulum": "symmetric and normalized",
}


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name under which Gymnasium makes one of our envs."""
    name = f"purestep/{request.param}-v0"
    gymnasium.register(
        name,
        entry_point=lambda **kwargs: GymnasiumEnv(make(request.param)),
        vector_entry_point=lambda **kwargs: GymnasiumVectorEnv(make(request.param), kwargs["num_envs"]),
    )
    yield name
    gymnasium.registry.pop(name)


@pytest.mark.parametrize("registered", ["acrobot", "gridworld", "mountain_car_continuous", "probe_both"], indirect=True)
def test_gymnasiums_checker_finds_nothing_to_say(registered: str) -> None:
    check_env(gymnasium.make(registered).unwrapped)


@pytest.mark.parametrize("registered", sorted(WARNS), indirect=True)
def test_gymnasiums_checker_says_of_ours_what_it_says_of_its_own(registered: str) -> None:
    name = registered.partition("/")[2].removesuffix("-v0")
    with pytest.warns(UserWarning, match=WARNS[name]):
        check_env(gymnasium.make(registered).unwrapped)


@pytest.mark.parametrize("registered", ["gridworld"], indirect=True)
def test_gymnasium_makes_them_by_name(registered: str) -> None:
    single = gymnasium.make(registered)  # with its passive checker around it
    single.reset(seed=1)
    single.step(1)
    several = gymnasium.make_vec(registered, num_envs=3, vectorization_mode="vector_entry_point")
    seen, _ = several.reset(seed=1)
    assert several.observation_space.contains(seen)
    assert several.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_a_seed_is_a_key_and_the_chain_of_keys_is_all_there_is() -> None:
    env = make("pendulum")
    ours, chain = GymnasiumEnv(env), keys.key(7)
    for episode in range(2):
        seen, info = ours.reset(seed=7) if episode == 0 else ours.reset()
        key, chain = keys.split(chain)
        state, timestep = env.reset(env.params, key)
        assert np.array_equal(seen, timestep.observation.numpy())
        assert info == {}
        for number in (0.5, -2.0, 1.0):
            seen, reward, terminated, truncated, info = ours.step(np.array([number], np.float32))
            key, chain = keys.split(chain)
            state, timestep = env.step(env.params, state, torch.tensor([number]), key)
            assert np.array_equal(seen, timestep.next_observation.numpy())
            assert (reward, terminated, truncated, info) == (float(timestep.reward), False, False, {})


def test_without_a_seed_two_envs_differ_and_gymnasiums_generator_decides() -> None:
    one, two = GymnasiumEnv(make("cartpole")), GymnasiumEnv(make("cartpole"))
    assert not np.array_equal(one.reset()[0], two.reset()[0])
    three, four = GymnasiumEnv(make("cartpole")), GymnasiumEnv(make("cartpole"))
    three.np_random, four.np_random = np.random.default_rng(3), np.random.default_rng(3)
    assert np.array_equal(three.reset()[0], four.reset()[0])


def test_an_episode_that_is_over_must_be_reset() -> None:
    env = GymnasiumEnv(rooms())
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(1)
    env.reset(seed=0)
    flags = [env.step(0)[2:4] for _ in range(6)]
    assert flags == [(False, False)] * 5 + [(False, True)]
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(1)
    env.reset()
    ends = [env.step(action)[1:4] for action in (1, 1, 2, 2)]
    assert ends == [(0.0, False, False)] * 3 + [(1.0, True, False)]


def test_wrong_actions_and_options_are_refused_in_one_line() -> None:
    env = GymnasiumEnv(rooms())
    env.reset(seed=0)
    with pytest.raises(DtypeError, match="step: action is float64, wanted integers"):
        env.step(0.5)
    with pytest.raises(ShapeError, match=r"step: action is \[1\], wanted \[\]"):
        env.step([1])
    with pytest.raises(ChoiceError, match=r"reset: options is \['low'\], wanted none"):
        env.reset(options={"low": 1})


# --- several envs ---


def play(env: Any, mode: AutoresetMode, steps: int, seed: int = 0) -> list[Any]:
    """What a vector env of rooms() tells, with actions that lead to the goal at times; in mode DISABLED the caller resets."""
    rng = np.random.default_rng(seed)
    told: list[Any] = [env.reset(seed=seed)]
    for _ in range(steps):
        told.append(env.step(rng.choice(4, env.num_envs, p=[0.1, 0.4, 0.4, 0.1])))
        over = told[-1][2] | told[-1][3]
        if mode is AutoresetMode.DISABLED and over.any():
            told.append(env.reset(options={"reset_mask": over}))
    return told


@every_mode
def test_ours_is_gymnasiums_own_vector_env_around_our_singles(mode: AutoresetMode) -> None:
    theirs = SyncVectorEnv([lambda: GymnasiumEnv(rooms())] * 3, autoreset_mode=mode)
    ours = GymnasiumVectorEnv(rooms(), 3, autoreset_mode=mode)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"] is mode
    told = play(ours, mode, 60)
    for mine, other in zip(told, play(theirs, mode, 60), strict=True):
        assert data_equivalence(mine, other, exact=True)
    steps = [step for step in told if len(step) == 5]
    assert sum(step[2].sum() for step in steps) > 3
    assert sum(step[3].sum() for step in steps) > 3
    assert any("final_obs" in step[4] for step in steps) == (mode is AutoresetMode.SAME_STEP)


def balance(seen: Any) -> Any:
    """Keeps a pole up for 500 steps and more."""
    return 0.05 * seen[..., 0] + 0.1 * seen[..., 1] + seen[..., 2] + 0.3 * seen[..., 3] > 0.0


@every_mode
@pytest.mark.slow
def test_cartpole_is_gymnasiums_cartpole_from_the_same_states(mode: AutoresetMode) -> None:
    """Gymnasium's worlds are put into our states before each step: resets are random, and it computes in float64."""
    kwargs = {"autoreset_mode": mode}
    theirs: Any = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync", vector_kwargs=kwargs)
    ours = GymnasiumVectorEnv(make("cartpole"), 3, autoreset_mode=mode)
    theirs.reset(seed=0)
    seen, _ = ours.reset(seed=0)
    rng, over, fallen, late = np.random.default_rng(0), np.zeros(3, bool), 0, 0
    for _ in range(504):
        for i, world in enumerate(theirs.envs):
            world.unwrapped.state = seen[i].astype(np.float64)
        actions = np.where([True, False, False], balance(seen), rng.integers(0, 2, 3)).astype(np.int64)
        mine: Any = ours.step(actions)
        other: Any = theirs.step(actions)
        for part in (1, 2, 3):
            assert np.array_equal(mine[part], other[part])
        fresh = over if mode is AutoresetMode.NEXT_STEP else np.zeros(3, bool)
        over = mine[2] | mine[3]
        fallen, late = fallen + int(mine[2].sum()), late + int(mine[3].sum())
        if mode is AutoresetMode.SAME_STEP:
            assert mine[4].keys() == other[4].keys()
            fresh = over
            for i in np.flatnonzero(over).tolist():
                assert np.allclose(mine[4]["final_obs"][i], other[4]["final_obs"][i], atol=1e-5)
        assert np.allclose(mine[0][~fresh], other[0][~fresh], atol=1e-5)
        seen = mine[0]
        if mode is AutoresetMode.DISABLED and over.any():
            (seen, _), _ = ours.reset(options={"reset_mask": over}), theirs.reset(options={"reset_mask": over})
            fresh = over
        assert np.all(abs(seen[fresh]) <= 0.05)
    assert fallen > 20
    assert late == 1


def test_the_worlds_are_those_of_the_pure_batch() -> None:
    pure, chain = batched(auto_reset(make("cartpole"), "select"), 4), keys.key(5)
    ours = GymnasiumVectorEnv(make("cartpole"), 4)
    seen, _ = ours.reset(seed=5)
    key, chain = keys.split(chain)
    state, timestep = pure.reset(pure.params, key)
    for _ in range(40):
        assert np.array_equal(seen, timestep.observation.numpy())
        seen, reward, terminated, truncated, _ = ours.step(np.ones(4, np.int64))
        key, chain = keys.split(chain)
        state, timestep = pure.step(pure.params, state, torch.ones(4, dtype=torch.int64), key)
        assert np.array_equal(reward, timestep.reward.numpy())
        assert np.array_equal(terminated, timestep.terminated.numpy())
        assert not truncated.any()


@every_mode
def test_some_worlds_can_be_reset_alone(mode: AutoresetMode) -> None:
    env = GymnasiumVectorEnv(make("cartpole"), 3, autoreset_mode=mode)
    env.reset(seed=0)
    *_, before = [env.step(np.ones(3, np.int64))[0] for _ in range(5)]
    mask = np.array([False, True, False])
    after, _ = env.reset(options={"reset_mask": mask})
    assert np.array_equal(after[~mask], before[~mask])
    assert np.all(abs(after[1]) <= 0.05)
    assert not np.array_equal(after[1], before[1])


@pytest.mark.slow
def test_a_compiled_vector_env_is_the_eager_one() -> None:
    lower: Callable[[Any], Any] = partial(program, backend="eager")
    eager, compiled = (GymnasiumVectorEnv(rooms(), 2, lower=way) for way in (lambda f: f, lower))
    for one, other in zip(play(eager, eager.mode, 20), play(compiled, eager.mode, 20), strict=True):
        assert data_equivalence(one, other, exact=True)


def test_gymnasiums_wrapper_counts_our_episodes() -> None:
    env: Any = RecordEpisodeStatistics(GymnasiumVectorEnv(rooms(), 2))
    returns: list[float] = []
    for step in play(env, AutoresetMode.SAME_STEP, 60)[1:]:
        if "episode" in step[4]:
            returns += step[4]["episode"]["r"][step[4]["_episode"]].tolist()
    assert set(returns) == {0.0, 1.0}


def test_wrong_calls_of_a_vector_env_are_refused_in_one_line() -> None:
    with pytest.raises(ChoiceError, match="num_envs is 0, wanted 1 or more"):
        GymnasiumVectorEnv(rooms(), 0)
    with pytest.raises(ChoiceError, match=r"autoreset_mode is 'Same', wanted one of .*; did you mean 'SameStep'"):
        GymnasiumVectorEnv(rooms(), 2, autoreset_mode="Same")
    env = GymnasiumVectorEnv(rooms(), 2, autoreset_mode="Disabled")
    with pytest.raises(ResetNeeded, match="not begun"):
        env.step(np.zeros(2, np.int64))
    with pytest.raises(ResetNeeded, match="leave reset_mask out"):
        env.reset(options={"reset_mask": np.array([True, False])})
    env.reset(seed=0)
    with pytest.raises(ShapeError, match=r"action is \[3\], wanted \[2\]"):
        env.step(np.zeros(3, np.int64))
    with pytest.raises(DtypeError, match=r"reset_mask is list, wanted bool \[2\]"):
        env.reset(options={"reset_mask": [True, False]})
    with pytest.raises(ShapeError, match=r"reset_mask is \[3\], wanted bool \[2\]"):
        env.reset(options={"reset_mask": np.ones(3, np.bool_)})
    for _ in range(6):
        env.step(np.zeros(2, np.int64))
    with pytest.raises(ResetNeeded, match=r"over in worlds \[0, 1\]"):
        env.step(np.zeros(2, np.int64))


def test_an_action_of_a_box_may_be_a_list_of_any_numbers() -> None:
    env = GymnasiumVectorEnv(time_limit(pendulum(), 3), 2)
    env.reset(seed=0)
    assert env.step([[1], [2.0]])[1].shape == (2,)


# --- the extra ---


def test_without_gymnasium_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    for name in [name for name in sys.modules if name.startswith("purestep.runtime.effects.gymnasium")]:
        monkeypatch.delitem(sys.modules, name)
    wanted = "gymnasium is absent or too old, wanted >= 1.1; pip install 'purestep[gym]'"
    with pytest.raises(ModuleNotFoundError, match=f"^{re.escape(wanted)}$"):
        importlib.import_module("purestep.runtime.effects.gymnasium.env")
