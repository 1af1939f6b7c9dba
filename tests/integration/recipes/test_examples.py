"""The examples are true: each runs, learns what it says it learns, and uses no more of us than it says."""

import ast
import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import purestep as ps
from purestep.core import keys

FOLDER = Path(__file__).parents[3] / "examples"
CARTPOLE_IS_SOLVED = 475.0  # Gymnasium's own mark for CartPole-v1


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"examples_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


stranger_env = load("stranger_env")
embed = load("embed")
gymnasium_ppo = load("gymnasium_ppo")
self_play = load("self_play")
two_agents = load("two_agents")
text_world = load("text_world")
test_the_strangers_world_keeps_the_laws = stranger_env.test_lander
test_the_world_of_text_keeps_the_laws = text_world.test_safe


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def taken_from_purestep(name: str) -> set[str]:
    nodes = ast.walk(ast.parse((FOLDER / f"{name}.py").read_text()))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and str(node.module).startswith("purestep")]
    return {alias.name for node in imports for alias in node.names}


@pytest.mark.parametrize("name", ["stranger_env", "embed", "gymnasium_ppo", "self_play", "text_world", "two_agents"])
def test_an_example_says_how_to_run_it_and_runs_only_then(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    assert f"python examples/{name}.py" in str(ast.get_docstring(ast.parse(text)))
    assert text.endswith('if __name__ == "__main__":\n    main()\n')


# --- a world of one's own ---


def test_the_strangers_world_was_not_one_of_ours() -> None:
    assert not {name for name in taken_from_purestep("stranger_env") if name in {"make", "cartpole", "deterministic"}}
    source = (FOLDER / "stranger_env.py").read_text()
    world = source[source.index("@record") : source.index("test_lander")]
    assert len([line for line in world.splitlines() if line.strip()]) <= 45


def test_a_lander_that_never_burns_falls_as_gravity_says() -> None:
    """It hits the ground with v^2 = v0^2 + 2 g h, up to a step of a tenth of a second."""
    env = stranger_env.lander()
    first, _ = env.reset(env.params, keys.key(3))
    states, rewards = [first], list[float]()
    while states[-1].height > 0.0:
        state, timestep = env.step(env.params, states[-1], torch.tensor(0), keys.key(0))
        states, rewards = [*states, state], [*rewards, float(timestep.reward)]
        assert bool(timestep.terminated) == bool(state.height == 0.0)
    speed = float(states[-1].speed)
    assert speed == pytest.approx(-math.sqrt(float(first.speed) ** 2 + 2.0 * 1.6 * float(first.height)), abs=0.2)
    assert rewards[:-1] == [0.0] * (len(rewards) - 1)
    assert rewards[-1] == pytest.approx(10.0 / (1.0 - speed))
    assert float(states[-1].fuel) == 8.0


def test_the_strangers_world_trains() -> None:
    rows = stranger_env.learn(8)
    assert [row["steps"] for row in rows] == [8192.0, 16384.0]
    assert all(1.0 < row["episode_return"] < 4.0 for row in rows)


def test_the_strangers_run_is_told_and_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"steps": 100.0 * i, "episode_return": float(i)} for i in range(1, 9)]
    monkeypatch.setattr(stranger_env, "learn", lambda: rows)
    figures = stranger_env.main(tmp_path / "picture.png")
    assert figures == {"steps": 800.0, "return_before": 1.0, "return_after": 8.0}
    assert "mean return 1.0 at first, 8.0 after 800 steps" in capsys.readouterr().out
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_strangers_world_is_solved() -> None:
    rows = stranger_env.learn()
    assert rows[0]["episode_return"] < 3.0
    assert rows[-1]["episode_return"] > 7.0


# --- two functions in a loop of one's own ---


def test_the_plain_loop_uses_two_functions_of_ours() -> None:
    assert taken_from_purestep("embed") == {"gae", "ppo_clip"}


def test_the_plain_loop_hands_over_final_observations_and_counts_episodes() -> None:
    torch.manual_seed(0)
    loop = embed.Loop(0)
    batch = loop.collect(embed.Agent())
    loop.envs.close()
    out = (batch["next_observation"][..., 0].abs() > 2.4) | (batch["next_observation"][..., 2].abs() > 0.2094)
    assert torch.equal(out, batch["terminated"])
    inside = ~batch["terminated"][:-1]
    assert torch.equal(batch["observation"][1:][inside], batch["next_observation"][:-1][inside])
    assert int(batch["terminated"].sum()) == len(loop.returns) > 8
    assert sum(loop.returns) + loop.running.sum() == embed.HORIZON * embed.ENVS


def test_the_plain_loop_runs() -> None:
    agent, returns = embed.learn(4)
    assert len(returns) > 20
    assert all(value >= 8.0 for value in returns)
    assert 8.0 < embed.evaluate(agent, episodes=5) <= 500.0


def test_an_evaluation_counts_the_first_episode_of_each_world() -> None:
    """Who always pushes to one side falls within eleven steps."""

    class Stubborn(embed.Agent):  # type: ignore[misc, name-defined]
        def forward(self, observation: torch.Tensor) -> Any:
            return torch.distributions.Categorical(logits=torch.tensor([0.0, 9.0]).expand(len(observation), 2)), None

    assert 8.0 <= embed.evaluate(Stubborn(), episodes=20) <= 11.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_plain_loop_learns(seed: int) -> None:
    agent, returns = embed.learn(seed=seed)
    assert np.mean(returns[:100]) < 100.0
    assert embed.evaluate(agent) > CARTPOLE_IS_SOLVED


# --- Gymnasium's world, our learner ---


def test_a_gymnasium_world_trains() -> None:
    rows = gymnasium_ppo.learn(3, lower=as_it_is)
    assert [row["steps"] for row in rows] == [512.0, 1024.0, 1536.0]
    assert all(8.0 <= row["episode_return"] < 100.0 for row in rows)


@pytest.mark.slow
def test_a_gymnasium_world_is_solved() -> None:
    last = [row["episode_return"] for row in gymnasium_ppo.learn()[-10:]]
    assert np.mean(last) > CARTPOLE_IS_SOLVED


# --- a world of text ---


def test_a_world_of_text_takes_less_than_sixty_lines() -> None:
    tree = ast.parse((FOLDER / "text_world.py").read_text())
    code = ast.unparse(ast.Module([node for node in tree.body if not isinstance(node, ast.Expr)], []))
    assert len([line for line in code.splitlines() if line]) < 60


@pytest.mark.slow
def test_a_small_model_learns_to_use_the_tool_of_a_world_of_text() -> None:
    before, after = text_world.main()
    assert after > before + 0.3


# --- in turns and at once, a notebook ---


@pytest.mark.slow
def test_the_notebook_is_one_and_says_how_to_run_it() -> None:
    pytest.importorskip("marimo", reason="the extra notebook is not installed")
    path = FOLDER / "async_zorplex.py"
    said = subprocess.run(
        [sys.executable, "-m", "marimo", "check", "--strict", str(path)], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
    text = path.read_text()
    assert "python examples/async_zorplex.py" in str(ast.get_docstring(ast.parse(text)))
    assert text.count("mo.ui.slider(") == 2
    assert text.endswith('if __name__ == "__main__":\n    app.run()\n')


@pytest.mark.slow
def test_the_notebook_runs_as_a_script(tmp_path: Path) -> None:
    """Two steps in turns and two at once, each from 16 attempts; in turns no sample is older than the weights."""
    pytest.importorskip("marimo", reason="the extra notebook is not installed")
    words = "--steps 2 --generators 1 --groups 4 --samples 4 --warm-steps 20 --demonstrations 64 --held-out 16"
    command = [sys.executable, str(FOLDER / "async_zorplex.py"), *words.split()]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert said.returncode == 0, said.stderr[-2000:]
    lines = said.stdout.splitlines()
    assert [
        sum(line.startswith(f"weights {name}, accuracy ") for line in lines) for name in ("before", "after async")
    ] == [1, 1]
    assert "sync: 32 of age 0" in lines
    (at_once,) = (line for line in lines if line.startswith("async: "))
    assert sum(int(part.split()[0]) for part in at_once.removeprefix("async: ").split(", ")) == 32
    pictures = [tmp_path / line for line in lines if line.startswith("runs/") and line.endswith(".png")]
    assert [path.name for path in pictures] == ["timeline.png", "staleness.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


# --- our losses in somebody else's trainer ---


@pytest.mark.slow
def test_trls_trainer_learns_with_our_loss_what_it_learns_with_its_own() -> None:
    python = FOLDER.parent / ".peers" / "trl" / "bin" / "python"
    if not python.exists():
        pytest.skip("TRL's environment is not here; make it with python -m benchmarks.environments trl")
    told = subprocess.run(
        [str(python), str(FOLDER / "trl_grpo.py")],
        env={**os.environ, "PYTHONPATH": str(FOLDER.parent / ".links")},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    figures = dict(part.rsplit(" ", 1) for part in told.stdout.splitlines()[-1].split(", "))
    assert float(figures["reward after"]) > float(figures["reward before"]) + 0.5
    assert float(figures["weights apart"]) < 1e-5


@pytest.mark.slow
def test_two_agents_learn_their_parts() -> None:
    assert two_agents.main() == [8.0, 8.0]


@pytest.mark.slow
def test_self_play_beats_its_first_version() -> None:
    won, drawn, lost = self_play.main(versions=4)["the first version"]
    assert won > 0.8
    assert won + drawn + lost == pytest.approx(1.0)


def test_a_game_is_won_lost_and_drawn_by_its_rules() -> None:
    board = torch.tensor([1.0, 1.0, 0.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0])
    model = self_play.by_chance(ps.actor_critic_mlp(self_play.SEEN, ps.Discrete(9), (4,)))
    game = self_play.tic_tac_toe(model, torch.zeros(1))
    _, won = game.step(game.params, board, torch.tensor(2), ps.keys.key(0))
    assert float(won.reward) == 1.0
    assert bool(won.terminated)
    lost = [game.step(game.params, board, torch.tensor(8), ps.keys.key(seed))[1] for seed in range(20)]
    assert {float(step.reward) for step in lost} == {0.0, -1.0}  # chance finds the fifth square in one of four games
    full = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1.0, 0.0])
    _, drawn = game.step(game.params, full, torch.tensor(8), ps.keys.key(0))
    assert float(drawn.reward) == 0.0
    assert bool(drawn.terminated)
