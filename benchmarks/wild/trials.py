"""Suites on the functions of one package, run in that package's environment: `python -m benchmarks.wild.trials NAME`.

A subject that has another form than its suite asks for is adapted in a few lines here; the conventions are those that the
package documents. Each result is printed as one line of JSON.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from purestep.properties import (
    chat_template_laws,
    distribution_laws,
    estimator_laws,
    gym_laws,
    lambda_return_laws,
    normalizer_laws,
    reward_function_laws,
    vector_env_laws,
    verify,
    wrapper_laws,
)
from purestep.properties.framework.law import Suite
from purestep.properties.suites.gym import registered
from purestep.properties.suites.gym_vector import vectored

Trial = tuple[str, Callable[[], Suite], Any]
ENUMERATED = {"expected_advantage", "gradient_is_exact"}  # laws of the bootstrap convention that need float64 inside


def streams() -> Suite:
    """Laws of estimators that are pure functions of one stream in float32."""
    return estimator_laws() - ENUMERATED


def gymnasium() -> Iterator[Trial]:
    import numpy as np
    from gymnasium import wrappers as w
    from gymnasium.wrappers.utils import RunningMeanStd

    names = ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1")
    for name in (*names, "Blackjack-v1", "FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"):
        yield name, lambda: gym_laws(steps=16), name
    for name in ("CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0"):
        yield f"{name}, observations written into", lambda: gym_laws(steps=12, writable=True), name
    for name in ("CartPole-v1", "FrozenLake-v1", "Taxi-v4", "Pendulum-v1"):
        for mode in ("SAME_STEP", "NEXT_STEP", "DISABLED"):
            one = registered(name, 9)
            yield f"SyncVectorEnv {name} {mode}", lambda one=one: vector_env_laws(one, steps=12), vectored(one, mode)
    around: dict[str, tuple[Callable[[], Suite], Any]] = {
        "FrameStackObservation": (
            lambda: wrapper_laws("CartPole-v1", stack=3),
            lambda env: w.FrameStackObservation(env, 3),
        ),
        "RescaleAction": (
            lambda: wrapper_laws("Pendulum-v1", action=lambda action: 2 * action),
            lambda env: w.RescaleAction(env, np.float32(-1), np.float32(1)),
        ),
        "ClipReward": (
            lambda: wrapper_laws("Pendulum-v1", reward=lambda reward: np.clip(reward, -1, 0.5)),
            lambda env: w.ClipReward(env, -1, 0.5),
        ),
        "ReshapeObservation": (
            lambda: wrapper_laws("Pendulum-v1", observation=lambda seen: seen.reshape(3, 1)),
            lambda env: w.ReshapeObservation(env, (3, 1)),
        ),
        "RecordEpisodeStatistics": (lambda: wrapper_laws("CartPole-v1"), w.RecordEpisodeStatistics),
        "Autoreset": (lambda: wrapper_laws("CartPole-v1"), w.Autoreset),
        "StickyAction with 0": (lambda: wrapper_laws("CartPole-v1"), lambda env: w.StickyAction(env, 0.0)),
    }
    for name, (suite, wrap) in around.items():
        yield name, suite, wrap
    yield (
        "RunningMeanStd",
        lambda: normalizer_laws(arrays="numpy", prior=1e-4),
        lambda shape: RunningMeanStd(shape=shape),
    )


def minigrid() -> Iterator[Trial]:
    import minigrid as package

    del package
    for name in ("Empty-5x5", "DoorKey-5x5", "FourRooms", "LavaGapS5", "MemoryS7", "KeyCorridorS3R1"):
        yield name, lambda: gym_laws(steps=12), f"MiniGrid-{name}-v0"


def stable_baselines3() -> Iterator[Trial]:
    import numpy as np
    from gymnasium import spaces
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.distributions import DiagGaussianDistribution, SquashedDiagGaussianDistribution
    from stable_baselines3.common.running_mean_std import RunningMeanStd

    def buffer(
        r: Tensor, v: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, lambda_: float
    ) -> Tensor:
        rows = RolloutBuffer(len(r), spaces.Box(-1, 1, (1,)), spaces.Discrete(2), gae_lambda=lambda_, gamma=gamma)
        starts = True
        for t in range(len(r)):
            beyond = gamma * float(after[t]) if trunc[t] and not term[t] else 0.0  # as collect_rollouts adds it
            zero = np.zeros((1, 1))
            rows.add(zero, zero, np.array([float(r[t]) + beyond]), np.array([starts]), v[t : t + 1], torch.zeros(1))
            starts = bool(term[t] | trunc[t])
        rows.compute_returns_and_advantage(after[-1:], np.array([starts]))
        return torch.as_tensor(rows.advantages[:, 0]).to(r.dtype)

    def adapted(made: Any, entropy: bool) -> Any:
        found = SimpleNamespace(log_prob=made.log_prob, sample=made.sample, mode=made.mode)
        if entropy:
            found.entropy = made.entropy
        return found

    def gaussian(mean: Tensor, log_std: Tensor) -> Any:
        return adapted(DiagGaussianDistribution(mean.shape[-1]).proba_distribution(mean, log_std), True)

    def squashed(mean: Tensor, log_std: Tensor) -> Any:
        return adapted(SquashedDiagGaussianDistribution(mean.shape[-1]).proba_distribution(mean, log_std), False)

    yield "RolloutBuffer", streams, buffer
    yield "DiagGaussianDistribution", distribution_laws, gaussian
    yield "SquashedDiagGaussianDistribution", lambda: distribution_laws(low=-1, high=1), squashed
    yield (
        "RunningMeanStd",
        lambda: normalizer_laws(arrays="numpy", prior=1e-4),
        lambda shape: RunningMeanStd(shape=shape),
    )


def torchrl() -> Iterator[Trial]:
    import torchrl.objectives.value.functional as values
    from torchrl.modules.distributions import IndependentNormal, TruncatedNormal

    def adapted(function: Any, state: bool = True) -> Any:
        def estimator(
            r: Tensor, v: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, lambda_: float
        ) -> Tensor:
            columns = [part.unsqueeze(-1) for part in ((v, after, r) if state else (after, r))]
            ends = [part.unsqueeze(-1) for part in (term | trunc, term)]
            found = function(gamma, lambda_, *columns, *ends)
            return (found[0] if isinstance(found, tuple) else found).squeeze(-1)

        return estimator

    for name in ("generalized_advantage_estimate", "td_lambda_advantage_estimate"):
        yield name, streams, adapted(getattr(values, name))
        yield f"vec_{name}", streams, adapted(getattr(values, f"vec_{name}"))
    for name in ("td_lambda_return_estimate", "vec_td_lambda_return_estimate"):
        yield name, lambda: lambda_return_laws() - {"expected_target"}, adapted(getattr(values, name), False)
    yield "IndependentNormal", distribution_laws, lambda mean, log_std: IndependentNormal(mean, log_std.exp())
    yield (
        "TruncatedNormal",
        lambda: distribution_laws(low=-1, high=1),
        lambda mean, log_std: TruncatedNormal(mean, log_std.exp()),
    )


def skrl() -> Iterator[Trial]:
    from skrl.agents.torch.ppo.ppo import compute_gae
    from skrl.resources.preprocessors.torch import RunningStandardScaler

    def gae(
        r: Tensor, v: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, lambda_: float
    ) -> Tensor:
        rewards, values, terminated, truncated = (part.reshape(-1, 1) for part in (r, v, term, trunc))
        returns, _ = compute_gae(
            rewards=rewards, values=values, terminated=terminated, truncated=truncated, last_values=after[-1:],
            discount_factor=gamma, lambda_coefficient=lambda_,
        )  # fmt: skip
        return returns[:, 0] - v

    class Statistics:
        def __init__(self, shape: tuple[int, ...]) -> None:
            self.scaler, self.shape = RunningStandardScaler(shape or 1), shape

        def update(self, batch: Tensor) -> None:
            self.scaler(batch.reshape(len(batch), -1), train=True)

        mean = property(lambda self: self.scaler.running_mean.reshape(self.shape))
        var = property(lambda self: self.scaler.running_variance.reshape(self.shape))

    yield "compute_gae", streams, gae
    yield "RunningStandardScaler", lambda: normalizer_laws(prior=1.0), Statistics


def rsl_rl() -> Iterator[Trial]:
    from rsl_rl.modules.normalization import EmpiricalNormalization

    class Statistics:
        def __init__(self, shape: tuple[int, ...]) -> None:
            self.found, self.shape = EmpiricalNormalization(list(shape) or 1), shape
            self.found.train()

        def update(self, batch: Tensor) -> None:
            self.found.update(batch.float().reshape(len(batch), -1))

        mean = property(lambda self: self.found.mean.reshape(self.shape))
        var = property(lambda self: self.found.std.reshape(self.shape) ** 2)

    yield "EmpiricalNormalization", lambda: normalizer_laws(tolerance=1e-3), Statistics


def tianshou() -> Iterator[Trial]:
    import numpy as np
    from tianshou.algorithm.algorithm_base import Algorithm
    from tianshou.data import Batch, ReplayBuffer
    from tianshou.utils.statistics import RunningMeanStd

    def gae(
        r: Tensor, v: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, lambda_: float
    ) -> Tensor:
        rows = ReplayBuffer(len(r))
        for t in range(len(r)):
            ends = {"terminated": bool(term[t]), "truncated": bool(trunc[t])}
            rows.add(Batch(obs=0, act=0, rew=float(r[t]), obs_next=0, info={}, **ends))
        batch, indices = rows.sample(0)
        _, found = Algorithm.compute_episodic_return(batch, rows, indices, after.numpy(), v.numpy(), gamma, lambda_)
        return torch.as_tensor(found).to(r.dtype)

    class Statistics:
        def __init__(self, shape: tuple[int, ...]) -> None:
            self.found = RunningMeanStd(np.zeros(shape), np.ones(shape))

        def update(self, batch: Any) -> None:
            self.found.update(batch)

        mean = property(lambda self: self.found.mean)
        var = property(lambda self: self.found.var)

    yield "compute_episodic_return", streams, gae
    yield "RunningMeanStd", lambda: normalizer_laws(arrays="numpy"), Statistics


def trl() -> Iterator[Trial]:
    import importlib.util
    from pathlib import Path

    from transformers.utils.chat_template_utils import render_jinja_template
    from trl import rewards

    thought = [{"completion": "<think>\na\n</think>\n5"}, {"completion": "5"}]
    solved = [{"completion": text, "solution": "$5$"} for text in (r"It is \boxed{5}", r"\boxed{6}")]
    for name, rows in (
        ("think_format_reward", thought),
        ("accuracy_reward", solved),
        ("reasoning_accuracy_reward", solved),
    ):
        suite = reward_function_laws(rows, low=0.0, high=1.0, messages=True)
        yield name, lambda suite=suite: suite, getattr(rewards, name)
    spec = importlib.util.find_spec("trl")
    folder = Path(str(spec and spec.origin)).parent / "chat_templates"
    for path in sorted(folder.glob("*_training.jinja")):
        if path.name.startswith(("idefics3", "llava", "smolvlm")):
            continue  # their contents are lists of parts

        def render(messages: Any, prompt: bool, text: str = path.read_text()) -> Any:
            options = {"chat_template": text, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
            return render_jinja_template([messages], **options)[0][0]

        yield f"chat template {path.stem}", lambda: chat_template_laws(system=False), render


def reasoning_gym() -> Iterator[Trial]:
    import reasoning_gym as package

    names = (
        "coin_flip",
        "prime_factorization",
        "game_of_life",
        "chain_sum",
        "gcd",
        "countdown",
        "spell_backward",
        "maze",
    )
    for name in (*names, "leg_counting", "sudoku", "base_conversion", "polynomial_equations"):
        data = package.create_dataset(name, size=2, seed=1)
        rows = [{"completion": str(data[place]["answer"]), "entry": data[place]} for place in range(2)]

        def reward(completions: list[str], entry: list[Any], data: Any = data) -> list[float]:
            return [data.score_answer(text, one) for text, one in zip(completions, entry, strict=True)]

        yield name, lambda rows=rows: reward_function_laws(rows, low=0.0, high=1.0), reward


def gymnax() -> Iterator[Trial]:
    import gymnax as package
    import jax
    import numpy as np

    made: dict[str, Any] = {}

    class Space:
        """A space of gymnax with the names and rules of Gymnasium's."""

        def __init__(self, space: Any) -> None:
            self.space, self.dtype = space, np.dtype(space.dtype)

        def contains(self, value: Any) -> bool:
            return bool(self.space.contains(value)) and value.dtype == self.dtype and value.shape == self.space.shape

    class World:
        """An environment of gymnax with the methods of Gymnasium's; its key is the state of a generator."""

        def __init__(self, name: str) -> None:
            if name not in made:
                env, params = package.make(name)
                made[name] = env, params, jax.jit(env.reset), jax.jit(env.step)
            self.env, self.params, self._reset, self._step = made[name]
            self.observation_space = Space(self.env.observation_space(self.params))
            self.action_space = self._actions()
            self.key = jax.random.key(0)

        def _actions(self) -> Any:
            from gymnasium import spaces

            space = self.env.action_space(self.params)
            discrete = hasattr(space, "n")
            return spaces.Discrete(int(space.n)) if discrete else spaces.Box(space.low, space.high, space.shape)

        def _next(self) -> Any:
            self.key, key = jax.random.split(self.key)
            return key

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.key = self.key if seed is None else jax.random.key(seed)
            seen, self.state = self._reset(self._next(), self.params)[:2]
            return np.asarray(seen), {}

        def step(self, action: Any) -> Any:
            seen, self.state, reward, *rest = self._step(self._next(), self.state, action, self.params)
            ends = [bool(part) for part in rest[:-1]]
            return np.asarray(seen), float(reward), ends[0], ends[-1] if len(ends) > 1 else False, {}

        def close(self) -> None:
            pass

    for name in ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "Catch-bsuite", "DeepSea-bsuite"):
        yield name, lambda: gym_laws(steps=6), lambda name=name: World(name)


TRIALS: dict[str, Callable[[], Iterator[Trial]]] = {
    "gymnasium": gymnasium,
    "minigrid": minigrid,
    "stable-baselines3": stable_baselines3,
    "torchrl": torchrl,
    "skrl": skrl,
    "rsl-rl-lib": rsl_rl,
    "tianshou": tianshou,
    "trl": trl,
    "reasoning-gym": reasoning_gym,
    "gymnax": gymnax,
}


def main(name: str) -> None:
    """Print the results of a package's trials, one line of JSON each."""
    warnings.simplefilter("ignore")
    for title, suite, subject in TRIALS[name]():
        start, laws = time.process_time(), suite()
        report = verify(laws, subject)
        failed = {result.law.name: result.line()[:300] for result in report.failures}
        row = {"function": title, "suite": laws.name, "laws": len(laws), "failed": failed}
        print(json.dumps({**row, "seconds": round(time.process_time() - start, 1)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
