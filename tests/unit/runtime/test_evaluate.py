"""evaluate: whole episodes from fixed keys, counted to their first ending, whatever the batch and the lowering."""

from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from purestep.algorithms.a2c import a2c
from purestep.core import keys
from purestep.core.distributions import Categorical
from purestep.core.env import Env, time_limit
from purestep.core.envs import make
from purestep.core.errors import ChoiceError, ShapeError, StructureError
from purestep.core.keys import Key
from purestep.core.optim.optimizers import sgd
from purestep.core.policy import ActorCritic, actor_critic_mlp
from purestep.core.record import check, record, replace, take, tensor
from purestep.core.spaces import Box, Discrete
from purestep.core.steps import TimeStep, first, following
from purestep.core.tree import clone, leaves, same_structure
from purestep.runtime.evaluate import Evaluation, Summary, evaluate, summary
from purestep.runtime.normalizer import Normalizer, identity, running, with_normalizer
from purestep.runtime.population import each, population
from purestep.runtime.train import RunState, train, trainer

CARTPOLE = make("cartpole")
MODEL = actor_critic_mlp(CARTPOLE.observation_space, CARTPOLE.action_space, (8,))
PARAMS = MODEL.init(keys.key(3))
KEY = keys.key(7)


def assert_bits(got: Any, wanted: Any) -> None:
    same_structure("test", got, wanted)
    assert all(torch.equal(a, b) for a, b in zip(leaves(got), leaves(wanted), strict=True))


@record
class Clock:
    left: Tensor = tensor("*", "int")  # steps until the end
    age: Tensor = tensor("*", "int")


def clock() -> Env[Any, Clock]:
    """An episode of as many steps as a reset draws; a step pays its number. After its end it would go on, and pay NaN."""

    def reset(params: Any, key: Key) -> tuple[Clock, TimeStep]:
        left = keys.randint(key, (), 1, 7)
        return Clock(left=left, age=torch.zeros_like(left)), first(left.to(torch.float32)[None])

    def step(params: Any, state: Clock, action: Tensor, key: Key) -> tuple[Clock, TimeStep]:
        after = Clock(left=state.left - 1, age=state.age + 1)
        pay = torch.where(state.left > 0, after.age.to(torch.float32), torch.nan)
        told = following(after.left.to(torch.float32)[None], pay, after.left == 0)
        return after, told

    return Env(params=(), reset=reset, step=step, observation_space=Box(-99.0, 9.0, (1,)), action_space=Discrete(2))


def test_episodes_are_counted_to_their_first_ending() -> None:
    model = actor_critic_mlp(clock().observation_space, clock().action_space, ())
    told = evaluate(clock(), model, episodes=40, steps=5)(model.init(KEY), (), KEY)
    reset_key, _, _ = keys.split(KEY, 3)
    drawn = torch.stack([clock().reset((), key)[0].left for key in keys.split(reset_key, 40)])
    assert set(drawn.tolist()) == {1, 2, 3, 4, 5, 6}
    lengths = drawn.clamp_max(5)
    assert torch.equal(told.lengths, lengths)
    assert torch.equal(told.ended, drawn <= 5)
    assert torch.equal(told.returns, (lengths * (lengths + 1) / 2).to(torch.float32))
    check(told, (40,))


def test_after_the_last_ending_nothing_changes() -> None:
    model = actor_critic_mlp(clock().observation_space, clock().action_space, ())
    exact, long = (evaluate(clock(), model, episodes=10, steps=steps)(model.init(KEY), (), KEY) for steps in (6, 60))
    assert_bits(exact, long)
    assert bool(long.ended.all())


def shaky() -> Env[Any, Any]:
    """A cartpole of at most 20 steps whose wind depends on the key of the step."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> tuple[Any, TimeStep]:
        wind = keys.bernoulli(key, 0.5).to(torch.int64)
        return CARTPOLE.step(params, state, (action + wind) % 2, key)

    return time_limit(attrs.evolve(CARTPOLE, step=step, hoisted=None), 20)


def by_hand(env: Env[Any, Any], episode: int, count: int, steps: int, sample: bool) -> tuple[float, int, bool]:
    """One world alone, in a Python loop that stops at the end."""
    reset_key, env_key, policy_key = keys.split(KEY, 3)
    state, told = env.reset(env.params, keys.split(reset_key, count)[episode])
    total = 0.0
    for t in range(steps):
        distribution, _, _ = MODEL.apply(PARAMS, told.observation, ())
        action_key = keys.split(keys.split(policy_key, steps)[t], count)[episode]
        action = distribution.sample(action_key) if sample else distribution.mode()
        state, told = env.step(env.params, state, action, keys.split(keys.split(env_key, steps)[t], count)[episode])
        total += float(told.reward)
        if told.terminated or told.truncated:
            return total, t + 1, True
    return total, steps, False


@pytest.mark.parametrize("action", ["mode", "sample"])
@pytest.mark.parametrize("steps", [19, 25])
def test_episodes_are_those_of_a_loop(action: str, steps: int) -> None:
    told = evaluate(shaky(), MODEL, episodes=8, steps=steps, action=action)(PARAMS, (), KEY)
    wanted = [by_hand(shaky(), i, 8, steps, action == "sample") for i in range(8)]
    assert list(zip(told.returns.tolist(), told.lengths.tolist(), told.ended.tolist(), strict=True)) == wanted
    lengths = [length for _, length, _ in wanted]
    assert min(lengths) < 19 <= max(lengths)  # some fall, some are cut


def test_modes_need_no_luck_and_samples_do() -> None:
    pendulum = make("pendulum")
    model = actor_critic_mlp(pendulum.observation_space, pendulum.action_space, (4,))
    params = model.init(KEY)
    plays = {action: evaluate(pendulum, model, episodes=3, steps=20, action=action) for action in ("mode", "sample")}
    told = {action: play(params, (), KEY) for action, play in plays.items()}
    for action, play in plays.items():
        assert_bits(play(params, (), KEY), told[action])
    assert not torch.allclose(told["mode"].returns, told["sample"].returns)
    assert not told["mode"].ended.any()
    assert told["mode"].lengths.tolist() == [20, 20, 20]


def test_few_episodes_are_the_first_of_many() -> None:
    few, many = (evaluate(CARTPOLE, MODEL, episodes=n, steps=15, action="sample")(PARAMS, (), KEY) for n in (3, 5))
    assert_bits(few, take(many, slice(3)))


def test_another_key_sets_other_episodes() -> None:
    play = evaluate(CARTPOLE, MODEL, episodes=8, steps=30)
    assert not torch.equal(play(PARAMS, (), KEY).lengths, play(PARAMS, (), keys.key(8)).lengths)


def test_nothing_is_written_to() -> None:
    arguments = (PARAMS, running().init(CARTPOLE.observation_space, 2, torch.device("cpu")), KEY)
    before = clone(arguments)
    evaluate(CARTPOLE, MODEL, episodes=2, steps=5, normalizer=running())(*arguments)
    assert_bits(arguments, before)
    assert all(leaf._version == 0 for leaf in leaves(arguments[1:]))


def test_the_policy_sees_through_the_statistics_given() -> None:
    normalizer = running(rewards=False)
    blank = normalizer.init(CARTPOLE.observation_space, 2, torch.device("cpu"))
    plain = evaluate(CARTPOLE, MODEL, episodes=8, steps=40)(PARAMS, (), KEY)
    play = evaluate(CARTPOLE, MODEL, episodes=8, steps=40, normalizer=normalizer)
    assert_bits(play(PARAMS, blank, KEY), plain)
    lean = torch.tensor([0.0, 0.0, 0.1, 0.0])
    shifted = replace(blank, observation=replace(blank.observation, mean=lean))
    tilted = ActorCritic(init=MODEL.init, apply=lambda p, x, carry: MODEL.apply(p, (x - lean).clamp(-10, 10), carry))
    assert_bits(play(PARAMS, shifted, KEY), evaluate(CARTPOLE, tilted, episodes=8, steps=40)(PARAMS, (), KEY))
    assert not torch.equal(play(PARAMS, shifted, KEY).lengths, plain.lengths)


SCALED = trainer(CARTPOLE, MODEL, a2c(MODEL, sgd(0.1)), envs=4, horizon=16, normalizer=running(clip=1.0))


@pytest.fixture(scope="module")
def scaled() -> RunState:
    """A state whose params were trained on scaled observations."""
    return train(SCALED, 2)(SCALED.init(KEY))[0]


def test_a_state_brings_its_statistics(scaled: RunState) -> None:
    params, statistics = scaled.learner.params, scaled.normalizer
    many: dict[str, Any] = {"episodes": 8, "steps": 40}
    plain = evaluate(CARTPOLE, MODEL, **many)
    wanted = evaluate(CARTPOLE, MODEL, **many, normalizer=running(clip=1.0))(params, statistics, KEY)
    assert_bits(plain(scaled, KEY), wanted)
    assert_bits(plain(params, statistics, KEY), wanted)
    seen = with_normalizer(MODEL, statistics)
    assert_bits(evaluate(CARTPOLE, seen, **many)(params, (), KEY), wanted)
    assert not torch.equal(plain(params, (), KEY).lengths, wanted.lengths)
    none = trainer(CARTPOLE, MODEL, a2c(MODEL, sgd(0.1)), envs=2, horizon=2).init(KEY)
    assert_bits(plain(none, KEY), plain(none.learner.params, (), KEY))


def test_the_states_of_a_population_bring_theirs() -> None:
    many = population(SCALED)
    states, _ = train(many, 2)(many.init(keys.split(KEY, 2)))
    play = each(evaluate(CARTPOLE, MODEL, episodes=3, steps=40))
    assert_bits(play(states, KEY), play(states.learner.params, states.normalizer, KEY))


def test_statistics_without_their_normalizer_are_refused(scaled: RunState) -> None:
    params, statistics = scaled.learner.params, scaled.normalizer

    def play(**how: Any) -> Any:
        return evaluate(CARTPOLE, MODEL, episodes=1, steps=2, **how)

    with pytest.raises(
        StructureError, match=r"^evaluate: statistics is \(\), wanted the normaliser's: of `running`.*clip 1\.0"
    ):
        play(normalizer=running(clip=1.0))(params, (), KEY)
    with pytest.raises(StructureError, match=r"clip 1\.0, wanted .*clip 10\.0; pass those of the state"):
        play(normalizer=running())(params, statistics, KEY)
    with pytest.raises(StructureError, match=r"wanted the normaliser's: \(\)"):
        play(normalizer=identity())(scaled, KEY)
    other = Normalizer(
        init=lambda space, worlds, device: {"shift": torch.zeros(4)},
        observe=lambda statistics, observation: observation - statistics["shift"],
        scale=lambda statistics, trajectory: trajectory,
        update=lambda statistics, trajectory: statistics,
    )
    theirs = other.init(CARTPOLE.observation_space, 1, torch.device("cpu"))
    with pytest.raises(StructureError, match=r"^evaluate: statistics is dict with shift, wanted .*; pass normalizer="):
        play()(params, theirs, KEY)
    with pytest.raises(StructureError, match=r"^with_normalizer: statistics is dict with shift"):
        with_normalizer(MODEL, theirs)
    assert_bits(play(normalizer=other)(params, theirs, KEY), play()(params, (), KEY))
    with pytest.raises(StructureError, match=r"^evaluate: a state is beside statistics, wanted alone"):
        play()(scaled, statistics, KEY)
    with pytest.raises(StructureError, match=r"^evaluate: key is absent"):
        play()(params, KEY)


def test_wrong_numbers_and_names_are_refused() -> None:
    with pytest.raises(ChoiceError, match=r"evaluate: action is 'modes', wanted one of .*; did you mean 'mode'"):
        evaluate(CARTPOLE, MODEL, episodes=1, steps=1, action="modes")
    for episodes, steps in ((0, 1), (1, 0)):
        with pytest.raises(ChoiceError, match=r"evaluate: (episodes|steps) is 0, wanted a whole number, 1 or more"):
            evaluate(CARTPOLE, MODEL, episodes=episodes, steps=steps)


def test_an_evaluation_in_numbers() -> None:
    told = Evaluation(
        returns=torch.tensor([1.0, 5.0, 3.0, 3.0]),
        lengths=torch.tensor([1, 2, 3, 4]),
        ended=torch.tensor([True, True, False, True]),
    )
    assert summary(told) == Summary(
        episodes=4,
        mean_return=3.0,
        return_deviation=2.0**0.5,
        lowest_return=1.0,
        highest_return=5.0,
        mean_length=2.5,
        ended=0.75,
    )
    assert summary(told).line() == "4 episodes: return 3.0 ± 1.4 (1.0 to 5.0), length 2.5, 75% ended"
    assert summary(take(told, slice(1))).return_deviation == 0.0
    with pytest.raises(ShapeError, match=r"summary: returns is \[1, 4\], wanted \[E\]"):
        summary(Evaluation(returns=told.returns[None], lengths=told.lengths[None], ended=told.ended[None]))


def test_a_policy_with_memory_begins_with_what_it_is_given() -> None:
    """The memory counts steps; its parity is the action, and shows in what the world pays."""

    def apply(params: Any, observation: Tensor, carry: Tensor) -> Any:
        logits = torch.where((carry % 2 == 0)[..., None], torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        return Categorical(logits=logits), observation[..., 0] * 0.0, carry + 1

    def step(params: Any, state: Clock, action: Tensor, key: Key) -> tuple[Clock, TimeStep]:
        after, told = clock().step(params, state, action, key)
        return after, replace(told, reward=action.to(torch.float32) * 2.0**-after.age)

    env, model = attrs.evolve(clock(), step=step), ActorCritic(init=lambda key: (), apply=apply)
    for begun in (0, 1):
        memory = torch.full((8,), begun)
        played = evaluate(env, model, episodes=8, steps=6, memory=memory)((), (), KEY)
        wanted = [sum(2.0 ** -(t + 1) for t in range(int(n)) if (begun + t) % 2) for n in played.lengths]
        assert played.returns.tolist() == wanted
    with pytest.raises(StructureError, match="evaluate: the model's memory is "):
        evaluate(
            env,
            attrs.evolve(model, apply=lambda p, o, c: (*apply(p, o, c)[:2], ())),
            episodes=8,
            steps=6,
            memory=memory,
        )((), (), KEY)
