"""Settings that change when a run is resumed: the bits of a run that had them, the rows in its record, and refusals."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from purestep.core.errors import ChoiceError
from purestep.core.tree import leaves
from purestep.runtime.cli import main
from purestep.runtime.population import with_hyperparameters
from purestep.runtime.recipes.pipeline import actor_critic_pipeline
from purestep.runtime.runs import changing
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.changing import rows_in
from purestep.runtime.runs.kinds import record_of
from purestep.runtime.train import folded

from ...recorded_runs.record import copied

SMALL: Mapping[str, Any] = {"steps": 64, "envs": 2, "horizon": 8, "hidden": (4,), "minibatches": 2, "epochs": 1}
SMALL = {**SMALL, "backend": "none", "anneal": False, "checkpoints": 2}
Said = pytest.CaptureFixture[str]


def begun(run: Path, **settings: Any) -> Path:
    runs.train("ppo", run, **{**SMALL, **settings}, notice=runs.silent)
    return run


def same(one: Path, other: Path) -> bool:
    states = [runs.restore_run(run).state for run in (one, other)]
    return all(map(torch.equal, *map(leaves, states)))


def test_a_run_that_is_made_longer_has_the_bits_of_one_that_was_as_long_from_the_beginning(tmp_path: Path) -> None:
    run, said = begun(tmp_path / "run"), list[str]()
    done = runs.resume(run, changes={"steps": 128}, notice=said.append)
    assert (done.loop.iteration, done.loop.iterations, done.loop.chunk) == (8, 8, 1)
    assert said == ["--steps 128 from iteration 5 on, 64 before"]
    assert same(run, begun(tmp_path / "long", steps=128))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5, 6, 7, 8]
    again = runs.resume(run, notice=said.append)
    assert (again.loop.iteration, len(said)) == (8, 1)
    (row,) = rows_in(runs.restore_run(run).manifest.metadata)
    assert row == {"setting": "steps", "before": 64, "now": 128, "iteration": 5}
    assert rows_in(record_of(run)) == (row,)


def test_a_changed_number_goes_on_as_in_a_state_that_was_given_it(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    before = runs.restore_run(run).state
    changes = {"learning_rate": 0.03125, "gamma": 0.75, "clip": 0.5, "entropy_coefficient": 0.25, "steps": 96}
    runs.resume(run, changes=changes, notice=runs.silent)
    numbers = {name: changes[name] for name in changes if name != "steps"}
    state = with_hyperparameters(before, {name: torch.tensor(value).double() for name, value in numbers.items()})
    chunk = folded(actor_critic_pipeline(runs.restore_run(run).arguments).trainer, 1)
    for _ in range(2):
        state, _ = chunk(state)
    assert all(map(torch.equal, leaves(state), leaves(runs.restore_run(run).state)))
    assert {row["setting"]: row["now"] for row in rows_in(record_of(run))} == changes
    assert not same(run, begun(tmp_path / "as ever", steps=96))


def test_changes_of_a_run_that_was_killed_before_its_next_checkpoint_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, said = begun(tmp_path / "run"), list[str]()
    changes = {"steps": 128, "learning_rate": 0.03125}
    with monkeypatch.context() as patch:
        patch.setattr(runs, "perform", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            runs.resume(run, changes=changes, notice=runs.silent)
    done = runs.resume(run, notice=said.append)
    assert (done.loop.iteration, said) == (8, [changing.line_of(row) for row in rows_in(record_of(run))])
    other = begun(tmp_path / "other")
    runs.resume(other, changes=changes, notice=runs.silent)
    assert same(run, other)
    assert runs.restore_run(run).arguments == runs.restore_run(other).arguments


def test_settings_that_are_given_as_they_are_change_nothing(tmp_path: Path) -> None:
    run, said = begun(tmp_path / "run"), list[str]()
    kept = (run / "arguments.json").read_bytes()
    runs.resume(run, changes={"steps": 64, "gamma": 0.98}, notice=said.append)
    assert (said, (run / "arguments.json").read_bytes()) == ([], kept)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--envs", "4"], "--envs is 4, wanted as the run began; train anew with it; these may change: --steps, "),
        (["--envs=4"], "--envs is 4, wanted as the run began"),
        (["--hidden", "8"], "--hidden is 8, wanted as the run began"),
        (["--no-anneal"], "--anneal is given, wanted as the run began"),
        (["--steps", "32"], "--steps is 32, wanted at least 64, its own; leave it out, or train anew"),
        (["--gamma", "2"], "--gamma is 2.0, wanted a number from 0.0 to 1.0"),
    ],
)
def test_what_may_not_change_is_refused_in_a_line(words: list[str], said: str, tmp_path: Path, capsys: Said) -> None:
    run = begun(tmp_path / "run")
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main.main(["resume", str(run), *words]) == 1
    (line,) = [text for text in capsys.readouterr().err.splitlines() if text.startswith("purestep: ")]
    assert said in line
    assert {path: path.read_bytes() for path in kept} == kept


def test_python_refuses_them_too(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    for name, value in (("envs", 4), ("stepz", 100)):
        with pytest.raises(ChoiceError, match=f"--{name} is {value}, wanted .*these may change: --device, --steps"):
            runs.resume(run, changes={name: value}, notice=runs.silent)


# --- language models, from recorded runs ---


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("zorplex", "--generators 2", "--generators is 2, wanted none, in a run that has no generators"),
        ("zorplex", "--kl 0", "--kl is 0.0, wanted more than 0; train anew with it"),
        ("task", "--kl 0.1", "--kl is 0.1, wanted 0: it has no reference policy"),
        ("zorplex_async", "--generators 0", "--generators is 0, wanted at least 1"),
        ("zorplex_async", "--held-out 8", "--held-out is 8, wanted 4: phases are compared on the same tasks"),
        ("zorplex_async", "--steps 2", "--steps is 2, wanted at least 3, its own"),
        ("zorplex_async", "--groups 4", "--groups is 4, wanted as the run began"),
    ],
)
def test_numbers_that_a_run_of_a_language_model_cannot_take(
    name: str, words: str, said: str, tmp_path: Path, capsys: Said
) -> None:
    run = copied(f"schema_1/{name}", tmp_path / "run")
    assert main.main(["resume", str(run), *words.split()]) == 1
    (line,) = [text for text in capsys.readouterr().err.splitlines() if text.startswith("purestep: ")]
    assert said in line


def test_the_steps_of_a_phase_that_has_ended_stay(tmp_path: Path, capsys: Said) -> None:
    run = copied("schema_1/zorplex_async", tmp_path / "run")
    (run / "async" / "totals.json").write_text("{}")
    assert main.main(["resume", str(run), "--steps", "4"]) == 1
    (line,) = [text for text in capsys.readouterr().err.splitlines() if text.startswith("purestep: ")]
    assert "--steps is 4, wanted 3, with which the phase async has ended; train anew with more steps" in line


@pytest.mark.slow
def test_a_run_of_a_language_model_goes_on_longer_with_other_numbers(tmp_path: Path, capsys: Said) -> None:
    run = copied("schema_1/zorplex", tmp_path / "run")
    words = "--steps 4 --learning-rate 0.25 --budget 128 --eval-every-n-versions 1 --held-out 3"
    assert main.main(["resume", str(run), *words.split()]) == 0
    found = runs.restore_run(run)
    assert found.loop.iteration == found.loop.iterations == 2 + 4
    assert float(found.state.learner.optimizer[1].hyperparameters["learning_rate"]) == 0.25
    assert {row["setting"] for row in rows_in(found.manifest.metadata)} == {
        *("steps", "learning_rate", "budget", "eval_every_n_versions", "held_out")
    }
    assert "before" not in json.loads((run / "evaluation.json").read_text())


@pytest.mark.slow
def test_a_run_with_generators_goes_on_longer_with_more_of_them(tmp_path: Path, capsys: Said) -> None:
    run = copied("schema_1/zorplex_async", tmp_path / "run")
    assert main.main(["resume", str(run), *["--steps", "4", "--generators", "2", "--learning-rate", "0.25"]]) == 0
    assert "--generators 2 from iteration 2 of async on, 1 before" in capsys.readouterr().err
    totals = json.loads((run / "async" / "totals.json").read_text())
    assert (totals["version"], totals["generators"]) == (4, 2)
    assert {row["setting"]: row["iteration"] for row in rows_in(record_of(run))} == {
        "steps": 2,
        "generators": 2,
        "learning_rate": 2,
    }
