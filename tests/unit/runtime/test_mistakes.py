"""Plausible mistakes of whoever trains from Python: each ends in one line, where the value enters, with its remedy."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from purestep.algorithms.a2c import a2c
from purestep.algorithms.algorithm import Algorithm
from purestep.algorithms.decoupled_ppo import decoupled_ppo
from purestep.algorithms.language import objectives
from purestep.algorithms.ppo import ppo
from purestep.algorithms.reinforce import reinforce
from purestep.core import keys
from purestep.core.env import Env, batched, time_limit
from purestep.core.envs import make
from purestep.core.errors import PurestepError
from purestep.core.networks import functional, mlp
from purestep.core.optim.muon import muon
from purestep.core.optim.optimizers import (
    adam,
    adamw,
    chain,
    clip_by_global_norm,
    nesterov,
    scale_by_schedule,
    sgd,
    with_hyperparameters,
)
from purestep.core.optim.schedules import constant, linear
from purestep.core.optim.schedules import warmup as warmed
from purestep.core.policy import ActorCritic, actor_critic_mlp, categorical_head, flat, scalar, separate
from purestep.core.record import replace
from purestep.core.spaces import Box, Discrete
from purestep.core.tree import tree_map
from purestep.runtime.compile import program
from purestep.runtime.evaluate import evaluate
from purestep.runtime.population import population
from purestep.runtime.rollout import reset_rollout, rollout
from purestep.runtime.train import train, trainer

CARTPOLE: Env[Any, Any] = make("cartpole")
SEEN, TWO = CARTPOLE.observation_space, CARTPOLE.action_space
MODEL = actor_critic_mlp(SEEN, TWO, (4,))
KEY = keys.key(0)
MODELS = a2c(MODEL, adam(1e-3))
NONE: Any = None
Mistake = Callable[[], Any]


def play(env: Any = CARTPOLE, model: Any = MODEL, algorithm: Any = (), iterations: Any = 1, **options: Any) -> Any:
    """A run of one iteration, with a mistake in it."""
    learner = algorithm or a2c(model, adam(1e-3))
    made = trainer(env, model, learner, **{"envs": 2, "horizon": 4, **options})
    return train(made, iterations)(made.init(KEY))


def telling(
    change: Callable[[dict[str, Tensor]], Any] = lambda metrics: metrics, names: Any = MODELS.metrics
) -> Algorithm:
    """A2C that tells other metrics than it does."""

    def update(state: Any, trajectory: Any, key: Any) -> Any:
        after, metrics = MODELS.update(state, trajectory, key)
        return after, change(dict(metrics))

    return Algorithm(init=MODELS.init, update=update, metrics=names)


def updating(change: Callable[[Any, Any], Any]) -> Algorithm:
    return attrs.evolve(MODELS, update=lambda *given: change(*MODELS.update(*given)))


def applying(change: Callable[[Any, Any, Any], Any]) -> ActorCritic:
    """The model with another `apply`: `change` takes distribution, value and the carry that came."""

    def apply(params: Any, observation: Any, carry: Any) -> Any:
        distribution, value, _ = MODEL.apply(params, observation, ())
        return change(distribution, value, carry)

    return attrs.evolve(MODEL, apply=apply)


def counting(distribution: Any, value: Tensor, carry: Any) -> Any:
    """A memory that begins by itself."""
    return distribution, value, value.new_zeros(value.shape) if carry == () else carry + 1


def drawing(distribution: Any, value: Tensor, carry: Any) -> Any:
    return distribution, value + 0.0 * torch.rand(()), carry


TREES = separate(categorical_head(mlp([4, 2])), scalar(mlp([4, 1])))
HALF = separate(flat(categorical_head(mlp([4, 2]))), scalar(mlp([4, 1])))
BARE = separate(
    *[attrs.evolve(head, init=lambda key: ()) for head in (categorical_head(mlp([4, 2])), scalar(mlp([4, 1])))]
)
PENDULUM: Env[Any, Any] = make("pendulum")

MISTAKES: dict[str, tuple[Mistake, str]] = {
    "memory": (
        lambda: play(model=applying(counting)),
        "model is one that returns a memory .a tensor., .*name a model's memory in the field `memory`",
    ),
    "memory that must be given": (
        lambda: play(model=applying(lambda d, v, carry: (d, v, carry + 1))),
        "model is one that fails on an observation of the env and the memory .*TypeError.*the field `memory`",
    ),
    "a model that draws": (
        lambda: play(model=applying(drawing)),
        "global generator, wanted a pure function; call .eval",
    ),
    "a Network": (lambda: a2c(mlp([4, 2]), adam(1e-3)), "model is Network, wanted an ActorCritic"),  # type: ignore[arg-type]
    "a Module": (lambda: ppo(torch.nn.Linear(4, 2), adam(1e-3)), "a Module goes through `functional`"),  # type: ignore[arg-type]
    "no Module": (lambda: functional(mlp([4, 2])), "functional: module is Network, wanted a Module"),  # type: ignore[arg-type]
    "an algorithm uncalled": (lambda: play(algorithm=ppo), "trainer: algorithm is function, wanted an Algorithm"),
    "a flat model, trees in the algorithm": (
        lambda: play(model=flat(TREES), algorithm=a2c(TREES, adam(1e-3))),
        "model is not the algorithm's .*; pass the model that the algorithm was made with",
    ),
    "trees, a flat model in the algorithm": (
        lambda: play(model=TREES, algorithm=ppo(flat(TREES), adam(1e-3))),
        "model is not the algorithm's",
    ),
    "half flat, trees in the algorithm": (
        lambda: play(model=HALF, algorithm=ppo(TREES, adam(1e-3))),
        "model is not the algorithm's",
    ),
    "another width in the algorithm": (
        lambda: play(algorithm=ppo(actor_critic_mlp(SEEN, TWO, (8,)), adam(1e-3))),
        r"model is not the algorithm's \(params.policy.0.weight is \[4, 8\] torch.float32, wanted \[4, 4\]",
    ),
    "nothing to learn": (lambda: play(model=BARE), "optimizer: params is a tree without leaves, wanted tensors"),
    "params of Python": (
        lambda: play(model=attrs.evolve(MODEL, init=lambda key: {"a": 1.0}), algorithm=MODELS),
        "the model's params.a is float, wanted a tensor",
    ),
    "flat params of Python": (
        lambda: flat(attrs.evolve(MODEL, init=lambda key: {"a": 1.0})),
        "layout: a leaf is float, wanted a tensor",
    ),
    "values with an axis": (
        lambda: play(model=separate(categorical_head(mlp([4, 2])), mlp([4, 1]))),
        r"value of a batch of 1 is \[1, 1\], wanted \[1\]; .*`scalar`",
    ),
    "logits for a distribution": (
        lambda: play(model=separate(mlp([4, 2]), scalar(mlp([4, 1])))),
        "wanted a Distribution",
    ),
    "two results": (lambda: play(model=applying(lambda d, v, carry: (d, v))), r"wanted \(distribution, value, carry\)"),
    "too many actions": (
        lambda: play(model=actor_critic_mlp(SEEN, Discrete(3), (4,))),
        r"actions is 3 choices, wanted 2, as of Discrete\(n=2\)",
    ),
    "too few actions": (
        lambda: play(model=actor_critic_mlp(SEEN, Discrete(1), (4,))),
        "actions is 1 choices, wanted 2",
    ),
    "actions of a box": (
        lambda: play(model=actor_critic_mlp(SEEN, Box(-1.0, 1.0, (1,)))),
        r"actions is \[1\], wanted \[\]",
    ),
    "actions of another box": (
        lambda: play(PENDULUM, actor_critic_mlp(PENDULUM.observation_space, Box(-1.0, 1.0, (2,)))),
        r"actions is \[2\], wanted \[1\]",
    ),
    "another observation": (
        lambda: play(model=actor_critic_mlp(Box(-1.0, 1.0, (5,)), TWO)),
        "model is one that fails on an observation of the env .*fit it to observation_space",
    ),
    "an env by its name": (
        lambda: play("cartpole"),
        r"env is str, wanted an Env; make one by name, e.g. make\('cartpole'\)",
    ),
    "a batched env": (lambda: play(batched(CARTPOLE, 2)), r"TimeStep.reward is \[2\], wanted"),
    "no envs": (lambda: play(envs=0), "trainer: envs is 0, wanted a whole number, 1 or more"),
    "envs by a half": (lambda: play(envs=2.0), "trainer: envs is 2.0, wanted a whole number"),
    "no horizon": (lambda: play(horizon=0), "trainer: horizon is 0, wanted a whole number, 1 or more"),
    "less than no iterations": (
        lambda: play(iterations=-1),
        "train: iterations is -1, wanted a whole number, 0 or more",
    ),
    "an unknown reset": (lambda: play(reset="pool"), r"trainer: reset is 'pool', wanted one of \['own', .*'pooled'"),
    "a normaliser's name": (
        lambda: play(normalizer="both"),
        r"normalizer is 'both', wanted a Normalizer; .*running\(\)",
    ),
    "a seed for a key": (
        lambda: trainer(CARTPOLE, MODEL, MODELS, envs=2, horizon=2).init(NONE),
        "init: key is NoneType",
    ),
    "keys of many": (
        lambda: trainer(CARTPOLE, MODEL, MODELS, envs=2, horizon=2).init(keys.split(KEY, 3)),
        r"trainer: init: key is \[3, 2\], wanted \[2\]; .*`population`",
    ),
    "a key of another dtype": (
        lambda: reset_rollout(CARTPOLE, torch.zeros(2)),
        "key is torch.float32, wanted torch.int64",
    ),
    "a seed of Python": (lambda: keys.split(7), r"split: key is int, wanted a tensor \[\*, 2\]; .*keys.key"),  # type: ignore[arg-type]
    "a fraction for a seed": (lambda: keys.key(1.5), "key: seed is 1.5, wanted 0 <= seed"),  # type: ignore[arg-type]
    "less than no keys": (lambda: keys.split(KEY, -1), "split: n is -1, wanted a whole number"),
    "an undeclared metric": (
        lambda: play(algorithm=telling(lambda metrics: {**metrics, "regret": metrics["entropy"]})),
        r"metrics is \[.*'regret', .*\], wanted \[.*\]; declare what `update` gives",
    ),
    "a metric left out": (
        lambda: play(algorithm=telling(lambda metrics: {"entropy": metrics["entropy"]})),
        r"metrics is \['entropy'\], wanted \['approximate_kl', 'entropy'",
    ),
    "a metric of the trainer's": (
        lambda: play(algorithm=telling(names=("finite",))),
        "metrics is 'finite', which a trainer counts itself, wanted names of its own",
    ),
    "a metric twice": (lambda: play(algorithm=telling(names=("a", "a"))), "metrics is 'a', twice"),
    "a word for names": (lambda: play(algorithm=telling(names="loss")), "metrics is 'loss', wanted a tuple of names"),
    "a metric with an axis": (
        lambda: play(algorithm=telling(lambda metrics: {"a": torch.ones(3)}, ("a",))),
        r"metrics: a is \[3\], wanted \[\]",
    ),
    "a metric of Python": (
        lambda: play(algorithm=telling(lambda metrics: {"a": 1.0}, ("a",))),
        "metrics: a is float, wanted a tensor",
    ),
    "an undeclared metric, compiled": (
        lambda: compiled(telling(lambda metrics: {"entropy": metrics["entropy"]})),
        r"metrics is \['entropy'\], wanted \['approximate_kl', 'entropy'",
    ),
    "an update without metrics": (
        lambda: play(algorithm=updating(lambda state, metrics: state)),
        r"update gives is TrainState, wanted \(TrainState, metrics\)",
    ),
    "an update to another dtype": (
        lambda: play(
            algorithm=updating(lambda state, m: (replace(state, params=tree_map(Tensor.double, state.params)), m))
        ),
        "the algorithm's state.params.policy.0.weight is .* torch.float64, wanted .* torch.float32",
    ),
    "rows that do not divide, compiled": (
        lambda: compiled(ppo(MODEL, adam(1e-3), minibatches=3)),
        "ppo: rows is 8, wanted",
    ),
    "no passes": (lambda: ppo(MODEL, adam(1e-3), epochs=0), "ppo: epochs is 0, wanted a whole number, 1 or more"),
    "no minibatches": (lambda: ppo(MODEL, adam(1e-3), minibatches=0), "ppo: minibatches is 0, wanted a whole number"),
    "three clips": (lambda: ppo(MODEL, adam(1e-3), clip=(0.1, 0.2, 0.3)), "ppo: clip is 3 numbers, wanted one or two"),  # type: ignore[arg-type]
    "a rate for an optimiser": (lambda: ppo(MODEL, 1e-3), "optimizer is float, wanted an Optimizer"),  # type: ignore[arg-type]
    "an optimiser uncalled": (lambda: chain(adam, sgd(1.0)), "optimizer is function, wanted an Optimizer"),  # type: ignore[arg-type]
    "a number for a schedule": (
        lambda: scale_by_schedule(0.5),  # type: ignore[arg-type]
        r"schedule is 0.5, wanted a schedule, .*constant\(number\)",
    ),
    "a number to warm up to": (lambda: warmed(3, 0.5), "warmup: then is 0.5, wanted a schedule"),  # type: ignore[arg-type]
    "a schedule of Python numbers": (
        lambda: scale_by_schedule(lambda count: 0.5).init(KEY),  # type: ignore[arg-type, return-value]
        "scale_by_schedule: a value is float, wanted a tensor",
    ),
    "a schedule of words": (lambda: linear("1", 0.0, 3), "linear: start is '1', wanted a number"),  # type: ignore[arg-type]
    "a clip that stops all": (lambda: clip_by_global_norm(0.0), "max_norm is 0.0, wanted above 0; leave it out"),
    "an average that never forgets": (
        lambda: adam(1e-3, beta2=1.0),
        "adam: beta2 is 1.0, wanted a number from 0.0 to below 1",
    ),
    "a changed rate below 0": (
        lambda: with_hyperparameters(sgd(0.1).init(KEY), {"learning_rate": -1.0}),
        "with_hyperparameters: learning_rate is -1.0, wanted a number from 0.0",
    ),
    "no episodes": (lambda: evaluate(CARTPOLE, MODEL, episodes=0, steps=1), "evaluate: episodes is 0, wanted"),
    "steps by a half": (lambda: evaluate(CARTPOLE, MODEL, episodes=1, steps=1.5), "evaluate: steps is 1.5, wanted"),  # type: ignore[arg-type]
    "one world for a batch": (
        lambda: rollout(CARTPOLE, MODEL, 3)(MODEL.init(KEY), reset_rollout(CARTPOLE, KEY), KEY),
        r"rollout: the model's values is \[\], wanted \[B\]; step a batch of worlds, batched\(env, n\)",
    ),
    "no steps": (lambda: rollout(CARTPOLE, MODEL, 0), "rollout: length is 0, wanted a whole number, 1 or more"),
    "no worlds": (lambda: batched(CARTPOLE, 0), "batched: n is 0, wanted a whole number, 1 or more"),
    "no time": (lambda: time_limit(CARTPOLE, 0), "time_limit: steps is 0, wanted a whole number, 1 or more"),
    "no actions": (lambda: Discrete(0), "Discrete: n is 0, wanted a whole number, 1 or more"),
    "a list for a shape": (lambda: Box(0.0, 1.0, [4]), r"Box: shape is \[4\], wanted a tuple"),  # type: ignore[arg-type]
    "a list of bounds": (lambda: Box([0.0], 1.0, (1,)), "Box: low is list, wanted a number or a tuple"),  # type: ignore[arg-type]
    "too few bounds": (lambda: Box((0.0,), 1.0, (2,)), "Box: low is 1 numbers, wanted 2, or one for all"),
    "a fraction of a unit": (lambda: mlp([4, 8.0, 2]), r"mlp: sizes is \[4, 8.0, 2\]"),  # type: ignore[list-item]
    "an activation's class": (
        lambda: mlp([4, 2], torch.nn.Tanh),  # type: ignore[arg-type]
        "mlp: activation is the class Tanh, wanted a function",
    ),
    "one layer's size": (lambda: actor_critic_mlp(SEEN, TWO, 8), "hidden is 8, wanted a sequence of sizes; write"),  # type: ignore[arg-type]
}


def compiled(algorithm: Algorithm) -> Any:
    made = trainer(CARTPOLE, MODEL, algorithm, envs=2, horizon=4)
    return program(train(made, 1), backend="aot_eager")(made.init(KEY))


def one_line(call: Mistake, said: str) -> None:
    with pytest.raises(PurestepError, match=said) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert ", wanted " in text
    assert "; " in text


SLOW = {"an undeclared metric, compiled", "rows that do not divide, compiled"}
EACH = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in MISTAKES]


@pytest.mark.parametrize("mistake", EACH)
def test_a_mistake_is_one_line(mistake: str) -> None:
    one_line(*MISTAKES[mistake])


def _optimizer(factory: Callable[..., Any], name: str) -> Callable[[Any], Any]:
    return lambda value: factory(**{"learning_rate": 0.1, name: value})


def _algorithm(factory: Callable[..., Any], name: str) -> Callable[[Any], Any]:
    return lambda value: factory(MODEL, adam(0.1), **{name: value})


NUMBERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    **{
        f"{factory.__name__}: {name}": (_optimizer(factory, name), name)
        for factory, names in (
            (sgd, ("learning_rate", "momentum")),
            (nesterov, ("learning_rate", "momentum")),
            (adam, ("learning_rate", "beta1", "beta2", "eps")),
            (adamw, ("learning_rate", "beta1", "beta2", "eps", "weight_decay")),
            (muon, ("learning_rate", "momentum", "weight_decay")),
        )
        for name in names
    },
    "clip_by_global_norm": (clip_by_global_norm, "max_norm"),
    **{
        f"{factory.__name__}: {name}": (_algorithm(factory, name), name)
        for factory, names in (
            (
                ppo,
                ("gamma", "gae_lambda", "clip", "value_clip", "value_coefficient", "entropy_coefficient", "target_kl"),
            ),
            (decoupled_ppo, ("gamma", "gae_lambda", "clip", "value_coefficient", "entropy_coefficient")),
            (a2c, ("gamma", "gae_lambda", "value_coefficient", "entropy_coefficient")),
            (reinforce, ("gamma", "value_coefficient", "entropy_coefficient")),
        )
        for name in names
    },
    "language ppo: clip": (lambda value: objectives.ppo(clip=value), "clip"),
    "language ppo: gamma": (lambda value: objectives.ppo(gamma=value), "gamma"),
    "grpo: clip": (lambda value: objectives.grpo(clip=value), "clip"),
    "grpo: eps": (lambda value: objectives.grpo(eps=value), "eps"),
    "dr_grpo: length": (lambda value: objectives.dr_grpo(length=value), "length"),
    "gspo: clip": (lambda value: objectives.gspo(clip=value), "clip"),
    "cispo: high": (lambda value: objectives.cispo(high=value), "high"),
}
STRANGE = {
    "a schedule": (constant(1.0), "is function, .*chain.adam.1.0., scale_by_schedule.schedule.."),
    "a word": ("1e-3", "is '1e-3', wanted a number .*; pass a number"),
    "nothing": (None, "is None, wanted a number"),
    "a flag": (True, "is True, wanted a number"),
    "not a number": (torch.nan, "is nan, wanted a number"),
    "a vector": (torch.ones(2), r"is \[2\], wanted a number, \[\]"),
}


@pytest.mark.parametrize("strange", STRANGE)
def test_what_is_no_number_is_refused_where_it_enters(strange: str) -> None:
    value, said = STRANGE[strange]
    for factory, name in NUMBERS.values():
        one_line(partial(factory, value), f"{name}.*{said}")


def test_numbers_of_any_kind_are_taken() -> None:
    for rate in (1, 0.0, torch.tensor(0.1), torch.tensor(0.1, dtype=torch.float64)):
        adam(rate).init(torch.zeros(1))
    rates = torch.tensor([0.1, 0.2])
    states = torch.vmap(lambda rate: sgd(rate).init(torch.zeros(1)))(rates)
    assert states.hyperparameters["learning_rate"].shape == (2,)
    assert ppo(MODEL, adam(1e-3), entropy_coefficient=-0.01, clip=(0.2, torch.inf))


@pytest.mark.parametrize(
    "model",
    [HALF, separate(flat(categorical_head(mlp([4, 2]))), flat(scalar(mlp([4, 1])))), flat(HALF), flat(flat(TREES))],
    ids=["half", "both heads", "half, then whole", "twice"],
)
def test_models_flat_in_any_part_train(model: ActorCritic) -> None:
    _, metrics = play(model=model, algorithm=ppo(model, adam(1e-3), epochs=1, minibatches=2), iterations=2)
    assert metrics["finite"].tolist() == [1.0, 1.0]
    made = population(trainer(CARTPOLE, model, a2c(model, adam(1e-3)), envs=2, horizon=2))
    assert train(made, 1)(made.init(keys.split(KEY, 2)))[1]["finite"].tolist() == [[1.0, 1.0]]
