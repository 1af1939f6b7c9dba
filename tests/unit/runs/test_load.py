"""load: from a run's folder to its policy, for each recipe; what is no run of one policy says what to call."""

from pathlib import Path
from typing import Any

import pytest
import torch

from purestep.algorithms.a2c import a2c
from purestep.core import keys
from purestep.core.envs import make
from purestep.core.errors import CheckpointError, ShapeError, StructureError, TrustError
from purestep.core.optim.optimizers import sgd
from purestep.core.policy import ActorCritic, actor_critic_mlp
from purestep.core.record import take
from purestep.core.spaces import Box, contains
from purestep.core.tree import leaves, tree_map
from purestep.runtime.effects.checkpoint.load import load_checkpoint
from purestep.runtime.effects.checkpoint.single import save
from purestep.runtime.evaluate import evaluate, summary
from purestep.runtime.normalizer import running
from purestep.runtime.population import population
from purestep.runtime.recipes.evaluate_policy import APART, LONGEST, evaluate_run
from purestep.runtime.recipes.load_policy import load
from purestep.runtime.runs.migrations import SCHEMA
from purestep.runtime.runs.run import newest_checkpoint, restore_run, silent, train
from purestep.runtime.train import trainer
from purestep.runtime.trained_policy import TrainedPolicy, policy, visited

from ...recorded_runs.record import ABSENT, RUNS, copied

SMALL: dict[str, Any] = {"steps": 64, "envs": 2, "horizon": 8, "hidden": (4,), "backend": "none", "notice": silent}
BOAT = """
import torch
import purestep as ps

def reset(params, key):
    place = 2 * ps.keys.uniform(key, (2,)) - 1
    return place, ps.first(place)

def step(params, place, action, key):
    place = place + action
    return place, ps.following(place, -place.abs().sum(), place.abs().sum() > 3)

BOAT = ps.time_limit(ps.Env((), reset, step, ps.Box(-9.0, 9.0, (2,)), ps.Box(-0.1, 0.1, (2,))), 20)
"""


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a normaliser of observations and rewards."""
    run = tmp_path_factory.mktemp("runs") / "scaled"
    train("ppo", run, env="pendulum", **{**SMALL, "minibatches": 2, "normalize": "both"})
    return run


def test_a_run_gives_the_policy_that_evaluate_plays(scaled: Path) -> None:
    found = load(scaled)
    assert isinstance(found, TrainedPolicy)
    assert (found.recipe, found.iteration, found.arguments.experience.env) == ("ppo", 4, "pendulum")
    play = evaluate(found.env, found.raw, episodes=5, steps=LONGEST)
    result = summary(play(found.params, (), keys.fold_in(keys.key(3), APART)))
    assert result.mean_return == evaluate_run(scaled, episodes=5, seed=3).mean_return
    unscaled = evaluate(found.env, found.model, episodes=5, steps=LONGEST)
    assert summary(unscaled(found.params, (), keys.fold_in(keys.key(3), APART))).mean_return != result.mean_return


@pytest.mark.parametrize("recipe", ["a2c", "reinforce", "dqn"])
def test_other_recipes_of_environments_open_alike(recipe: str, tmp_path: Path) -> None:
    train(recipe, tmp_path / "run", **SMALL)
    threads = torch.get_num_threads()
    found = load(str(tmp_path / "run"))
    assert torch.get_num_threads() == threads
    assert isinstance(found, TrainedPolicy)
    observations = visited(found, 20, keys.key(0))
    assert observations.shape == (20, 4)
    actions = found.action(observations)
    assert (actions.shape, actions.dtype) == ((20,), torch.int64)
    assert torch.equal(found.action(observations.reshape(4, 5, 4)), actions.reshape(4, 5))
    assert torch.equal(found.action(observations[7]), actions[7])
    sampled = found.sample(observations, keys.split(keys.key(1), 20))
    assert bool(contains(found.env.action_space, sampled).all())
    assert found.distribution(observations[0]).log_prob(sampled[0]).shape == ()
    with pytest.raises(ShapeError, match=r"^policy: observation is \[3\], wanted \[\*, 4\]"):
        found.action(torch.zeros(3))


@pytest.mark.slow
def test_a_policy_of_proofs_opens_and_acts(tmp_path: Path) -> None:
    small: dict[str, Any] = {
        "steps": 32,
        "envs": 2,
        "horizon": 8,
        "minibatches": 2,
        "warm_up": 0,
        "imitated_facts": 0,
        "size": 8,
    }
    train("prove", tmp_path / "run", data="family:30", width=8, backend="none", notice=silent, **small)
    found = load(tmp_path / "run")
    assert isinstance(found, TrainedPolicy)
    observations = visited(found, 10, keys.key(0))
    legal = torch.gather(observations.action_mask, 1, found.action(observations)[:, None])
    assert bool(legal.all())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNS if name != "sweep"])
def test_a_recorded_run_of_each_recipe_opens(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    kind = f"schema_{SCHEMA}" if name in ABSENT["schema_1"] else "schema_1"
    found = load(copied(f"{kind}/{name}", tmp_path / "run"), trust=True)
    assert found.recipe == name.partition("_")[0]
    assert all(bool(leaf.isfinite().all()) for leaf in leaves(found.params))
    if isinstance(found, TrainedPolicy):
        observations = visited(found, 8, keys.key(0))
        distribution, memory = found.step(observations)
        assert distribution.mode().shape[0] == 8
        assert bool(leaves(memory)) is (name == "ppo_memory")
        scaled = name == "ppo_normalized"
        assert bool(leaves(found.statistics)) is scaled
    else:
        assert found.tokenizer.decode(found.tokenizer.encode("2 + 3")) == "2 + 3"
        assert leaves(found.model.init(keys.key(0)))


def test_an_action_is_within_the_bounds() -> None:
    env = make("pendulum")
    model = actor_critic_mlp(env.observation_space, env.action_space, (4,))
    run = trainer(env, model, a2c(model, sgd(0.1)), envs=2, horizon=2)
    found = policy(env, model, run.init(keys.key(0)))
    params = tree_map(lambda leaf: 900.0 * leaf, found.params)
    wild = TrainedPolicy(env=env, model=model, params=params)
    observations = visited(found, 64, keys.key(0))
    assert float(wild.distribution(observations).mode().abs().max()) > 2.0
    assert float(wild.action(observations).abs().max()) == 2.0
    assert float(wild.sample(observations, keys.split(keys.key(0), 64)).abs().max()) == 2.0


def test_a_state_gives_its_policy_or_is_refused() -> None:
    env = make("probe_both")
    model = actor_critic_mlp(env.observation_space, env.action_space, (4,))
    run = trainer(env, model, a2c(model, sgd(0.1)), envs=2, horizon=2, normalizer=running())
    state, _ = run.iterate(run.init(keys.key(0)))
    found, seen = policy(env, model, state), torch.tensor([[1.0], [-1.0]])
    wanted: Any = model.apply(state.learner.params, running().observe(state.normalizer, seen), ())[0]
    got: Any = found.distribution(seen)
    assert torch.equal(got.logits, wanted.logits)
    many = population(run).init(keys.split(keys.key(0), 2))
    with pytest.raises(ShapeError, match=r"^policy: state is a population's, wanted one member's"):
        policy(env, model, many)
    assert torch.equal(policy(env, model, take(many, 1)).statistics.observation.mean, torch.zeros(1))
    with pytest.raises(StructureError, match=r"^policy: statistics is of `running`.*clip 10.0, wanted .*clip 5.0"):
        policy(env, model, state, normalizer=running(clip=5.0))
    memory = ActorCritic(model.init, lambda params, x, carry: (*model.apply(params, x, ())[:2], torch.zeros(1)))
    with pytest.raises(StructureError, match=r"^TrainedPolicy: the model is one with memory"):
        policy(env, memory, state).action(seen)


def test_an_environment_of_the_users_needs_trust(tmp_path: Path) -> None:
    (tmp_path / "boat.py").write_text(BOAT)
    train("a2c", tmp_path / "run", env=f"{tmp_path / 'boat.py'}:BOAT", **SMALL)
    with pytest.raises(
        TrustError, match=r"calls .*boat\.py:BOAT, .*; if you trust it: purestep\.load\('.*', trust=True\)"
    ):
        load(tmp_path / "run")
    found = load(tmp_path / "run", trust=True)
    assert isinstance(found, TrainedPolicy)
    assert found.env.action_space == Box(-0.1, 0.1, (2,))


def test_other_folders_say_what_to_call(scaled: Path, tmp_path: Path) -> None:
    checkpoint = newest_checkpoint(scaled)
    with pytest.raises(
        CheckpointError, match=rf"is a checkpoint, wanted the folder of a run; name {scaled}, or call load_"
    ):
        load(checkpoint)
    own = save(tmp_path / "own", 1, {"w": torch.ones(2)})
    with pytest.raises(CheckpointError, match=r"is a folder of checkpoints alone, .*; call load_checkpoint\("):
        load(tmp_path / "own")
    assert load_checkpoint(own, {"w": torch.zeros(2)}).tree["w"].tolist() == [1.0, 1.0]
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"is a sweep, which keeps no policies, .*purestep train RECIPE"):
        load(tmp_path / "sweep")
    with pytest.raises(CheckpointError, match="is no folder, wanted that of a run"):
        load(tmp_path / "nothing")


def test_the_checkpoint_of_a_run_names_load(scaled: Path) -> None:
    state = restore_run(scaled).state
    with pytest.raises(
        CheckpointError, match=rf"the state of a 'loop', .*; purestep\.load\('{scaled}'\) opens a run's policy"
    ):
        load_checkpoint(newest_checkpoint(scaled), state)
