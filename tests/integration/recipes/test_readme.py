"""The README tells the truth: its code runs, its commands exist, and `import purestep` brings what it says and no more."""

import os
import pydoc
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import purestep
from purestep.runtime.cli import main
from purestep.runtime.recipes import evaluate_policy, explain_query, ranking, sweep_trials, text_run
from purestep.runtime.recipes.text import TextRecipe
from purestep.runtime.runs import curves
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.recipe import Recipe
from purestep.runtime.text.config import generator_count

from ...support.run_folders import begun

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[list[str]]:
    return [shlex.split(line, comments=True) for block in blocks("bash") for line in block.splitlines() if line]


def test_the_code_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    assert len(blocks("python")) == 3
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    returns = names["metrics"]["return_sum"] / names["metrics"]["episodes"]
    assert returns[-3:].mean() > returns[:3].mean() + 5
    assert "laws passed" in capsys.readouterr().out
    cases = names["test_line"].pytestmark[0].args[1]
    assert {"inputs_stay", "batch_is_singles"} <= {case.id for case in cases}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, Path]]:
    """Commands are parsed and checked as ever, but do no work: what they would do is noted."""
    noted: list[tuple[str, Path]] = []

    def note(name: str) -> Any:
        def work(run: Any, *given: Any, **named: Any) -> Any:
            noted.extend((name, path) for path in (run if isinstance(run, list) else [run]))
            raise KeyboardInterrupt

        return work

    monkeypatch.setattr(runs, "resume", note("resume"))
    monkeypatch.setattr(evaluate_policy, "evaluate_run", note("evaluate"))
    monkeypatch.setattr(ranking, "prover_of", note("evaluate"))
    monkeypatch.setattr(curves, "draw_metric", note("plot"))
    monkeypatch.setattr(explain_query, "explain_query", note("explain"))
    monkeypatch.setattr(sweep_trials, "trials", lambda given, axes, options, run, **named: note("sweep")(run))

    def start(run: Path, recipe: Recipe, settings: Any, **named: Any) -> None:
        text = isinstance(recipe, TextRecipe)
        note("train" if not text else "at once" if generator_count(settings) else "teach")(run)

    monkeypatch.setattr(runs, "start", start)
    monkeypatch.setattr(text_run, "sampler_of", note("chat"))
    monkeypatch.setattr("purestep.runtime.cli.run.loading", lambda run: None)
    monkeypatch.chdir(tmp_path)
    for name, recipe in (("one", "ppo"), ("cartpole-ppo-0", "ppo"), ("family", "prove"), ("zorplex", "zorplex")):
        begun(tmp_path / "runs" / name, {"recipe": recipe})
    return noted


def test_the_commands_are_ones_we_have(played: list[tuple[str, Path]]) -> None:
    codes = [main.main(words[1:]) for words in commands()]
    wanted = [*[130] * 5, 0, 0, *[130] * 3, 1, 1, *[130] * 4, 1, 130]  # help twice, and two that need a real run
    assert codes == wanted
    assert [name for name, _ in played] == [
        "train",
        "resume",
        "evaluate",
        "plot",
        "plot",
        "train",
        "sweep",
        "train",
        "evaluate",
        "train",
        "teach",
        "chat",
        "at once",
        "teach",
    ]
    runs = {"runs/one", "runs/cartpole-ppo-0", "runs/family", "runs/policy", "runs/zorplex", "runs/async", "runs/cache"}
    runs |= {"runs/cartpole-ppo-sweep", "runs/env-ppo-0"}
    assert {str(path) for _, path in played} == runs


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_knows_the_two_targets_and_runs_what_we_have(played: list[tuple[str, Path]]) -> None:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # this may run in make
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        run = subprocess.run(["make", "-n", target], cwd=ROOT, env=outside, capture_output=True, text=True, check=True)
        *_, last = run.stdout.splitlines()
        program, *words = shlex.split(last)
        assert program == {"train": ".venv/bin/purestep", "test": ".venv/bin/pytest"}[target]
        assert target == "test" or main.main(words) == 130
    assert played == [("train", Path("runs/cartpole-ppo-0"))]


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


# In place of commands that take minutes at full length, which is evidence; compiled runs of prove are tested with it.
SHORTER = {
    "sweep ppo": "sweep ppo --steps 40000",
    "train prove --imitated-facts 1000 --steps 200_000": "train prove --imitated-facts 20 --imitation-steps 5 "
    "--steps 20000 --data family:50 --warm-up 200 --backend none",
    "train zorplex --mode async": "train zorplex --mode async --steps 2 --groups 4 --warm-steps 20 --held-out 16",
    "train zorplex": "train zorplex --steps 3 --warm-steps 40 --held-out 32",
    "train cache": "train cache --steps 1 --problems 4 --cycles 4 --warm-steps 20 --demonstrations 80 --held-out 8",
}
MADE = {  # by the commands on each run
    "one": ["runs/cartpole-ppo-0", "both.png", "runs/env-ppo-0", "runs/cartpole-ppo-sweep"],
    "family": ["runs/family/proof.png"],
    "policy": ["runs/policy/learning_curve.png", "runs/policy/proof.png"],
    "zorplex": ["runs/zorplex/model/model.safetensors"],
    "async": ["runs/async/timeline.png"],
    "cache": ["runs/cache/evaluation.json"],
}


def commands_on(run: str) -> list[list[str]]:
    """Those that name a run; those that name none are with the first."""
    named = [(words, [name for name in MADE if f"runs/{name}" in words]) for words in commands()]
    return [words for words, names in named if names == [run] or (not names and run == "one")]


@pytest.mark.slow
@pytest.mark.parametrize("run", MADE)
def test_the_commands_do_what_they_say(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "line.py").write_text(blocks("python")[0].partition("model =")[0])
    first = [["purestep", "train", "ppo", "--run", "runs/cartpole-ppo-0"]] if run == "one" else []
    for words in [*first, *commands_on(run)]:
        asked = " ".join(words[1:])
        start = next((start for start in SHORTER if asked.startswith(start)), "")
        assert main.main([*SHORTER[start].split(), *words[1 + len(start.split()) :]] if start else words[1:]) == 0
    assert [path for path in MADE[run] if not (tmp_path / path).exists()] == []


def test_each_command_is_run_once() -> None:
    assert sorted(words for run in MADE for words in commands_on(run)) == sorted(commands())


# --- public names ---

LISTED: list[str] = vars(purestep)["__all__"]
NAMES = set(LISTED)


def test_public_names_are_listed_by_hand() -> None:
    """Type checkers read one list, the interpreter another: the same names of the same modules, each of which is there."""
    listed = re.findall(r"^    from \.(\S+) import (\w+) as (\w+)$", (ROOT / "__init__.py").read_text(), re.MULTILINE)
    assert [(module, name) for module, name, _ in listed] == [(module, name) for module, _, name in listed]
    assert [(module, name) for module, name, _ in listed] == [
        (module, name) for module, names in vars(purestep)["_MODULES"].items() for name in names
    ]
    assert len(listed) == len(NAMES) == len(LISTED)
    assert set(dir(purestep)) >= NAMES
    for name in NAMES:
        assert getattr(purestep, name) is vars(purestep)[name]
    absent = "nonsense"
    with pytest.raises(AttributeError, match="module 'purestep' has no attribute 'nonsense'"):
        getattr(purestep, absent)


def test_what_users_need_has_a_public_name() -> None:
    assert {"ppo", "gae", "ppo_clip", "Env", "record", "trainer", "train", "program", "keys", "validate"} <= NAMES
    text = {"TextTask", "TextEnv", "Outcome", "Parsed", "Call", "Answer", "answer", "tool_call", "tagged", "parsers"}
    sampled = {"Request", "requests", "expand", "task_keys", "protocol", "rollouts", "transcripts", "byte_codec"}
    assert text | sampled | {"learner", "grpo", "dapo", "objectives", "language_trainer", "tiny_llama"} <= NAMES


def test_names_are_those_of_their_modules() -> None:
    """Two functions are called `ppo`, `chain` or `reinforce`: the short name is that of tensors, a module holds the other."""
    assert purestep.ppo.__module__ == "purestep.algorithms.ppo"
    assert purestep.chain.__module__ == "purestep.core.optim.optimizers"
    assert purestep.reinforce.__module__ == "purestep.algorithms.reinforce"
    assert purestep.objectives.ppo.__module__ == "purestep.algorithms.language.objectives"
    assert purestep.parsers.chain.__module__ == "purestep.core.language.parsers"


def test_help_lists_each_public_name_once_in_a_group() -> None:
    said = purestep.__doc__ or ""
    assert (ROOT / "docs" / "compose.md").exists()
    assert "docs/compose.md" in said
    groups = dict(re.findall(r"^(\w[\w ,]*):\n((?:    .*\n)+)", said, re.MULTILINE))
    assert len(groups) >= 8
    listed = [name for names in groups.values() for name in re.split(r",\s+", names.strip())]
    assert sorted(listed) == sorted(NAMES)
    shown = pydoc.plain(pydoc.render_doc(purestep))
    assert all(f"    {heading}:\n" in shown for heading in groups)


def test_importing_purestep_brings_no_more_than_it_needs() -> None:
    heavy = ["gymnasium", "hypothesis", "matplotlib", "pytest", "rich", "safetensors", "tensorboard", "torch", "tyro"]
    program = f"import sys, purestep; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
