"""The probe worlds have the optimal values their docstrings name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from purestep.core import keys
from purestep.core.env import Env
from purestep.core.envs import probes
from purestep.core.envs.probes import ProbeParams, ProbeState
from purestep.core.record import replace
from purestep.core.spaces import Discrete

Probe = Env[ProbeParams, ProbeState]
GAMMA = 0.5
UNUSED = keys.key(0)


def action_values(env: Probe, state: ProbeState) -> list[float]:
    """Q*(state, a) for every action, by trying all ways to go on."""
    assert isinstance(env.action_space, Discrete)
    values = []
    for action in range(env.action_space.n):
        moved, timestep = env.step(env.params, state, torch.tensor(action), UNUSED)
        beyond = 0.0 if timestep.terminated else max(action_values(env, moved))
        values.append(float(timestep.reward) + GAMMA * beyond)
    return values


@pytest.mark.parametrize(
    ("probe", "values"),
    [
        (probes.probe_constant, {0.0: [1.0]}),
        (probes.probe_observation, {-1.0: [-1.0], 1.0: [1.0]}),
        (probes.probe_discount, {0.0: [GAMMA], 1.0: [1.0]}),
        (probes.probe_action, {0.0: [-1.0, 1.0]}),
        (probes.probe_both, {-1.0: [1.0, -1.0], 1.0: [-1.0, 1.0]}),
    ],
)
def test_every_action_is_worth_what_is_known(probe: Callable[[], Probe], values: dict[float, list[float]]) -> None:
    env = probe()
    for signal, wanted in values.items():
        assert action_values(env, ProbeState(signal=torch.tensor(signal))) == wanted


@pytest.mark.parametrize(
    ("probe", "starts"),
    [
        (probes.probe_constant, {0.0}),
        (probes.probe_observation, {-1.0, 1.0}),
        (probes.probe_discount, {0.0}),
        (probes.probe_action, {0.0}),
        (probes.probe_both, {-1.0, 1.0}),
    ],
)
def test_resets_show_every_signal_equally_often(probe: Callable[[], Probe], starts: set[float]) -> None:
    env, n = probe(), 2_000
    state, timestep = torch.vmap(env.reset, in_dims=(None, 0))(env.params, keys.split(keys.key(1), n))
    assert torch.equal(timestep.observation[:, 0], state.signal)
    assert set(state.signal.tolist()) == starts
    for signal in starts:
        share = (state.signal == signal).float().mean()
        assert abs(share - 1.0 / len(starts)) < 5.0 * 0.5 / n**0.5


@pytest.mark.parametrize("name", ["constant", "observation", "action", "both"])
def test_all_but_one_last_a_single_step(name: str) -> None:
    env: Any = getattr(probes, f"probe_{name}")()
    state, before = env.reset(env.params, keys.key(2))
    _, timestep = env.step(env.params, state, torch.tensor(0), UNUSED)
    assert timestep.terminated
    assert not timestep.truncated
    assert torch.equal(timestep.next_observation, before.observation)


def test_the_discount_probe_lasts_two_steps() -> None:
    env = probes.probe_discount()
    state, timestep = env.reset(env.params, keys.key(3))
    seen = [(float(timestep.observation), 0.0, False)]
    for _ in range(2):
        state, timestep = env.step(env.params, state, torch.tensor(0), UNUSED)
        seen.append((float(timestep.next_observation), float(timestep.reward), bool(timestep.terminated)))
    assert seen == [(0.0, 0.0, False), (1.0, 0.0, False), (1.0, 1.0, True)]


@pytest.mark.parametrize("name", ["constant", "observation", "discount", "action", "both"])
def test_the_size_of_the_reward_is_a_param(name: str) -> None:
    env: Probe = getattr(probes, f"probe_{name}")()
    state = ProbeState(signal=torch.tensor(1.0))
    _, one = env.step(env.params, state, torch.tensor(0), UNUSED)
    _, four = env.step(replace(env.params, reward=torch.tensor(4.0)), state, torch.tensor(0), UNUSED)
    assert four.reward == 4.0 * one.reward != 0.0
