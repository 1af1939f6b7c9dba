"""The parts of a run whose worlds are played by older weights, each compiled and timed by itself, for many seeds at once.

    v            updates made
    b            max(v - staleness, 0), the version of the weights that play
    trajectory   under b, from wherever the worlds stand
    v + 1        an update of version v on it

It is `trainer(..., staleness=...)`, taken apart so that sampling and updating have a clock each. A part of `staleness`.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from attrs import Factory, field, frozen
from torch import Tensor

from purestep.algorithms.algorithm import Algorithm
from purestep.algorithms.decoupled_ppo import Versioned, decoupled_ppo, proximal_log_prob
from purestep.algorithms.importance import truncated_weights
from purestep.algorithms.ppo import ppo
from purestep.core import keys
from purestep.core.env import Env, auto_reset, batched
from purestep.core.envs import make
from purestep.core.errors import NonFiniteError
from purestep.core.optim.interface import Optimizer
from purestep.core.policy import ActorCritic
from purestep.core.steps import Trajectory
from purestep.core.tree import all_finite, leaves
from purestep.runtime.compile import program
from purestep.runtime.evaluate import evaluate
from purestep.runtime.population import each
from purestep.runtime.recipes.classic import RECIPES, Classic
from purestep.runtime.recipes.pipeline import network, optimizer
from purestep.runtime.recipes.shared_settings import loop_of, passes_of
from purestep.runtime.rollout import rollout
from purestep.runtime.runs.arguments import flatten
from purestep.runtime.train import RunState, Trainer, trainer

METHODS = ("ppo", "recomputed", "interpolated")
CAP = 2.0  # of a row's weight, the proximal policy's probability over that of the one that played
EPISODES = 50  # of an evaluation, for each seed
LONGEST = 500  # steps of an episode
ENV = "cartpole"
SAMPLING, PASS, UPDATE, EVALUATION = "sampling", "proximal pass", "update", "evaluation"
FIGURES = ("clip_fraction", "approximate_kl", "entropy", "weight", "effective_fraction")

Compile = Callable[[Callable[..., Any], str], Callable[..., Any]]


def compiled(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """One program for all cells."""
    return program(function, name=name)


def usual() -> Classic:
    """The recipe's own numbers."""
    arguments: Classic = RECIPES["ppo"].defaults(ENV)
    return arguments


@frozen
class Setup:
    """What all cells have in common; no number is chosen for a cell."""

    arguments: Classic = field(factory=usual)
    seeds: int = 5
    updates: int = 0  # 0 means the recipe's own number
    points: int = 98  # of a curve, after the one at the start
    episodes: int = EPISODES
    longest: int = LONGEST

    def length(self) -> int:
        """Updates of a run."""
        return self.updates or loop_of(self.arguments.experience, self.arguments.process).iterations

    def env(self) -> Env[Any, Any]:
        """One world."""
        return make(self.arguments.experience.env)

    def model(self) -> ActorCritic:
        """The recipe's two perceptrons."""
        return network(self.env(), self.arguments.learner)

    def optimizer(self) -> Optimizer:
        """The recipe's, its learning rate annealed over the run."""
        return optimizer(self.arguments.learner, self.length() * math.prod(passes_of(self.arguments.algorithm)))

    def algorithm(self, method: str) -> Algorithm:
        """PPO, or PPO around a proximal policy, which for "interpolated" reads `Versioned` trajectories."""
        named = flatten(self.arguments.algorithm)
        if method == "ppo":
            return ppo(self.model(), self.optimizer(), **named)
        weights = partial(truncated_weights, high=CAP)
        return decoupled_ppo(self.model(), self.optimizer(), proximal=method, weights=weights, **named)

    def trainer(self, algorithm: Algorithm, staleness: int) -> Trainer:
        """The same run in one piece, for one seed; `algorithm` as it reads plain trajectories."""
        worlds = self.arguments.experience
        return trainer(
            self.env(), self.model(), algorithm, envs=worlds.envs, horizon=worlds.horizon, staleness=staleness
        )


@frozen
class Parts:
    """What runs, for all seeds at once: params, worlds and keys are [S, ...]."""

    begin: Callable[[Tensor], RunState]  # keys [S, 2]
    sample: Callable[..., Any]  # (params, worlds, keys) -> (worlds, trajectory)
    proximal: Callable[..., Any]  # (params, trajectory) -> log-probs [S, T, B]
    update: Mapping[str, Callable[..., Any]]  # (learner, trajectory, keys) -> (learner, metrics)
    evaluate: Callable[..., Any]  # (params) -> returns [S, E]


def parts(setup: Setup, compile: Compile = compiled, methods: tuple[str, ...] = METHODS) -> Parts:
    """The programs of a set-up; what is compiled is compiled at its first call."""
    worlds, model = setup.arguments.experience, setup.model()
    act = rollout(batched(auto_reset(setup.env()), worlds.envs), model, worlds.horizon)
    play = each(evaluate(setup.env(), model, episodes=setup.episodes, steps=setup.longest, action="sample"))
    begin = torch.vmap(setup.trainer(setup.algorithm("ppo"), 0).init)
    return Parts(
        begin=begin,
        sample=compile(torch.vmap(act), "sample"),
        proximal=compile(torch.vmap(partial(proximal_log_prob, model)), "proximal"),
        update={name: compile(torch.vmap(setup.algorithm(name).update), f"update {name}") for name in methods},
        evaluate=compile(lambda params, key: play(params, (), key).returns, "evaluate"),
    )


@frozen
class Clock:
    """Seconds of each part, call by call."""

    spent: dict[str, list[float]] = Factory(dict)

    def __call__(self, part: str, function: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        result = function(*arguments)
        self.spent.setdefault(part, []).append(time.perf_counter() - began)
        return result


@frozen
class Cell:
    """One method at one staleness: what became of all its seeds."""

    method: str
    staleness: int
    updates: tuple[int, ...]  # made before each point of the curve
    returns: Tensor  # [points, S] mean of the evaluation's episodes
    figures: Mapping[str, float]  # of the update, means over seeds and updates
    seconds: Mapping[str, float]  # of each part, all updates and seeds together
    median: Mapping[str, float]  # seconds of a call of each part, for all seeds together


def told(method: str, played: Trajectory, version: int) -> Trajectory | Versioned:
    """The trajectory as the method's update reads it."""
    if method != "interpolated":
        return played
    return Versioned(trajectory=played, version=torch.full_like(played.terminated, version, dtype=torch.int64))


def cell(setup: Setup, ready: Parts, method: str, staleness: int, length: int | None = None) -> Cell:
    """Runs all seeds of a cell. Raises: NonFiniteError."""
    clock, every = Clock(), max(1, setup.length() // setup.points)
    state = ready.begin(torch.stack([keys.key(seed) for seed in range(setup.seeds)]))
    learner, worlds, key = state.learner, state.worlds, state.key
    past = deque([learner.params], maxlen=staleness + 1)
    points, rows = {0: scored(clock, ready, learner.params)}, list[Mapping[str, Tensor]]()
    for version in range(setup.length() if length is None else length):
        act_key, update_key, key = keys.split(key, 3)
        worlds, played = clock(SAMPLING, ready.sample, past[0], worlds, act_key)
        given = told(method, played, max(version - staleness, 0))
        if method == "recomputed" and version % every == 0:
            clock(PASS, ready.proximal, learner.params, played)
        learner, metrics = clock(UPDATE, ready.update[method], learner, given, update_key)
        past.append(learner.params)
        rows.append(metrics)
        if (version + 1) % every == 0 or version + 1 == setup.length():
            points[version + 1] = scored(clock, ready, learner.params)
    if not bool(all_finite(learner.params)):
        raise NonFiniteError(f"{method} at staleness {staleness}: NaN or infinite parameters after {len(rows)} updates")
    return Cell(
        method,
        staleness,
        tuple(points),
        torch.stack(list(points.values())),
        means(rows),
        totals(clock, len(rows)),
        {part: statistics.median(spent) for part, spent in clock.spent.items()},
    )


def scored(clock: Clock, ready: Parts, params: Any) -> Tensor:
    """The mean return of each seed's policy, over the same episodes at every call: [S]."""
    returns: Tensor = clock(EVALUATION, ready.evaluate, params, keys.key(2**31))
    return returns.to(torch.float64).mean(-1)


def means(rows: list[Mapping[str, Tensor]]) -> dict[str, float]:
    """The mean over updates and seeds of what an update tells."""
    names = [name for name in FIGURES if rows and name in rows[0]]
    return {name: float(torch.stack([row[name] for row in rows]).to(torch.float64).mean()) for name in names}


def totals(clock: Clock, updates: int) -> dict[str, float]:
    """Seconds of each part. The pass before an update is within the update and timed apart now and then: its mean counts.

    >>> totals(Clock({"sampling": [1.0, 2.0], "proximal pass": [0.25]}), 2)
    {'sampling': 3.0, 'proximal pass': 0.5}
    """
    return {part: sum(spent) * (updates / len(spent) if part == PASS else 1.0) for part, spent in clock.spent.items()}


def warmed(setup: Setup, ready: Parts) -> float:
    """Calls everything once, so that no cell waits for a compiler; gives the seconds."""
    began = time.perf_counter()
    for method in ready.update:
        cell(setup, ready, method, 1, length=1)
    return time.perf_counter() - began


def agreement(setup: Setup, ready: Parts) -> dict[str, float]:
    """How far each method's parameters are from plain PPO's after one update on what the newest weights played, at most.

    It is rounding: over a run it grows until two runs have nothing in common but their distribution.
    """
    state = ready.begin(torch.stack([keys.key(seed) for seed in range(setup.seeds)]))
    act_key, update_key, _ = keys.split(state.key, 3)
    _, played = ready.sample(state.learner.params, state.worlds, act_key)
    after = {
        method: update(state.learner, told(method, played, 0), update_key)[0].params
        for method, update in ready.update.items()
    }
    return {
        method: max(float((a - b).abs().max()) for a, b in zip(leaves(params), leaves(after["ppo"]), strict=True))
        for method, params in after.items()
        if method != "ppo" and "ppo" in after
    }
