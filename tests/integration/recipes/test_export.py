"""`purestep export`: a run's policy as a file, with one line on how it was checked, and a line on what has none."""

from pathlib import Path
from typing import Any

import pytest
import torch

from purestep.core import keys
from purestep.runtime.cli import main
from purestep.runtime.recipes.load_policy import TrainedLanguageModel, load
from purestep.runtime.runs.run import silent, train
from purestep.runtime.trained_policy import TrainedPolicy

from ...support.run_folders import begun

WORLD = """
import torch
import purestep as ps

def reset(params, key):
    place = 50 * ps.keys.uniform(key, (2,))
    return place, ps.first(place)

def step(params, place, action, key):
    place = place + action
    return place, ps.following(place, -place.abs().sum(), place.abs().sum() > 150)

SLOPE = ps.time_limit(ps.Env((), reset, step, ps.Box(0.0, 100.0, (2,)), ps.Box(-0.5, 0.5, (2,))), 20)
"""
SMALL: dict[str, Any] = {"steps": 64, "envs": 2, "horizon": 8, "hidden": (4,), "backend": "none", "notice": silent}
Said = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def slope(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on an environment of the user's, whose observations are scaled."""
    where = tmp_path_factory.mktemp("slope")
    (where / "slope.py").write_text(WORLD)
    train("a2c", where / "run", env=f"{where / 'slope.py'}:SLOPE", normalize="observations", **SMALL)
    return where / "run"


def test_a_run_is_written_and_the_check_is_said(slope: Path, tmp_path: Path, capsys: Said) -> None:
    out = tmp_path / "policy.pt2"
    assert main.main(["export", str(slope), "--to", "torch", str(out), "--trust"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}: torch, actions on 256 recorded observations: the same bits\n"
    assert said.err.splitlines()[0] == f"loading {slope}"
    policy = load(slope, trust=True)
    assert isinstance(policy, TrainedPolicy)
    act, far = torch.export.load(str(out)).module(), torch.tensor([60.0, 2.0])
    assert torch.equal(act(far), policy.action(far))
    assert not torch.equal(act(far), policy.action(torch.tensor([2.0, 60.0])))
    assert float(act(far).abs().max()) <= 0.5


def test_an_environment_of_the_users_needs_trust(slope: Path, tmp_path: Path, capsys: Said) -> None:
    out = tmp_path / "policy"
    assert main.main(["export", str(slope), "--to", "torch", str(out)]) == 1
    said = capsys.readouterr().err
    assert "slope.py:SLOPE" in said
    assert said.rstrip().endswith(f"if you trust it: purestep export {slope} --to torch {out} --trust")
    assert list(tmp_path.iterdir()) == []


def test_a_language_models_run_names_its_folder(tmp_path: Path, capsys: Said) -> None:
    run = begun(tmp_path / "run", {"recipe": "zorplex"})
    assert main.main(["export", str(run), "--to", "onnx", str(tmp_path / "policy")]) == 1
    assert f"its model is a Hugging Face folder already: {run / 'model'}" in capsys.readouterr().err


def test_what_cannot_be_written_is_refused_first(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "taken").write_text("mine")
    for out, said in (("taken", "is a file already"), ("no/where", "is in no folder"), (".", "is a folder")):
        assert main.main(["export", str(tmp_path / "run"), "--to", "torch", str(tmp_path / out)]) == 1
        assert said in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"
    assert main.main(["export", str(tmp_path / "run"), "--to", "torch", str(tmp_path / "new")]) == 1
    assert "run is no folder, wanted that of a run" in capsys.readouterr().err


def test_a_policy_of_gymnasiums_acts_there() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from purestep.algorithms.a2c import a2c
    from purestep.core.optim.optimizers import sgd
    from purestep.core.policy import actor_critic_mlp
    from purestep.runtime.effects.gymnasium.env import gymnasium_trainer, gymnasium_world
    from purestep.runtime.normalizer import running
    from purestep.runtime.trained_policy import policy

    with gymnasium_world(lambda: gymnasium.make("CartPole-v1"), 2) as world:
        model = actor_critic_mlp(world.env.observation_space, world.env.action_space, (4,))
        run = gymnasium_trainer(
            world, model, a2c(model, sgd(0.1)), horizon=16, normalizer=running(), lower=lambda function: function
        )
        state, _ = run.iterate(run.init(keys.key(0)))
        found = policy(world.env, model, state)
    env = gymnasium.make("CartPole-v1")
    seen, _ = env.reset(seed=0)
    scaled = running().observe(state.normalizer, torch.as_tensor(seen))
    wanted = model.apply(state.learner.params, scaled[None], ())[0].mode()[0]
    assert int(found.action(torch.as_tensor(seen))) == int(wanted)
    env.step(int(found.action(torch.as_tensor(seen))))


@pytest.mark.slow
def test_a_language_model_opens_with_its_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from ..recipes.test_zorplex_recipe import WORDS

    assert main.main(["train", "zorplex", "--run", str(tmp_path / "run"), *WORDS]) == 0
    found = load(tmp_path / "run")
    assert isinstance(found, TrainedLanguageModel)
    assert (found.recipe, found.version, found.normalizer) == ("zorplex", "iteration 5", ())  # imitated and reinforced
    assert found.tokenizer.decode(found.tokenizer.encode("What is")) == "What is"
    import safetensors.torch

    saved = safetensors.torch.load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert sum(leaf.numel() for leaf in found.params.values()) >= sum(leaf.numel() for leaf in saved.values())
