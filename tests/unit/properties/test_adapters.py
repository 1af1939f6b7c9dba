"""Adapters of other packages: the table leads to functions and suites, and a parallel environment is one of Gymnasium."""

import inspect
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pettingzoo import ParallelEnv  # type: ignore[import-untyped]
from tensordict import TensorDict

from purestep.core.distributions import Categorical
from purestep.core.errors import ChoiceError, StructureError
from purestep.core.spaces import Box, Discrete
from purestep.properties import Broken, gym_laws, policy_laws, run, verify
from purestep.properties.adapters import ADAPTERS, Adapter
from purestep.properties.adapters.jax import rule
from purestep.properties.adapters.modules import module_as_actor_critic
from purestep.properties.adapters.torchrl import gym_env
from purestep.properties.framework.binding import subject_for
from purestep.properties.framework.catalogue import rows
from purestep.properties.framework.choice import choose_laws
from purestep.properties.framework.matching import matches


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda one: f"{one.suite}-{one.kind}")
def test_the_table_leads_to_functions_and_keywords_of_suites(adapter: Adapter) -> None:
    module = import_module(f"purestep.properties.adapters.{adapter.make[0]}")
    assert inspect.isfunction(getattr(module, adapter.make[1]))
    laws = rows()[adapter.suite].laws
    made = getattr(import_module(laws[0], "purestep.properties.framework"), laws[1])
    if isinstance(adapter.declared, str):
        assert inspect.isfunction(getattr(module, adapter.declared))
    else:
        assert set(adapter.declared) <= set(inspect.signature(made).parameters)


class Race(ParallelEnv):  # type: ignore[misc]
    """Two runners on a line: each leaves when it is at the end; with `leaks`, a step of luck survives a reset."""

    metadata = {"name": "race"}  # noqa: RUF012

    def __init__(self, leaks: bool = False) -> None:
        self.possible_agents, self.leaks, self.luck = ["a", "b"], leaks, 0

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 8, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def _seen(self) -> dict[str, Any]:
        return {name: np.array([self.places[name]], np.float32) for name in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.agents, self.places = list(self.possible_agents), dict.fromkeys(self.possible_agents, 0)
        self.luck = self.luck if self.leaks else 0
        return self._seen(), {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.luck = (self.luck + 1) % 2
        for name in self.agents:
            self.places[name] = min(
                8, self.places[name] + int(actions[name]) + int(self.generator.integers(2)) * self.luck
            )
        seen, over = self._seen(), {name: self.places[name] == 8 for name in self.agents}
        rewards, nothing = {name: float(over[name]) for name in self.agents}, dict.fromkeys(self.agents, False)
        infos: dict[str, Any] = {name: {} for name in self.agents}
        self.agents = [name for name in self.agents if not over[name]]
        return seen, rewards, over, nothing, infos


def test_a_parallel_environment_is_checked_as_one_of_gymnasium() -> None:
    found = choose_laws(Race)
    assert found.row.suite == "gym"
    assert "an adapter takes pettingzoo.ParallelEnv" in found.line()
    report = verify(gym_laws(steps=8), found.subject)
    assert report, report


def test_a_counter_that_survives_a_reset_is_found() -> None:
    subject, _ = subject_for(rows()["gym"], Race, {"leaks": True})
    report = verify(gym_laws(steps=8), subject)
    assert {"seeded", "reset_forgets"} & {result.law.name for result in report.failures}


class WholeNumbers:
    """A spec of one whole number below `count`."""

    def __init__(self, count: int) -> None:
        self.count = count

    def is_in(self, value: torch.Tensor) -> bool:
        return value.numel() == 1 and bool((value >= 0) & (value < self.count))

    def rand(self) -> torch.Tensor:
        return torch.randint(self.count, (1,))


class Observed(dict[Any, WholeNumbers]):
    """The specs of an observation, by its nested keys."""

    def keys(self, include_nested: bool = False, leaves_only: bool = False) -> Any:
        assert include_nested
        assert leaves_only
        return super().keys()


class Toll:
    """A road of TensorDicts on which each of two players pays; `first` is the first place."""

    observation_spec = Observed({"place": WholeNumbers(9), ("purse", "left"): WholeNumbers(99)})
    action_spec, reward_keys = WholeNumbers(3), ("paid", "tip")

    def __init__(self, first: int = 0) -> None:
        self.first, self.is_closed, self.generator = first, False, torch.Generator()

    def set_seed(self, seed: int) -> None:
        self.generator.manual_seed(seed)

    def reset(self) -> TensorDict:
        luck = torch.randint(2, (1,), generator=self.generator)
        return TensorDict({"place": luck + self.first, "purse": TensorDict({"left": torch.tensor([20])})})

    def step(self, tree: TensorDict) -> TensorDict:
        place = (tree["place"] + 1 + tree["action"]).clamp(max=8)
        purse = TensorDict({"left": tree["purse", "left"] - tree["action"]})
        rewards = {"paid": -tree["action"].float(), "tip": torch.ones(1)}
        ends = {"terminated": place == 8, "truncated": purse["left"] <= 12}
        return TensorDict({"next": TensorDict({"place": place, "purse": purse, **rewards, **ends})})

    def close(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed twice")
        self.is_closed = True


class Late(Toll):
    """A road whose second and later episodes begin with the luck of the first."""

    luck = 0

    def step(self, tree: TensorDict) -> TensorDict:
        found = super().step(tree)
        self.luck += 1
        found["next", "tip"] = torch.full((1,), float(self.luck))
        return found


def test_an_environment_of_tensordicts_is_checked_as_one_of_gymnasium() -> None:
    made = gym_env(Toll)
    report = verify(gym_laws(steps=6), made)
    assert report, report
    env = made()
    env.reset(seed=0)
    seen, reward, terminated, truncated, _ = env.step(np.array([2]))
    assert (set(seen), reward, terminated, truncated) == ({"place", "purse.left"}, -1.0, False, False)
    env.close()
    env.close()
    assert env.env.is_closed


@pytest.mark.parametrize(
    ("make", "law"), [(gym_env(Toll, first=8), "spaces"), (gym_env(Late), "seeded"), (gym_env(Late), "reset_forgets")]
)
def test_a_mistake_in_an_environment_of_tensordicts_is_found(make: Any, law: str) -> None:
    result = run(gym_laws(steps=8)[law], make, shrink=False)
    assert isinstance(result.error, Broken), result


def test_a_module_of_logits_and_a_value_is_a_policy() -> None:
    def read(outputs: torch.Tensor) -> Any:
        return Categorical(logits=outputs[..., :2]), outputs[..., 2]

    def last_of_batch(outputs: torch.Tensor) -> Any:
        distribution, value = read(outputs)
        return distribution, value - value.reshape(-1)[-1]

    laws, model = policy_laws(Box(-1.0, 1.0, (4,)), Discrete(2)), torch.nn.Linear(4, 3)
    report = verify(laws, module_as_actor_critic(model, read))
    assert report, report
    assert "batch_does_not_matter" in {
        one.law.name for one in verify(laws, module_as_actor_critic(model, last_of_batch)).failures
    }
    with pytest.raises(StructureError, match=r"eval\(\)"):
        module_as_actor_critic(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout()), read)


def theirs(
    reward: torch.Tensor, state_value: Any, next_state_value: Any, terminated: Any, done: Any, gamma: Any, lmbda: Any
) -> Any:
    """Columns [T, 1] and endings that must be bool, as in TorchRL."""
    advantages, after = torch.zeros_like(reward), torch.zeros_like(reward[0])
    for t in reversed(range(reward.shape[-2])):
        delta = reward[t] + gamma * next_state_value[t] * ~terminated[t] - state_value[t]
        after = delta + gamma * lmbda * ~done[t] * after
        advantages[t] = after
    return advantages, advantages + state_value


def test_an_estimator_of_columns_and_bool_endings_keeps_the_laws() -> None:
    found = choose_laws(theirs, "estimator")
    report = verify(found.suite, found.subject)
    assert report, report


def broken(
    reward: Any, state_value: Any, next_state_value: Any, terminated: Any, done: Any, gamma: float, lmbda: float
) -> Any:
    if gamma * lmbda == 0:
        raise IndexError("tuple index out of range")
    return theirs(reward, state_value, next_state_value, terminated, done, gamma, lmbda)


def test_the_error_of_an_estimator_is_that_of_the_form_it_takes() -> None:
    found = choose_laws(broken, "estimator")
    result = run(found.suite.laws[0], found.subject, shrink=False)
    assert "IndexError: tuple index out of range" in result.line()


def returns_given_next_values(
    reward: Any, next_state_value: Any, terminated: Any, done: Any, gamma: Any, lmbda: Any
) -> Any:
    following, found = next_state_value[-1], torch.zeros_like(reward)
    for t in reversed(range(len(reward))):
        beyond = (1 - lmbda) * next_state_value[t] + lmbda * torch.where(done[t] > 0, next_state_value[t], following)
        following = reward[t] + gamma * (1 - terminated[t]) * beyond
        found[t] = following
    return found


def test_a_lambda_return_needs_no_values_of_the_states_before() -> None:
    found = choose_laws(returns_given_next_values, "lambda_return")
    report = verify(found.suite, found.subject)
    assert report, report


def test_an_optimizer_is_named_with_its_weight_decay() -> None:
    def adamw(learning_rate: float, weight_decay: float = 1e-4) -> None: ...

    assert rule(adamw) == {"rule": "adamw", "weight_decay": 1e-4}


def test_an_option_that_an_adapter_does_not_have_is_refused() -> None:
    def kl_penalty(logprob: Any, ref_logprob: Any, kl_penalty: str) -> None: ...

    kl_penalty.__module__ = "verl.trainer.ppo.core_algos"
    assert matches(kl_penalty)[0].row.suite == "kl"
    with pytest.raises(ChoiceError, match=r"--with: an option of verl.kl_penalty is 'tau', wanted one of \['kind'\]"):
        subject_for(rows()["kl"], kl_penalty, {"tau": 1.0})


def test_a_class_where_an_example_is_wanted_is_one_line() -> None:
    class ActorCriticPolicy: ...

    ActorCriticPolicy.__module__ = "stable_baselines3.common.policies"
    with pytest.raises(StructureError, match="wanted what its adapter takes: stable_baselines3"):
        choose_laws(ActorCriticPolicy, "policy")
