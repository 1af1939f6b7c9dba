"""trainer and train: the counters, one fixed structure, and a run that does not notice how it was cut."""

from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from purestep.algorithms.a2c import a2c
from purestep.algorithms.algorithm import Algorithm, TrainState
from purestep.algorithms.ppo import ppo
from purestep.core import keys
from purestep.core.env import auto_reset, batched, time_limit
from purestep.core.envs import make
from purestep.core.errors import ChoiceError, ShapeError
from purestep.core.keys import Key
from purestep.core.optim.optimizers import adam, chain, clip_by_global_norm, sgd
from purestep.core.policy import ActorCritic, actor_critic_mlp
from purestep.core.probes import probe, probed
from purestep.core.record import check, replace, stack, tensor
from purestep.core.record import record as a_record
from purestep.core.steps import TimeStep, Trajectory, ended
from purestep.core.tree import clone, leaves, same_structure
from purestep.runtime.compile import program
from purestep.runtime.normalizer import running
from purestep.runtime.population import population
from purestep.runtime.rollout import rollout
from purestep.runtime.train import COUNTS, RunState, Trainer, folded, train, trainer, with_probes

ENVS, HORIZON = 2, 8
CARTPOLE = make("cartpole")
SHORT = time_limit(make("cartpole"), 5)  # some episodes are cut, and all are short
MODEL = actor_critic_mlp(CARTPOLE.observation_space, CARTPOLE.action_space, (8,))


def small(**options: Any) -> Trainer:
    algorithm = ppo(MODEL, chain(clip_by_global_norm(0.5), adam(0.01)), epochs=2, minibatches=2)
    return trainer(SHORT, MODEL, algorithm, envs=ENVS, horizon=HORIZON, **options)


def assert_bits(got: Any, wanted: Any) -> None:
    same_structure("test", got, wanted)
    assert all(torch.equal(a, b) for a, b in zip(leaves(got), leaves(wanted), strict=True))


@a_record
class Nothing:
    """An optimiser's state that counts."""

    calls: Tensor = tensor("*", "int")


def spy(seen: list[Trajectory], model: ActorCritic = MODEL, spoil: bool = False) -> Algorithm:
    """Notes its trajectories; `spoil` makes a parameter NaN at the second update."""

    def init(key: Key) -> TrainState:
        return TrainState(params=model.init(key), optimizer=Nothing(calls=torch.tensor(0)), step=torch.tensor(0))

    def update(state: TrainState, trajectory: Trajectory, key: Key) -> tuple[TrainState, dict[str, Tensor]]:
        seen.append(trajectory)
        params = state.params
        if spoil and len(seen) == 2:
            *layers, last = params["policy"]
            params = {**params, "policy": (*layers, replace(last, bias=torch.full((2,), torch.nan)))}
        told = {"steps": state.step.to(torch.float64), "key": key[0]}
        return replace(state, params=params, step=state.step + 1), told

    return Algorithm(init=init, update=update, metrics=("steps", "key"))


# --- what an iteration is ---


def test_an_iteration_is_a_rollout_and_an_update() -> None:
    algorithm = ppo(MODEL, adam(0.01), epochs=1, minibatches=2)
    made = trainer(SHORT, MODEL, algorithm, envs=ENVS, horizon=HORIZON)
    state = made.init(keys.key(1))
    after, metrics = made.iterate(state)
    act_key, update_key, key = keys.split(state.key, 3)
    env = batched(auto_reset(SHORT), ENVS)
    worlds, played = rollout(env, MODEL, HORIZON)(state.learner.params, state.worlds, act_key)
    learner, told = algorithm.update(state.learner, played, update_key)
    assert_bits(after.learner, learner)
    assert_bits(after.worlds, worlds)
    assert torch.equal(after.key, key)
    assert after.env_steps.item() == made.steps == ENVS * HORIZON
    assert tuple(metrics) == made.metrics == (*algorithm.metrics, *COUNTS)
    assert_bits({name: metrics[name] for name in told}, told)


def test_counters_say_what_was_played() -> None:
    seen: list[Trajectory] = []
    made = trainer(SHORT, MODEL, spy(seen), envs=3, horizon=HORIZON)
    state, metrics = train(made, 4)(made.init(keys.key(1)))
    total, length = torch.zeros(3), torch.zeros(3)
    for n, played in enumerate(seen):
        sums = torch.zeros(3)  # episodes, returns, lengths
        for t in range(HORIZON):
            total, length = total + played.reward[t], length + 1
            over = ended(played.terminated[t], played.truncated[t])
            sums = sums + torch.stack([over.sum(), total[over].sum(), length[over].sum()])
            total, length = torch.where(over, 0.0, total), torch.where(over, 0.0, length)
        assert [metrics[name][n].item() for name in COUNTS] == [*sums.tolist(), 1.0]
    assert metrics["episodes"].sum().item() > 10
    assert metrics["steps"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert len(set(metrics["key"].tolist())) == 4
    assert state.env_steps.item() == 4 * 3 * HORIZON
    assert all(value.shape == (4,) and value.dtype == torch.float32 for value in metrics.values())


def test_episodes_go_on_across_iterations() -> None:
    """Five steps a rollout, seven an episode, so that the fifth episode ends with the seventh rollout."""
    long = time_limit(make("mountain_car"), 7)
    model = actor_critic_mlp(long.observation_space, long.action_space, (4,))
    made = trainer(long, model, a2c(model, sgd(0.0)), envs=ENVS, horizon=5)
    _, metrics = train(made, 9)(made.init(keys.key(1)))
    ends = [0.0, 2.0, 2.0, 0.0, 2.0, 2.0, 2.0, 0.0, 2.0]
    assert metrics["episodes"].tolist() == ends
    assert metrics["length_sum"].tolist() == [7 * n for n in ends]
    assert metrics["return_sum"].tolist() == [-7 * n for n in ends]


def test_finite_is_0_from_where_something_is_not() -> None:
    seen: list[Trajectory] = []
    made = trainer(SHORT, MODEL, spy(seen, spoil=True), envs=ENVS, horizon=HORIZON)
    _, metrics = folded(made, 3)(made.init(keys.key(1)))
    assert metrics["finite"].tolist() == [1.0, 0.0, 0.0]


def test_where_resets_are_computed_changes_no_bit() -> None:
    pooled, select = small(), small(reset="select")
    assert_bits(train(pooled, 2)(pooled.init(keys.key(1))), train(select, 2)(select.init(keys.key(1))))


def test_rows_that_minibatches_do_not_divide_are_refused() -> None:
    made = trainer(SHORT, MODEL, ppo(MODEL, adam(0.01), minibatches=3), envs=ENVS, horizon=HORIZON)
    with pytest.raises(ShapeError, match="ppo: rows is 16, wanted a multiple of 3 minibatches"):
        made.iterate(made.init(keys.key(1)))


# --- a run is one value ---


def test_a_run_is_decided_by_its_key() -> None:
    made = small()
    assert_bits(made.init(keys.key(1)), made.init(keys.key(1)))
    one, other = made.init(keys.key(1)), made.init(keys.key(2))
    for part in ("key", "worlds", "learner"):
        pairs = zip(leaves(getattr(one, part)), leaves(getattr(other, part)), strict=True)
        assert any(not torch.equal(a, b) for a, b in pairs)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "normalised": {"normalizer": running()},
    "reset in the step": {"reset": "select"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_state_keeps_its_structure_and_the_old_one_its_bits(options: Any) -> None:
    made = small(**options)
    state = made.init(keys.key(1))
    before = clone(state)
    after, _ = made.iterate(state)
    same_structure("state", after, state)
    assert_bits(state, before)
    assert all(leaf._version == 0 for leaf in leaves(state))
    for whole in (state, after):
        check(replace(whole, worlds=(), episodes=(), normalizer=()), ())  # these have axes of their own
        check(whole.episodes, (ENVS,))
    storages = [leaf.data_ptr() for leaf in leaves(after) if leaf.numel()]
    assert len(set(storages)) == len(storages)


@pytest.mark.parametrize("cut", [(1, 2), (2, 1), (0, 3)])
def test_a_run_cut_in_two_is_the_run(cut: tuple[int, int]) -> None:
    made = small(normalizer=running())
    state = made.init(keys.key(1))
    whole, metrics = train(made, 3)(state)
    middle, early = train(made, cut[0])(state)
    end, late = train(made, cut[1])(middle)
    assert_bits(end, whole)
    for name in made.metrics:
        assert torch.equal(torch.cat([early[name], late[name]]), metrics[name])
    assert whole.env_steps.item() == 3 * made.steps


@pytest.mark.slow
def test_a_compiled_run_is_the_run() -> None:
    """One graph without code generation: the operations of Python, in loops."""
    probe = make("probe_both")
    model = actor_critic_mlp(probe.observation_space, probe.action_space, ())  # small: compiling is what costs
    made = trainer(probe, model, a2c(model, adam(0.01)), envs=ENVS, horizon=4)
    lowered = program(train(made, 2), backend="aot_eager")
    state = made.init(keys.key(1))
    wanted, metrics = train(made, 4)(state)
    middle, _ = lowered(state)
    lowered.settle()
    end, metrics = lowered(middle)
    assert_bits(end, wanted)
    assert tuple(metrics) == made.metrics
    assert len(lowered.seconds) == 1


def resumed() -> tuple[RunState, RunState, RunState, Trainer]:
    """A run of two steps at once, one after its first step and after its second, and its trainer."""
    made = small(normalizer=running(), unroll=4)
    once, twice = (program(train(made, n)) for n in (1, 2))
    state = made.init(keys.key(1))
    whole, metrics = twice(state)
    middle, early = once(state)
    end, late = once(middle)
    for name in made.metrics:
        assert torch.equal(torch.cat([early[name], late[name]]), metrics[name])
    assert len(once.seconds) == len(twice.seconds) == 1
    return whole, middle, end, made


@pytest.mark.slow
def test_resumed_is_never_stopped_when_compiled() -> None:
    whole, one, end, made = resumed()
    assert_bits(end, whole)
    eager, _ = train(made, 1)(made.init(keys.key(1)))
    for got, wanted in zip(leaves(one), leaves(eager), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


# --- the environment's params in the state ---


def test_params_in_the_state_are_those_that_the_env_has() -> None:
    env = make("cartpole")
    heavy = replace(env.params, pole_mass=env.params.pole_mass * 4)
    settings: dict[str, Any] = {"envs": 2, "horizon": 16}
    learns = a2c(MODEL, sgd(0.1))
    given = trainer(env, MODEL, learns, params=heavy, **settings)
    fixed = trainer(attrs.evolve(env, params=heavy), MODEL, learns, **settings)
    state, metrics = train(given, 3)(given.init(keys.key(0)))
    wanted, figures = train(fixed, 3)(fixed.init(keys.key(0)))
    assert_bits((state.worlds, state.learner, dict(metrics)), (wanted.worlds, wanted.learner, dict(figures)))
    assert_bits(state.env_params, heavy)
    light, _ = given.iterate(replace(given.init(keys.key(0)), env_params=env.params))
    assert not torch.equal(light.worlds.observation, given.iterate(given.init(keys.key(0)))[0].worlds.observation)


def test_each_world_may_have_params_of_its_own() -> None:
    env = make("cartpole")
    two = stack([env.params, replace(env.params, gravity=env.params.gravity * 2)])
    both = trainer(env, MODEL, a2c(MODEL, sgd(0.1)), envs=2, horizon=16, params=two, own_params=True)
    state, _ = both.iterate(both.init(keys.key(0)))
    alike = replace(both.init(keys.key(0)), env_params=stack([env.params, env.params]))
    other, _ = both.iterate(alike)
    assert torch.equal(state.worlds.observation[0], other.worlds.observation[0])
    assert not torch.equal(state.worlds.observation[1], other.worlds.observation[1])


def test_params_for_each_world_have_to_be_given() -> None:
    with pytest.raises(ChoiceError, match="trainer: params is none, wanted a row for each env; pass params"):
        trainer(make("cartpole"), MODEL, a2c(MODEL, sgd(0.1)), envs=2, horizon=16, own_params=True)


# --- probes ---


def watched() -> Trainer:
    """CartPole whose steps have a probe, and a policy that has another, in rollouts and in losses."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> tuple[Any, TimeStep]:
        state, timestep = SHORT.step(params, state, action, key)
        probe("angle", timestep.next_observation[2])
        return state, timestep

    def apply(params: Any, observation: Tensor, memory: Any) -> Any:
        distribution, value, memory = MODEL.apply(params, observation, memory)
        return distribution, probe("value", value), memory

    model = attrs.evolve(MODEL, apply=apply)
    algorithm = ppo(model, chain(clip_by_global_norm(0.5), adam(0.01)), epochs=2, minibatches=2)
    return trainer(attrs.evolve(SHORT, step=step, hoisted=None), model, algorithm, envs=ENVS, horizon=HORIZON)


def test_probes_are_metrics_over_all_values_of_an_iteration_and_change_nothing() -> None:
    made = watched()
    state = made.init(keys.key(0))
    (after, plain), values = probed(made.iterate)(state)
    shapes = [tuple(value.shape) for value in values["value"]]
    # of the rollout, the values and next values before the update, and the losses
    assert shapes == [(HORIZON, ENVS)] + [(HORIZON * ENVS,)] * 2 + [(4, HORIZON * ENVS // 2)]
    angles = made.play(state).next_observation[..., 2]  # type: ignore[operator]
    seen, metrics = with_probes(made, "angle", "value").iterate(state)
    assert_bits(seen, after)
    assert_bits(seen, made.iterate(state)[0])
    every = torch.cat([value.flatten() for value in values["value"]])
    wanted = {"angle": angles, "value": every}
    for name, numbers in wanted.items():
        torch.testing.assert_close(metrics[f"{name}_mean"], numbers.mean())
        assert (metrics[f"{name}_min"], metrics[f"{name}_max"]) == (numbers.min(), numbers.max())
    assert {name: metrics[name] for name in plain} == plain


@pytest.mark.slow
def test_probes_of_a_compiled_population_are_those_of_each_member() -> None:
    made = with_probes(watched(), "angle", "value")
    seeds = stack([keys.key(seed) for seed in range(2)])
    learn = program(train(population(made), 2))
    _, metrics = learn(population(made).init(seeds))
    assert learn.reason == ""
    assert metrics["angle_min"].shape == (2, 2)
    for member, seed in enumerate(seeds):
        _, alone = train(made, 2)(made.init(seed))
        for name, numbers in alone.items():
            torch.testing.assert_close(metrics[name][:, member], numbers, rtol=1e-3, atol=1e-4, msg=name)


def test_names_of_probes_that_cannot_be_metrics_are_refused() -> None:
    made = watched()
    with pytest.raises(ChoiceError, match="with_probes: names is none, wanted at least one"):
        with_probes(made)
    for watching, names in ((made, ("angle", "angle")), (with_probes(made, "angle"), ("angle",))):
        with pytest.raises(ChoiceError, match="with_probes: names is 'angle_mean', twice"):
            with_probes(watching, *names)
    with pytest.raises(
        ChoiceError, match=r"with_probes: names is 'angel', wanted one of \['angle', 'value'\]; did you"
    ):
        train(with_probes(made, "angel"), 1)(made.init(keys.key(0)))
