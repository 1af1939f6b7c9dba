"""Normalisers of a run: they stand still while the policy acts, and then hold what numpy says of all that was played."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from purestep.algorithms.algorithm import Algorithm, TrainState
from purestep.core import keys
from purestep.core.env import auto_reset, batched
from purestep.core.envs import make
from purestep.core.errors import ChoiceError
from purestep.core.policy import actor_critic_mlp
from purestep.core.record import record, replace
from purestep.core.spaces import Box, Discrete, Fields, MultiBinary, Tuple, sample
from purestep.core.steps import Trajectory, ended
from purestep.core.tree import leaves, same_structure, tree_map
from purestep.runtime.normalizer import Normalizer, RunningScales, identity, running
from purestep.runtime.rollout import RolloutFunction, reset_rollout, rollout
from purestep.runtime.train import RunState, trainer

ENV = make("pendulum")
MODEL = actor_critic_mlp(ENV.observation_space, ENV.action_space, (4,))
ENVS, HORIZON, GAMMA = 3, 70, 0.9  # a pendulum's episode has 200 steps
CPU = torch.device("cpu")


def recording(seen: list[Trajectory]) -> Algorithm:
    """Learns nothing; what it is shown stands in `seen`."""

    def update(state: TrainState, trajectory: Trajectory, key: Tensor) -> Any:
        seen.append(trajectory)
        return replace(state, step=state.step + 1), {}

    def init(key: Tensor) -> TrainState:
        return TrainState(params=MODEL.init(key), optimizer=(), step=torch.tensor(0))

    return Algorithm(init=init, update=update, metrics=())


def seen_by(act: RolloutFunction, normalizer: Normalizer, state: RunState) -> Trajectory:
    """The rollout of the next iteration, as the world tells it."""
    key, scales = keys.split(state.key, 3)[0], state.normalizer
    return act(state.learner.params, state.worlds, key, lambda x: normalizer.observe(scales, x))[1]


def played(normalizer: Normalizer | None, iterations: int) -> tuple[list[RunState], list[Trajectory], list[Trajectory]]:
    """The states before and after each iteration, what the algorithm was shown, and what was played."""
    shown: list[Trajectory] = []
    made = trainer(ENV, MODEL, recording(shown), envs=ENVS, horizon=HORIZON, normalizer=normalizer)
    states, raw = [made.init(keys.key(4))], []
    act = rollout(batched(auto_reset(ENV), ENVS), MODEL, HORIZON)
    for _ in range(iterations):
        raw.append(seen_by(act, normalizer or identity(), states[-1]))
        states.append(made.iterate(states[-1])[0])
    return states, shown, raw


def assert_bits(got: Any, wanted: Any) -> None:
    same_structure("test", got, wanted)
    assert all(torch.equal(a, b) for a, b in zip(leaves(got), leaves(wanted), strict=True))


def test_identity_scales_nothing() -> None:
    states, shown, raw = played(None, 2)
    assert_bits(shown, raw)
    assert all(state.normalizer == () for state in states)


def test_statistics_are_numpys_of_everything_played() -> None:
    states, _, raw = played(running(gamma=GAMMA), 3)
    assert bool(torch.stack([ended(r.terminated, r.truncated).any() for r in raw]).any())
    for n in range(4):
        scales: RunningScales = states[n].normalizer
        if n == 0:
            assert_bits(scales, running(gamma=GAMMA).init(ENV.observation_space, ENVS, CPU))
            continue
        seen = np.concatenate([r.observation.double().numpy().reshape(-1, 3) for r in raw[:n]])
        assert float(scales.observation.count) == len(seen) == n * ENVS * HORIZON
        np.testing.assert_allclose(scales.observation.mean.numpy(), seen.mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scales.observation.variance.numpy(), seen.var(0), rtol=1e-4, atol=1e-5)
        returns, totals = np.zeros(ENVS), []
        for r in raw[:n]:
            over = ended(r.terminated, r.truncated).numpy()
            for t in range(HORIZON):
                returns = GAMMA * returns + r.reward[t].double().numpy()
                totals.append(returns)
                returns = np.where(over[t], 0.0, returns)
        np.testing.assert_allclose(scales.reward.returns.variance.numpy(), np.var(totals), rtol=1e-4)
        np.testing.assert_allclose(scales.reward.running_return.numpy(), returns, rtol=1e-4, atol=1e-4)


def test_statistics_stand_still_while_the_policy_acts() -> None:
    """Every behaviour log-prob is that of the statistics before the rollout, which the update sees too."""
    normalizer = running()
    states, shown, raw = played(normalizer, 2)
    for before, seen, true in zip(states, shown, raw, strict=False):
        assert torch.equal(seen.observation, normalizer.observe(before.normalizer, true.observation))
        assert torch.equal(seen.next_observation, normalizer.observe(before.normalizer, true.next_observation))
        distribution, _, _ = MODEL.apply(before.learner.params, seen.observation, ())
        torch.testing.assert_close(distribution.log_prob(seen.action), seen.behaviour_log_prob, rtol=1e-5, atol=1e-5)
    distribution, _, _ = MODEL.apply(states[1].learner.params, raw[1].observation, ())
    assert not torch.allclose(distribution.log_prob(raw[1].action), raw[1].behaviour_log_prob, atol=1e-3)


def test_the_learner_sees_numbers_of_one_size() -> None:
    clip = 0.25
    states, shown, raw = played(running(gamma=GAMMA, clip=clip), 2)
    scales, seen, true = states[1].normalizer, shown[1], raw[1]
    wanted = true.reward / torch.sqrt(scales.reward.returns.variance + 1e-8)
    torch.testing.assert_close(seen.reward, wanted.clamp(-clip, clip), rtol=1e-5, atol=1e-5)
    spread = torch.sqrt(scales.observation.variance + 1e-8)
    wanted = ((true.observation - scales.observation.mean) / spread).clamp(-clip, clip)
    torch.testing.assert_close(seen.observation, wanted, rtol=1e-4, atol=1e-4)
    for numbers in (seen.observation, seen.reward):  # some are clipped, some are not
        assert numbers.abs().max().item() == clip > numbers.abs().min().item()
    for name in ("action", "terminated", "truncated", "behaviour_log_prob"):
        assert torch.equal(getattr(seen, name), getattr(true, name))


@pytest.mark.parametrize(("observations", "rewards"), [(True, False), (False, True), (False, False)])
def test_either_may_be_left_alone(observations: bool, rewards: bool) -> None:
    normalizer = running(observations=observations, rewards=rewards)
    states, shown, raw = played(normalizer, 2)
    scales = states[-1].normalizer
    assert (scales.observation == ()) is not observations
    assert (scales.reward == ()) is not rewards
    assert torch.equal(shown[1].observation, raw[1].observation) is not observations
    assert torch.equal(shown[1].next_observation, raw[1].next_observation) is not observations
    assert torch.equal(shown[1].reward, raw[1].reward) is not rewards


def test_an_observation_that_is_no_box_is_refused_unless_left_alone() -> None:
    with pytest.raises(ChoiceError) as error:
        running().init(Discrete(3), 2, CPU)
    assert str(error.value) == "running: observation space is Discrete, wanted a Box of floats; pass observations=False"
    assert running(observations=False).init(Discrete(3), 2, CPU).observation == ()


def test_nothing_seen_changes_nothing() -> None:
    scales = running().init(Box(-math.inf, math.inf, (2,)), 3, CPU)
    assert running().observe(scales, torch.tensor([[3.0, -4.0]])).tolist() == [[3.0, -4.0]]
    assert scales.reward.running_return.shape == (3,)


def test_to_freeze_is_not_to_update() -> None:
    """An evaluation looks through statistics that it leaves as they are."""
    normalizer = running()
    states, _, _ = played(normalizer, 1)
    scales = states[1].normalizer
    before = tree_map(torch.clone, scales)
    env = batched(auto_reset(ENV), ENVS)
    _, some = rollout(env, MODEL, 5)(
        states[1].learner.params, reset_rollout(env, keys.key(0)), keys.key(1), lambda x: normalizer.observe(scales, x)
    )
    normalizer.scale(scales, some)
    after = normalizer.update(scales, some)
    assert_bits(scales, before)
    assert float(after.observation.count) == float(before.observation.count) + 5 * ENVS


SEEN = Fields(
    (
        ("speed", Box(-9.0, 9.0, (2,))),
        ("place", Discrete(4)),
        ("image", Box(0.0, 255.0, (3,))),
        ("inner", Tuple((MultiBinary(2), Box(-1.0, 1.0, (1,))))),
        ("action_mask", Box(0.0, 1.0, (2,))),
    )
)


@record
class Speed:
    speed: Tensor
    place: Tensor


def test_each_part_of_an_observation_is_scaled_by_itself_and_whole_numbers_and_masks_are_not() -> None:
    seen = sample(SEEN, keys.split(keys.key(0), 60).reshape(20, 3, 2))
    seen = {**seen, "image": seen["image"].to(torch.uint8)}
    normalizer = running(rewards=False)
    played = Trajectory(
        **dict.fromkeys(("action", "reward", "terminated", "truncated", "behaviour_log_prob"), torch.zeros(20, 3)),
        observation=seen,
        next_observation=seen,
    )
    scales = normalizer.update(normalizer.init(SEEN, 3, CPU), played)
    same_structure("test", scales, normalizer.init(SEEN, 3, CPU))
    scaled = normalizer.scale(scales, played)
    same_structure("test", scaled, played)
    for part, raw in (
        (scaled.observation["speed"], seen["speed"]),
        (scaled.next_observation["inner"][1], seen["inner"][1]),
    ):
        wanted = (raw - raw.mean((0, 1))) / raw.std((0, 1), correction=0)
        torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-5)
    for name in ("place", "image", "action_mask"):
        assert torch.equal(scaled.observation[name], seen[name])
    assert torch.equal(scaled.observation["inner"][0], seen["inner"][0])


def test_a_record_is_scaled_to_a_record() -> None:
    space = Fields((("speed", Box(-9.0, 9.0, ())), ("place", Discrete(4))))
    scales = running(rewards=False).init(space, 1, CPU)
    seen = Speed(speed=torch.tensor(20.0), place=torch.tensor(3))
    told = running().observe(scales, seen)
    assert isinstance(told, Speed)
    assert (float(told.speed), int(told.place)) == (10.0, 3)


def test_an_observation_without_floats_is_refused() -> None:
    with pytest.raises(
        ChoiceError, match="observation space is Fields, wanted a Box of floats; pass observations=False"
    ):
        running().init(Fields((("place", Discrete(4)), ("image", Box(0, 9, (2,), torch.uint8)))), 1, CPU)
