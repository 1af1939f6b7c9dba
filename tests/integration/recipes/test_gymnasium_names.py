"""`--env gym:ID`: Gymnasium's environments in the recipes, trained, resumed and evaluated; what is refused, before torch."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from purestep.runtime.cli.main import main

PAGE = (Path(__file__).parents[3] / "docs" / "gymnasium.md").read_text()
SMALL = ["--envs=2", "--horizon=16", "--hidden", "8", "--backend", "none", "--episodes", "2"]
CASES = [("ppo", "gym:CartPole-v1"), ("dqn", "gym:CartPole-v1"), ("sac", "gym:Pendulum-v1")]
ROBOT = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Robot(gymnasium.Env):
    observation_space = spaces.Dict(near=spaces.Box(-1.0, 1.0, (2,)), gear=spaces.Discrete(3, start=1))
    action_space = spaces.MultiDiscrete([3, 2])

    def _seen(self):
        near = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return {"near": near, "gear": np.int64(self.np_random.integers(1, 4))}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self._seen(), float(action[0] == 2) + float(action[1]), False, False, {}


gymnasium.register("Robot-v0", Robot, max_episode_steps=8)
"""


def rows(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("recipe", "env"), CASES)
def test_a_run_is_trained_resumed_evaluated_and_drawn(
    recipe: str, env: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["train", recipe, "--env", env, "--steps=128", "--run", str(run), *SMALL]) == 0
    assert "evaluation: 2 episodes" in capsys.readouterr().out
    assert main(["resume", str(run), "--steps=640", "--episodes", "2"]) == 0
    assert "not: Gymnasium's environments, which begin new episodes" in "".join(capsys.readouterr())
    assert [row["iteration"] for row in rows(run)] == list(range(1, 21))
    assert main(["evaluate", str(run), "--episodes", "3"]) == 0
    assert "evaluation: 3 episodes" in capsys.readouterr().out
    assert main(["plot", str(run)]) == 0
    assert main(["export", str(run), str(tmp_path / "policy.pt2"), "--to", "torch"]) == 0


def test_the_same_seed_is_the_same_run(tmp_path: Path) -> None:
    for name in ("one", "other"):
        words = ["--env", "gym:CartPole-v1", "--steps=128", "--run", str(tmp_path / name), *SMALL]
        assert main(["train", "a2c", *words]) == 0
    assert rows(tmp_path / "one") == rows(tmp_path / "other") != []


def test_one_of_a_file_has_dicts_and_several_actions_and_needs_trust(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = tmp_path / "robot.py", tmp_path / "run"
    file.write_text(ROBOT)
    assert main(["train", "ppo", "--env", f"gym:{file}:Robot-v0", "--steps=128", "--run", str(run), *SMALL]) == 0
    assert "length 8.0, 100% ended" in capsys.readouterr().out
    assert main(["evaluate", str(run), "--episodes", "2"]) == 1
    assert "--trust" in "".join(capsys.readouterr())
    assert main(["evaluate", str(run), "--episodes", "2", "--trust"]) == 0


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("train ppo --env gym:CartPole-v9", "a name that Gymnasium knows; did you mean gym:CartPole-v1"),
        ("train ppo --env gym:CartPole-v1 --probes drift", "an environment of Gymnasium's has no probes"),
        ("sweep ppo --env gym:CartPole-v1 --learning-rate log:1e-4:1e-2", "a sweep's runs are one program"),
    ],
)
def test_a_refusal_is_one_line_and_imports_no_torch(words: str, wanted: str, tmp_path: Path) -> None:
    code = f"""if True:
        import sys
        from purestep.runtime.cli.main import main
        code = main({words.split()!r})
        assert "torch" not in sys.modules
        sys.exit(code)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert wanted in done.stderr
    assert done.stderr.count("\n") == 1


def test_gymnasium_absent_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert main(["train", "ppo", "--env", "gym:CartPole-v1"]) == 1
    assert "wanted gymnasium installed; pip install 'purestep[gym]'" in capsys.readouterr().err


def test_actions_that_an_algorithm_cannot_take_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "dqn", "--env", "gym:Pendulum-v1", "--run", str(tmp_path / "run"), *SMALL]) == 1
    assert "use an algorithm for such actions: sac" in capsys.readouterr().err


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines():
        assert main(shlex.split(line)[1:]) == 0
