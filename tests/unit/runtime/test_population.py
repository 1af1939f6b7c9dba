"""population: each member is the run it would be alone, whatever stands beside it, in one program."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.algorithm import TrainState
from purestep.algorithms.ppo import ppo
from purestep.core import keys
from purestep.core.envs import make
from purestep.core.errors import ChoiceError, DtypeError, ShapeError
from purestep.core.keys import Key
from purestep.core.optim.optimizers import adam, apply_updates, chain, clip_by_global_norm, hyperparameters
from purestep.core.policy import actor_critic_mlp
from purestep.core.record import replace, stack, take
from purestep.core.scan import scan
from purestep.core.tree import leaves, same_structure
from purestep.runtime.compile import program
from purestep.runtime.episode_returns import none_yet
from purestep.runtime.evaluate import evaluate, summary
from purestep.runtime.normalizer import running
from purestep.runtime.population import each, population, with_hyperparameters
from purestep.runtime.rollout import Worlds
from purestep.runtime.train import RunState, Trainer, train, trainer

ENV = make("cartpole")
MODEL = actor_critic_mlp(ENV.observation_space, ENV.action_space, (8,))
MEMBERS = 3
SEEDS = torch.stack([keys.key(seed) for seed in range(MEMBERS)])


def one(rate: float = 0.01, target_kl: float = math.inf, **options: Any) -> Trainer:
    optimizer = chain(clip_by_global_norm(0.5), adam(rate))
    algorithm = ppo(MODEL, optimizer, epochs=2, minibatches=2, target_kl=target_kl)
    return trainer(ENV, MODEL, algorithm, envs=2, horizon=8, **options)


def assert_bits(got: Any, wanted: Any) -> None:
    same_structure("test", got, wanted)
    assert all(torch.equal(a, b) for a, b in zip(leaves(got), leaves(wanted), strict=True))


def assert_near(got: Any, wanted: Any) -> None:
    """After one iteration; integers, keys and flags bit for bit."""
    same_structure("test", got, wanted)
    for a, b in zip(leaves(got), leaves(wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_members_begin_as_they_would_alone() -> None:
    state = population(one()).init(SEEDS)
    assert_bits(state, stack([one().init(keys.key(seed)) for seed in range(MEMBERS)]))


@pytest.mark.parametrize("options", [{}, {"normalizer": running()}, {"target_kl": 1e-3}], ids=["", "normalised", "kl"])
def test_an_iteration_of_all_is_that_of_each(options: Any) -> None:
    alone, many = one(**options), population(one(**options))
    state, _ = many.iterate(many.init(SEEDS))  # statistics and moments of their own
    got, metrics = many.iterate(state)
    wanted = stack([alone.iterate(take(state, i)) for i in range(MEMBERS)])
    assert_near((got, dict(metrics)), wanted)
    assert many.metrics == alone.metrics
    assert many.steps == alone.steps
    assert len(set(metrics["policy_loss"].tolist())) == MEMBERS


def test_each_member_has_its_own_rate() -> None:
    rates = [0.0, 0.01, 0.1]
    many = population(one())
    state = with_hyperparameters(many.init(SEEDS), {"learning_rate": torch.tensor(rates)})
    got, _ = many.iterate(state)
    for i, rate in enumerate(rates):
        alone = one(rate)
        start = alone.init(keys.key(i))
        wanted, _ = alone.iterate(start)
        assert_near(take(got.learner.params, i), wanted.learner.params)
        moved = [not torch.equal(a, b) for a, b in zip(leaves(wanted.learner), leaves(start.learner), strict=True)]
        assert any(moved)
    assert_bits(take(got.learner.params, 0), take(state.learner.params, 0))


def test_hyperparameters_of_one_run_and_of_all_members_alike() -> None:
    alone = with_hyperparameters(one().init(keys.key(0)), {"beta1": 0.5})
    assert float(hyperparameters(alone.learner.optimizer)["beta1"]) == 0.5
    state = with_hyperparameters(population(one()).init(SEEDS), {"max_norm": 2.0})
    assert hyperparameters(state.learner.optimizer)["max_norm"].tolist() == [2.0] * MEMBERS
    assert_bits(replace(state, learner=()), replace(population(one()).init(SEEDS), learner=()))
    with pytest.raises(ChoiceError, match="with_hyperparameters: name is 'learning_rates'"):
        with_hyperparameters(state, {"learning_rates": 0.1})
    with pytest.raises(ShapeError):
        with_hyperparameters(state, {"learning_rate": torch.zeros(MEMBERS + 1)})


def test_numbers_of_the_algorithm_are_those_of_a_trainer_made_with_them() -> None:
    """The discount is also the normaliser's."""

    def learner(gamma: float, clip: float) -> Trainer:
        algorithm = ppo(MODEL, adam(0.01), gamma=gamma, clip=clip, epochs=2, minibatches=2)
        return trainer(ENV, MODEL, algorithm, envs=2, horizon=8, normalizer=running(gamma=gamma))

    other = learner(0.5, 0.25)
    changed = with_hyperparameters(learner(0.99, 0.2).init(keys.key(0)), {"gamma": 0.5, "clip": 0.25})
    assert_bits(changed, other.init(keys.key(0)))
    state, _ = train(learner(0.99, 0.2), 2)(changed)
    assert_bits(state, train(other, 2)(other.init(keys.key(0)))[0])


def test_a_name_that_nothing_has_is_refused() -> None:
    with pytest.raises(ChoiceError, match="with_hyperparameters: name is 'rate', wanted one of"):
        with_hyperparameters(one().init(keys.key(0)), {"rate": 0.5})


def test_train_tells_of_every_member() -> None:
    many = population(one())
    state = many.init(SEEDS)
    after, metrics = train(many, 2)(state)
    middle, early = many.iterate(state)
    end, late = many.iterate(middle)
    assert_bits(after, end)
    for name in many.metrics:
        assert torch.equal(metrics[name], torch.stack([early[name], late[name]]).to(torch.float32))
        assert metrics[name].shape == (2, MEMBERS)
    assert after.env_steps.tolist() == [2 * many.steps] * MEMBERS


def test_a_key_that_is_none_for_each_is_refused() -> None:
    with pytest.raises(ShapeError) as error:
        population(one()).init(keys.key(0))
    assert str(error.value) == "population: init: key is [2], wanted [S, 2]; pass a key for each member"
    with pytest.raises(DtypeError):
        population(one()).init(torch.zeros(3, 2))


# --- evaluation ---


@pytest.mark.parametrize("action", ["mode", "sample"])
def test_every_member_is_evaluated(action: str) -> None:
    play = evaluate(ENV, MODEL, episodes=4, steps=20, action=action, normalizer=running())
    state, _ = population(one(normalizer=running())).iterate(population(one(normalizer=running())).init(SEEDS))
    told = each(play)(state.learner.params, state.normalizer, keys.key(9))
    own = each(play)(state.learner.params, state.normalizer, keys.split(keys.key(9), MEMBERS))
    for i in range(MEMBERS):
        params, statistics = take(state.learner.params, i), take(state.normalizer, i)
        assert_bits(take(told, i), play(params, statistics, keys.key(9)))
        assert_bits(take(own, i), play(params, statistics, keys.split(keys.key(9), MEMBERS)[i]))
        assert summary(take(told, i)).episodes == 4
    assert not torch.equal(told.returns, own.returns)


# --- compiled ---


def learner_of_a_line() -> Trainer:
    """The smallest run with what makes a compiled population hard: a gradient in a loop in a loop, and a flag."""
    optimizer = adam(0.1)

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        return ((weight * x - 3.0 * x) ** 2).sum()

    def init(key: Key) -> RunState:
        weight = keys.normal(key, (2,))
        learner = TrainState(params=weight, optimizer=optimizer.init(weight), step=torch.tensor(0))
        worlds = Worlds(state=(), observation=torch.zeros(1), memory=())
        episodes = none_yet(1, key.device)
        steps = torch.tensor(0)
        return RunState(learner=learner, worlds=worlds, episodes=episodes, normalizer=(), key=key, env_steps=steps)

    def iterate(state: RunState) -> tuple[RunState, dict[str, Tensor]]:
        data = keys.uniform(state.key, (4, 2))

        def step(carry: Any, x: Tensor) -> Any:
            weight, memory, applies = carry
            gradient, value = torch.func.grad_and_value(loss)(weight, x)
            updates, after = optimizer.update(gradient, memory, weight)
            applies = applies & (value > 0.5)
            return (torch.where(applies, apply_updates(weight, updates), weight), after, applies), value

        applies = torch.ones_like(state.learner.step, dtype=torch.bool)
        start = (state.learner.params, state.learner.optimizer, applies)
        (weight, memory, _), losses = scan(step, start, data, output=data)
        learner = TrainState(params=weight, optimizer=memory, step=state.learner.step + 1)
        key = keys.fold_in(state.key, learner.step)
        return replace(state, learner=learner, key=key), {"loss": losses.mean()}

    return Trainer(init=init, iterate=iterate, steps=4, metrics=("loss",))


@pytest.mark.slow
def test_a_compiled_population_is_the_population() -> None:
    many = population(learner_of_a_line())
    state = many.init(SEEDS)
    lowered = program(train(many, 3), backend="aot_eager")
    assert_bits(lowered(state), train(many, 3)(state))
    assert len(lowered.seconds) == 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"target_kl": 0.01}, {"normalizer": running()}], ids=["kl", "normalised"])
def test_ppo_of_many_seeds_and_rates_is_one_program(options: Any) -> None:
    many = population(one(**options))
    rates = torch.tensor([0.0, 0.01, 0.02])
    state = with_hyperparameters(many.init(SEEDS), {"learning_rate": rates})
    lowered = program(train(many, 1))
    got, metrics = lowered(state)
    wanted = stack([train(one(**options), 1)(take(state, i)) for i in range(MEMBERS)])
    assert_near(got, wanted[0])
    for name in many.metrics:
        torch.testing.assert_close(metrics[name].T, wanted[1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_every_member_is_evaluated_in_one_program() -> None:
    play = each(evaluate(ENV, MODEL, episodes=4, steps=20, action="sample"))
    params = torch.vmap(MODEL.init)(SEEDS)
    assert_bits(program(play)(params, (), keys.key(9)), play(params, (), keys.key(9)))
