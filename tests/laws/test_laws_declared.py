"""Conventions that users declare: what follows one keeps its laws, what follows another breaks them, a mistake is one line."""

import copy
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from attrs import evolve
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import MaxAndSkipObservation, TransformReward
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Independent, LogNormal, Normal

from purestep.algorithms.language.group_advantages import group_advantages
from purestep.algorithms.losses import clipped
from purestep.algorithms.returns import discounted, lambda_returns
from purestep.algorithms.vtrace import VTrace, vtrace
from purestep.core.errors import ChoiceError
from purestep.properties import (
    Broken,
    aggregate_laws,
    check,
    distribution_laws,
    gradient_laws,
    group_laws,
    gym_laws,
    kl_laws,
    lambda_return_laws,
    module_laws,
    named_profile,
    normalizer_laws,
    optimizer_laws,
    replay_laws,
    reward_function_laws,
    run,
    schedule_laws,
    smooth,
    target_laws,
    value_loss_laws,
    vector_env_laws,
    verify,
    vtrace_laws,
    wrapper_laws,
)
from purestep.properties.framework.families import counted_cartpoles, recording
from purestep.properties.framework.law import Law, Suite
from purestep.properties.framework.report import BROKEN, PASSED, SKIPPED
from purestep.properties.suites.aggregate import WEIGHTS, Reduction
from purestep.properties.suites.gym import Around
from purestep.properties.suites.gym_vector import vectored
from purestep.properties.suites.replay import Prioritised


def v_trace_that_ends(
    log_ratios: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    lambda_: float,
    **numbers: float,
) -> Tensor:
    """V-trace targets to which a truncation is a termination, and lambda is 1."""
    ends, none = terminated | truncated, torch.zeros_like(truncated)
    return vtrace(log_ratios, rewards, values, next_values, ends, none, **numbers).targets


def one_episode(
    rewards: Tensor, values: Tensor, next_values: Tensor, *endings: Tensor, gamma: float, lambda_: float
) -> Tensor:
    """Lambda-returns of an episode that ends with its last row, whatever its endings."""
    none = torch.zeros_like(rewards, dtype=torch.bool)
    last = torch.arange(len(rewards)) == len(rewards) - 1
    return lambda_returns(rewards, values, next_values, last, none, gamma=gamma, lambda_=lambda_)


def td_that_ends(rewards: Tensor, table: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float) -> Tensor:
    """One-step targets to which a truncation is an end."""
    return rewards + gamma * (~(terminated | truncated)) * table.reshape(len(rewards), -1)[:, 0]


def td_that_bootstraps(
    rewards: Tensor, table: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float
) -> Tensor:
    """One-step targets to which a truncation is no end."""
    return td_that_ends(rewards, table, terminated, torch.zeros_like(truncated), gamma=gamma)


class Welford:
    """Running statistics of arrays, which can be combined."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(shape), np.zeros(shape)

    @property
    def var(self) -> Any:
        return self.squares / max(self.count, 1)

    def update(self, batch: Any) -> None:
        self._add(len(batch), batch.mean(0, dtype=np.float64), batch.var(0, dtype=np.float64) * len(batch))

    def combine(self, other: "Welford") -> None:
        self._add(other.count, other.mean, other.squares)

    def _add(self, count: int, mean: Any, squares: Any) -> None:
        total, off = self.count + count, mean - self.mean
        self.squares = self.squares + squares + off**2 * self.count * count / max(total, 1)
        self.mean, self.count = self.mean + off * count / max(total, 1), total

    def normalize(self, x: Any) -> Any:
        return (x - self.mean) / np.sqrt(self.var + 1e-8)


class Forgetful(Welford):
    """Combines means alone."""

    def combine(self, other: Welford) -> None:
        self.mean = (self.mean + other.mean) / 2


class Parcel(gymnasium.Env[Any, Any]):
    """A parcel on a road of four places; its observation is a dict, and its action a pair of a step and a switch."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(0, 4, (1,), np.float32),
            "hands": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))),
        }
    )
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2)))

    def _seen(self) -> dict[str, Any]:
        return {"place": np.array([self.place], np.float32), "hands": (np.int64(self.place % 2), self.switch.copy())}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.switch = int(self.np_random.integers(2)), np.zeros(2, np.int8)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place, self.switch = min(4, self.place + 1 + int(action[0])), np.asarray(action[1], np.int8)
        return self._seen(), float(self.switch.sum()), self.place == 4, False, {}


class Leaky(Parcel):
    """Returns the array that it goes on writing into."""

    def _seen(self) -> dict[str, Any]:
        return {**super()._seen(), "hands": (np.int64(self.place % 2), self.switch)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = min(4, self.place + 1 + int(action[0]))
        self.switch[:] = action[1]
        return self._seen(), float(self.switch.sum()), self.place == 4, False, {}


def log_normal(mean: Tensor, log_std: Tensor) -> Any:
    """A distribution of positive numbers."""
    return Independent(LogNormal(mean, log_std.exp()), 1)


def clipped_alone(values: Tensor, behaviour_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """The clipped loss, where the larger of two is usual."""
    return 0.5 * (behaviour_value + (values - behaviour_value).clamp(-clip, clip) - target).square()


optim = torch.optim
ends = vtrace_laws("terminate", lambda_=False, advantages=False)
amsgrad, centred = optimizer_laws("adam", amsgrad=True), optimizer_laws("rmsprop", centered=True, momentum=0.5)
slower = optimizer_laws("adagrad", rate_decay=0.125)
halved = wrapper_laws(Parcel, reward=lambda reward: reward / 2, steps=6)
positive = distribution_laws(low=0.0, sizes=(1,))
unlike = value_loss_laws(largest=False, detached=False)

test_v_trace_ends = check(ends, v_trace_that_ends)
test_one_episode = check(lambda_return_laws(one_episode=True), one_episode)
test_targets_end = check(target_laws(truncation="terminate"), td_that_ends)
test_adamax = pytest.mark.slow(check(optimizer_laws("adamax"), optim.Adamax))
test_nadam = pytest.mark.slow(check(optimizer_laws("nadam"), optim.NAdam))
test_adagrad = pytest.mark.slow(check(slower, partial(optim.Adagrad, lr_decay=0.125)))
test_adadelta = pytest.mark.slow(check(optimizer_laws("adadelta"), optim.Adadelta))
test_amsgrad = pytest.mark.slow(check(amsgrad, partial(optim.Adam, amsgrad=True)))
test_centred = pytest.mark.slow(check(centred, partial(optim.RMSprop, centered=True, momentum=0.5)))
test_arrays = check(normalizer_laws(arrays="numpy"), Welford)
test_spaces = check(gym_laws(steps=6), Parcel)
test_vector = check(vector_env_laws(Parcel, steps=6), vectored(Parcel, "SAME_STEP"))
test_wrapper = check(halved, lambda env: TransformReward(env, lambda reward: 0.5 * float(reward)))
test_positive = check(positive, log_normal)
test_blocks = check(group_laws(centre="mean", blocks=True), partial(group_advantages, scale="std"))
test_clipped_alone = check(unlike, clipped_alone)


class Clock(gymnasium.Env[Any, Any]):
    """An observation is the time, and an episode has seven steps, so that four at a time do not fit twice."""

    observation_space, action_space = spaces.Box(0, 7, (1,)), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.full(1, self.time, np.float32), 1.0, self.time == 7, False, {}


class Shown(Clock):
    """Returns the array in which it counts."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = np.zeros(1, np.float32)
        return self.count, {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.count, 1.0, bool(self.count[0] == 7), False, {}


class Guarded(Parcel):
    """Returns an array that nobody can write into."""

    def _seen(self) -> dict[str, Any]:
        seen = super()._seen()
        seen["place"].flags.writeable = False
        return seen


class Lion:
    """The optimizer of Chen et al. 2023: a step of one size, in the direction of a mean of gradient and momentum."""

    def __init__(self, learning_rate: float) -> None:
        self.rate = learning_rate

    def init(self, params: list[Tensor]) -> list[Tensor]:
        return [torch.zeros_like(param) for param in params]

    def update(self, gradients: list[Tensor], state: list[Tensor], params: list[Tensor]) -> Any:
        pairs = list(zip(state, gradients, strict=True))
        return [-self.rate * (0.9 * m + 0.1 * g).sign() for m, g in pairs], [0.99 * m + 0.01 * g for m, g in pairs]


def no_graph_for_nothing(loss: Tensor, mask: Tensor, denominator: Any = None) -> Tensor:
    """The mean over tokens, and a constant 0 where there is none."""
    count = mask.sum() if denominator is None else denominator
    return torch.where(mask, loss, 0.0).sum() / count if mask.any() else torch.zeros(())


def returns_until_terminated(rewards: Tensor, terminated: Tensor, *, gamma: float, ends: bool = True) -> Tensor:
    """Returns of a stream whose truncations nobody sees; without `ends`, terminations are no ends either."""
    return discounted(rewards, terminated & torch.tensor(ends), torch.zeros_like(terminated), gamma=gamma)


def v_trace_of(own: float) -> Callable[..., VTrace]:
    """V-trace of one lambda, whatever is asked for."""
    return lambda *columns, lambda_=1.0, **numbers: vtrace(*columns, lambda_=own, **numbers)


def without_entropy(error: Exception) -> Callable[[Tensor, Tensor], Any]:
    """Normal distributions whose entropy is an error."""

    class Unlike(Independent):  # type: ignore[type-arg]
        def entropy(self) -> Tensor:
            raise error

    return lambda mean, log_std: Unlike(Normal(mean, log_std.exp()), 1)


def unpaid(completions: list[str], answer: list[str]) -> list[float | None]:
    """Pays for the number alone; beside an answer that is no number there is no reward."""
    pairs = zip(completions, answer, strict=True)
    return [None if not right.isdigit() else float(text == right) for text, right in pairs]


def unpaid_together(completions: list[str], answer: list[str]) -> list[float | None]:
    """Gives none a reward where one has none."""
    found = unpaid(completions, answer)
    return [None] * len(found) if None in found else found


def in_part(completions: list[str], answer: list[str]) -> list[float | None]:
    """Pays for a text that the number is in, and raises for an answer that is no number."""
    return [float(str(int(right)) in text) for text, right in zip(completions, answer, strict=True)]


class Halved(Prioritised):
    """Adds a row with half of the largest priority."""

    def add(self, step: dict[str, Tensor]) -> None:
        place = self.next
        super().add(step)
        self.priority[place] *= 0.5


class Short(Prioritised):
    """Its samples are observations and rewards alone."""

    def sample(self, count: int, seed: int) -> dict[str, Tensor]:
        return {name: x for name, x in super().sample(count, seed).items() if name in ("observation", "reward")}


class Unspecified(Parcel):
    """An environment that is declared to be nondeterministic."""

    spec = EnvSpec("Parcel-v0", nondeterministic=True)


def undeclared(rows: int) -> Any:
    """Rows of parcels that do not say when they begin anew."""
    made = vectored(Parcel, "SAME_STEP")(rows)
    made.metadata = {}
    return made


def annealed(optimizer: Any) -> Any:
    """A scheduler of torch."""
    return optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.25, 12)


FAST = evolve(named_profile("quick"), examples=10)
FIGURES: dict[str, float | str] = {"r": 1.0, "l": "length"}
ROWS = ({"completion": "5", "answer": "5"}, {"completion": "6", "answer": "x"}, {"completion": "7", "answer": "x"})
adamax, nadam = optimizer_laws("adamax")["follows_the_rule"], optimizer_laws("nadam")["follows_the_rule"]
adadelta, signs = optimizer_laws("adadelta")["follows_the_rule"], optimizer_laws("lion")["follows_the_rule"]
figures = vector_env_laws("", steps=24, statistics=FIGURES)["episode_statistics"]
owned, frames = gym_laws(steps=12, writable=True)["observations_owned"], wrapper_laws(Clock, repeat=4)
paid = reward_function_laws(ROWS, low=0.0, high=1.0, answer="answer")
cut = aggregate_laws(WEIGHTS["token_mean"], live=True)
ticks = schedule_laws(start=1.0, end=0.25, steps=12, shape="linear")["tensor_count"]
until = target_laws("reward_to_go", endings="terminated")["definition"]
new = replay_laws(alpha=0.5, new="largest")["new_priority"]
ended = target_laws(truncation="terminate")["truncation_terminates"]
NO_ENTROPY = "the distribution has no entropy"
whole = vtrace_laws(lambda_=False)["on_policy_is_gae"]

KEPT: dict[str, tuple[Law, Any]] = {
    "adamax": (adamax, optim.Adamax),
    "nadam": (nadam, optim.NAdam),
    "adagrad": (slower["follows_the_rule"], partial(optim.Adagrad, lr_decay=0.125)),
    "adadelta": (adadelta, optim.Adadelta),
    "amsgrad": (amsgrad["follows_the_rule"], partial(optim.Adam, amsgrad=True)),
    "lion": (signs, Lion),
    "no gradient of nothing": (cut["nothing"], Reduction(no_graph_for_nothing, torch.sum)),
    "figures of rows": (figures, counted_cartpoles),
    "figures of episodes": (wrapper_laws(Clock, statistics=FIGURES, steps=18)["episode_statistics"], recording),
    "rewards of four steps": (frames["reward"], lambda env: MaxAndSkipObservation(env, 4)),
    "observations that are copies": (owned, Parcel),
    "observations that are guarded": (owned, Guarded),
    "returns until a termination": (until, returns_until_terminated),
    "v-trace of lambda 1": (whole, v_trace_of(1.0)),
    "priorities without weights": (evolve(new, most=3), partial(Prioritised, beta=0.0)),
    "observations and rewards": (replay_laws()["rows_stay_together"], partial(Short, alpha=0.0)),
    "rewards and none": (paid["batch_is_singles"], unpaid),
    "the number alone": (paid["near_misses"], unpaid),
}
BROKEN_BY: dict[str, tuple[Law, Any]] = {
    "adam, for adamax": (adamax, optim.Adam),
    "adam, for nadam": (nadam, optim.Adam),
    "a constant rate": (slower["follows_the_rule"], optim.Adagrad),
    "another rho": (adadelta, partial(optim.Adadelta, rho=0.5)),
    "adam, for amsgrad": (amsgrad["follows_the_rule"], optim.Adam),
    "descent, for lion": (signs, optim.SGD),
    "no graph where one is declared": (cut["live_graph"], Reduction(no_graph_for_nothing, torch.sum)),
    "rewards of three steps": (frames["reward"], lambda env: MaxAndSkipObservation(env, 3)),
    "an array that goes on": (owned, Shown),
    "returns over terminations": (until, partial(returns_until_terminated, ends=False)),
    "v-trace of another lambda": (whole, v_trace_of(0.5)),
    "new rows of half a priority": (new, partial(Halved, beta=0.0)),
    "rewards of one where another has none": (paid["batch_is_singles"], unpaid_together),
    "a text that the number is in": (paid["near_misses"], in_part),
    "targets without truncations": (ended, ended.mutant.make(td_that_ends)),
    "a graph that is cut": (gradient_laws(st.tuples(smooth((2,))))["gradient_is_the_slope"], lambda x: x.detach() ** 2),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_follows_a_convention_keeps_the_law_about_it(case: str) -> None:
    law, subject = KEPT[case]
    result = run(law, subject, profile=FAST)
    assert result.outcome == PASSED, result.text()


@pytest.mark.parametrize("case", BROKEN_BY)
def test_what_follows_another_breaks_the_law_about_it(case: str) -> None:
    law, subject = BROKEN_BY[case]
    result = run(law, subject, shrink=False)
    assert isinstance(result.error, Broken), result


def test_a_decay_of_parameters_without_a_gradient_is_found() -> None:
    law = optimizer_laws("sgd")["no_gradient_no_step"]
    assert law.mutant.edit == "decays parameters without the rate"
    assert run(law, optim.SGD, profile=FAST).outcome == PASSED
    assert run(law, law.mutant.make(optim.SGD), shrink=False).outcome == BROKEN


SKIPPED_FOR: dict[str, tuple[Law, Any, str]] = {
    "chance": (gym_laws(steps=6)["seeded"], Unspecified, "its spec says that it is nondeterministic"),
    "no mode": (vector_env_laws(Parcel)["rows_are_singles"], undeclared, "its metadata has no autoreset_mode"),
    "no infos": (vector_env_laws(Parcel)["infos"], vectored(Parcel, "SAME_STEP"), "its infos are empty"),
    "no entropy": (distribution_laws()["entropy"], without_entropy(NotImplementedError()), NO_ENTROPY),
    "no form": (distribution_laws()["entropy"], without_entropy(RuntimeError("no analytic entropy")), NO_ENTROPY),
    "no next observation": (replay_laws()["next_observation"], Short, "its samples have no next_observation"),
    "own steps": (ticks, annealed, "a scheduler counts its own steps"),
}


@pytest.mark.parametrize("case", SKIPPED_FOR)
def test_a_law_that_a_subject_gives_no_occasion_for_is_skipped_with_the_reason(case: str) -> None:
    law, subject, reason = SKIPPED_FOR[case]
    result = run(law, subject, shrink=False)
    assert (result.outcome, result.detail.startswith(reason)) == (SKIPPED, True), result


def test_the_laws_of_environments_are_skipped_where_gymnasium_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    result = run(gym_laws(steps=6)["spaces"], "CartPole-v1", shrink=False)
    assert (result.outcome, result.detail) == (SKIPPED, "gymnasium is not installed: pip install 'purestep[gym]'")


def test_an_environment_with_other_methods_can_be_copied() -> None:
    around = Around(Parcel())
    around.reset(seed=0)
    again = copy.deepcopy(around)
    around.step((1, np.ones(2)))
    assert (again.place, again.action_space) == (again.env.place, Parcel.action_space)
    assert around.place > again.place


def test_other_laws_hold_where_there_is_no_entropy() -> None:
    for error in (NotImplementedError(), RuntimeError("not implemented")):
        result = run(distribution_laws()["batch_is_rows"], without_entropy(error), profile=FAST)
        assert (result.outcome == PASSED) == isinstance(error, NotImplementedError)
    failed = run(distribution_laws()["entropy"], without_entropy(RuntimeError("out of memory")), shrink=False)
    assert (failed.outcome, failed.detail) == (BROKEN, "raised RuntimeError: out of memory")


OTHERS: dict[str, tuple[Suite, Any]] = {
    "one-step targets that bootstrap": (target_laws(truncation="terminate"), td_that_bootstraps),
    "adam, for amsgrad": (amsgrad, optim.Adam),
    "nadam, for adam": (optimizer_laws("adam"), optim.NAdam),
    "rmsprop, for centred": (centred, partial(optim.RMSprop, momentum=0.5)),
    "adagrad with a constant rate": (slower, optim.Adagrad),
    "statistics that combine means": (normalizer_laws(arrays="numpy"), Forgetful),
    "arrays that are written into": (gym_laws(steps=6), Leaky),
    "a wrapper that changes nothing": (halved, lambda env: TransformReward(env, lambda reward: reward)),
    "outcomes of both signs": (positive, lambda mean, log_std: Independent(Normal(mean, log_std.exp()), 1)),
    "the larger of two losses": (unlike, clipped),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS)
def test_what_follows_another_convention_breaks_them(case: str) -> None:
    suite, subject = OTHERS[case]
    report = verify(suite, subject)
    assert not report
    assert not [result for result in report.results if isinstance(result.error, TypeError)], report


WRONG: dict[str, Callable[[], object]] = {
    "distribution_laws: low, high": lambda: distribution_laws(high=1.0),
    "replay_laws": lambda: replay_laws(n=0),
    "schedule_laws: argument": lambda: schedule_laws(start=1.0, end=0.0, steps=4, argument="list"),
    "schedule_laws: warmup": lambda: schedule_laws(start=1.0, end=0.0, steps=4, warmup=4),
    "target_laws": lambda: target_laws(truncation="resets"),
    "value_loss_laws: reduction": lambda: value_loss_laws(reduction="median"),
    "optimizer_laws: nan": lambda: optimizer_laws("adam", nan="none"),
    "kl_laws: gradient": lambda: kl_laws(gradient="zero"),
    "module_laws": lambda: module_laws(),
    "normalizer_laws: arrays": lambda: normalizer_laws(arrays="lists"),
}


@pytest.mark.parametrize("where", WRONG)
def test_a_declaration_that_cannot_be_is_one_line(where: str) -> None:
    with pytest.raises(ChoiceError, match=rf"^{where} is .*, wanted .*; "):
        WRONG[where]()
