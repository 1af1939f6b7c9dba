"""`train = map(update)`: rollout and update as one iteration, iterations as one scan."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import torch
from attrs import frozen
from torch import Tensor

from ..algorithms.algorithm import Algorithm, Metrics, TrainState, begin
from ..core import keys
from ..core.agents import by_rows, each_agent
from ..core.env import Env, auto_reset, batched
from ..core.errors import ChoiceError, ShapeError, at_least, choose, message
from ..core.keys import Key, check_key
from ..core.networks import as_they_are
from ..core.policy import ActorCritic, first_memory
from ..core.probes import probed
from ..core.record import record, stack, take, tensor
from ..core.scan import scan
from ..core.spaces import sample
from ..core.steps import Remembered, Trajectory, Transition
from ..core.tree import all_finite, clone, leaves, to_device, tree_map
from .declared import COUNTS as COUNTS
from .declared import all_names, as_declared
from .diverged import refusing
from .episode_returns import Episodes, follow, none_yet
from .normalizer import Normalizer, check_normalizer, identity
from .rollout import Worlds, reset_rollout, rollout
from .validate import key_near, validate
from .validate_learner import validate_learner


@record
class RunState:
    """State that decides the future of a run: a run restored from it continues as if it had never stopped."""

    learner: TrainState
    worlds: Worlds  # [B, ...]
    episodes: Episodes  # [B]
    normalizer: Any  # the normaliser's statistics, () when there is none
    key: Key = tensor("* 2", "key")
    env_steps: Tensor = tensor("*", "int")  # steps in the environments so far
    past: Any = ()  # [K, ...] params of the last K versions before the learner's, oldest first; () where K is 0
    env_params: Any = ()  # of the environment, or [B, ...] of each; () where the environment's own are used


@frozen
class Trainer:
    """`init(key) -> RunState`, `iterate(state) -> (state, metrics)`: one rollout and one update."""

    init: Callable[[Key], RunState]
    iterate: Callable[[RunState], tuple[RunState, Metrics]]
    steps: int  # in the environments, for each iteration
    metrics: tuple[str, ...]  # names of the metrics that `iterate` returns
    # The trajectory that `iterate` learns from, to find a NaN in; () where a state cannot be iterated twice.
    play: Callable[[RunState], Trajectory] | tuple[()] = ()
    named: Callable[[Any], Any] = as_they_are  # the learner's params as a tree whose leaves have names
    single: Any = ()  # of a population: the trainer of one member


def trainer(
    env: Env[Any, Any],
    model: ActorCritic,
    algorithm: Algorithm,
    *,
    envs: int,
    horizon: int,
    normalizer: Normalizer | None = None,
    reset: str = "pooled",
    unroll: int = 1,
    staleness: int = 0,
    params: Any = (),
    own_params: bool = False,
) -> Trainer:
    """Train `algorithm` on `envs` copies of `env`, a single environment without auto-reset, `horizon` steps at a time.

    Metrics are those of the algorithm and: episodes (finished in the iteration), return_sum and length_sum over them, and
    finite, 1 where parameters and rewards are. `reset` is the mode of `auto_reset`, or "own" for an env that begins a new
    episode by itself; `unroll` is that of `rollout`. With `staleness` the params of that number of updates ago act in the
    environments, as in generators that lag behind; the initial params are used until there are older ones.

    `params` are the environment's, in place of `env.params`, and part of the state (`env_params`): between two calls another
    program is not needed to change them (a curriculum, domain randomisation). With `own_params` each has a leading axis
    [envs], one entry for each environment. A run is on the device of the key that `init` is given; params of an env on another
    device are moved there and become part of the state.

    An env with `agents` A is played in B A rows, one for each agent (`core/agents.py`): a trajectory is [T, B A], episodes,
    return_sum and length_sum count each agent's, and `steps` those of the environments.

    A model with memory is begun with its `memory` in each environment; the algorithm gets the memory at the start of each
    trajectory (`Remembered`).
    Raises: errors of `validate` for the env and of `validate_learner` for model and algorithm; ChoiceError.
    """
    for name, number in (("envs", envs), ("horizon", horizon), ("unroll", unroll)):
        at_least(f"trainer: {name}", number, 1)
    at_least("trainer: staleness", staleness, 0)
    choose("trainer: reset", reset, dict.fromkeys(("pooled", "select", "own")))
    own = bool(leaves(params))
    if own_params and not own:
        raise ChoiceError(message("trainer: params", got="none", wanted="a row for each env", remedy="pass params"))
    one = take(params, 0) if own_params else params
    checked = validate(attrs.evolve(env, params=one) if own else env)
    scaling = check_normalizer(normalizer or identity())
    first = checked.reset(checked.params, key_near(checked, 0))[1]
    if checked.agents is not None:
        first = take(each_agent(first, checked.agents), 0)
    observation, rows = first.observation, envs * (checked.agents or 1)
    validate_learner(model, algorithm, observation, checked.action_space)
    names = all_names(algorithm)
    single = attrs.evolve(checked, params=params if own else env.params)
    worlds_env = by_rows(batched(single if reset == "own" else auto_reset(single, reset), envs, own_params=own_params))
    act = rollout(attrs.evolve(worlds_env, params=()) if own else worlds_env, model, horizon, unroll=unroll)
    update, declared = algorithm.update, algorithm.metrics
    example = Transition(
        observation=observation,
        action=sample(checked.action_space, key_near(checked, 0)),
        reward=first.reward,
        terminated=first.terminated,
        truncated=first.truncated,
        next_observation=first.next_observation,
        behaviour_log_prob=first.reward,
    )

    def init(key: Key) -> RunState:
        if check_key("trainer: init", key).ndim != 1:
            remedy = "pass one key, or make a `population` of the trainer"
            raise ShapeError(message("trainer: init: key", got=list(key.shape), wanted=[2], remedy=remedy))
        learner_key, worlds_key, key = keys.split(key, 3)
        learner = begin(algorithm, learner_key, to_device(example, key.device))
        elsewhere = any(leaf.device != key.device for leaf in leaves(env.params))
        return RunState(
            learner=learner,
            worlds=reset_rollout(worlds_env, worlds_key, first_memory(model, rows, key.device)),
            episodes=none_yet(rows, key.device),
            normalizer=scaling.init(env.observation_space, rows, key.device),
            key=key,
            env_steps=torch.zeros((), dtype=torch.int64, device=key.device),
            past=stack([learner.params] * staleness) if staleness else (),
            # Params of an env on another device than the key's become part of the state, which is on one device.
            env_params=clone(to_device(params if own else env.params if elsewhere else (), key.device)),
        )

    def play(state: RunState, key: Key) -> tuple[Worlds, Trajectory]:
        # Statistics are constant while the policy acts, so that behaviour log-probs fit the update's observations.
        acting = take(state.past, 0) if staleness else state.learner.params
        observe = partial(scaling.observe, state.normalizer)
        return act(acting, state.worlds, key, observe, state.env_params)

    def iterate(state: RunState) -> tuple[RunState, Metrics]:
        act_key, update_key, key = keys.split(state.key, 3)
        worlds, raw = play(state, act_key)
        trajectory = remembered(state.worlds, scaling.scale(state.normalizer, raw))
        learner, metrics = as_declared(declared, state.learner, update(state.learner, trajectory, update_key))
        episodes, counts = follow(state.episodes, raw)
        after = RunState(
            learner=learner,
            worlds=worlds,
            episodes=episodes,
            normalizer=scaling.update(state.normalizer, raw),
            key=key,
            env_steps=state.env_steps + horizon * envs,
            past=tree_map(_shifted, state.past, state.learner.params) if staleness else (),
            env_params=state.env_params,
        )
        finite = all_finite((learner.params, raw.reward)).to(torch.float32)
        return after, {**metrics, **counts, "finite": finite}

    return Trainer(
        init=init,
        iterate=iterate,
        steps=horizon * envs,
        metrics=names,
        play=lambda state: play(state, keys.split(state.key, 3)[0])[1],
        named=model.named,
    )


def remembered(worlds: Worlds, trajectory: Trajectory) -> Any:
    """Return what an algorithm learns from: the trajectory that was played from `worlds`, with their memory where there is one.

    >>> remembered(Worlds(state=(), observation=(), memory=()), "trajectory")
    'trajectory'
    >>> remembered(Worlds(state=(), observation=(), memory=torch.ones(1)), "trajectory").memory
    tensor([1.])
    """
    if not leaves(worlds.memory):
        return trajectory
    return Remembered(trajectory=trajectory, memory=worlds.memory, fresh=worlds.fresh)


def with_probes(one: Trainer, *names: str) -> Trainer:
    """Return the trainer with three more metrics for each name of a probe: NAME_mean, NAME_min and NAME_max.

    They are over all values of the iteration: steps, worlds and minibatches. Probes of other names are ignored. Uncompiled, the
    run is the same bit for bit; a `program`, on the CPU alone, agrees within rounding. Make a `population` of the result, not
    the other way round.
    Raises: ChoiceError for no name or a metric that there is; in `iterate` for a name that no probe has.

    >>> from purestep.algorithms.a2c import a2c
    >>> from purestep.core.envs import make
    >>> from purestep.core.optim.optimizers import sgd
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.probes import probe
    >>> env = make("cartpole")
    >>> def step(params, state, action, key):
    ...     probe("action", action)
    ...     return env.step(params, state, action, key)
    >>> model = actor_critic_mlp(env.observation_space, env.action_space, (4,))
    >>> seen = attrs.evolve(env, step=step, hoisted=None)
    >>> watched = with_probes(trainer(seen, model, a2c(model, sgd(0.1)), envs=2, horizon=3), "action")
    >>> _, metrics = train(watched, 1)(watched.init(keys.key(0)))
    >>> metrics["action_min"], metrics["action_max"]
    (tensor([0.]), tensor([1.]))
    """
    where = "with_probes: names"
    if not names:
        raise ChoiceError(
            message(where, got="none", wanted="at least one", remedy="pass those of the probes to bring out")
        )
    made = [f"{name}_{part}" for name in names for part in ("mean", "min", "max")]
    for name in made:
        if (*one.metrics, *made).count(name) > 1:
            remedy = "rename the probe"
            raise ChoiceError(message(where, got=f"{name!r}, twice", wanted="metrics of their own", remedy=remedy))
    iterate = one.iterate

    def probing(state: RunState) -> tuple[RunState, Metrics]:
        (after, metrics), values = probed(iterate)(state)
        more = [number for name in names for number in _summary(choose(where, name, values))]
        return after, {**metrics, **dict(zip(made, more, strict=True))}

    return attrs.evolve(one, iterate=probing, metrics=(*one.metrics, *made))


def _summary(values: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    whole = torch.cat([value.to(torch.float32).flatten() for value in values])
    return whole.mean(), whole.min(), whole.max()


def _shifted(past: Tensor, newest: Tensor) -> Tensor:
    return torch.cat([past[1:], newest[None]])


def train(trainer: Trainer, iterations: int) -> Callable[[RunState], tuple[RunState, Metrics]]:
    """Return a function that runs `iterations` iterations: state -> (state, metrics, each [iterations]).

    One scan, so one loop when compiled; the metrics are returned as one vector, since each loose number costs the loop time.
    Called from Python, compiled as a `program` or not, it raises NonFiniteError at the first iteration after which parameters
    or rewards were NaN or infinite, and names the first such tensor: it runs the first 100 iterations again, uncompiled. Of a
    population it is the first iteration after which those of every member were, with the tensor of the member that was the
    first. Inside a function that is compiled or mapped nothing can be raised: there, `finite` among the metrics reports it.
    """
    return refusing(folded(trainer, iterations), trainer)


def folded(trainer: Trainer, iterations: int) -> Callable[[RunState], tuple[RunState, Metrics]]:
    """Return `train` without the NonFiniteError, for callers that check `finite` among the metrics themselves."""
    at_least("train: iterations", iterations, 0)
    names, iterate = trainer.metrics, trainer.iterate  # `init` holds numbers that the program does not depend on

    def step(state: RunState, _: Any) -> tuple[RunState, Tensor]:
        state, metrics = iterate(state)
        return state, torch.stack([metrics[name].to(torch.float32) for name in names], -1)

    def run(state: RunState) -> tuple[RunState, Metrics]:
        ticks = torch.zeros(iterations, device=state.key.device)
        state, rows = scan(step, state, ticks, output=ticks)
        return state, dict(zip(names, rows.unbind(-1), strict=True))

    return run
