"""An experiment configuration in YAML as flags of `purestep train zorplex`."""

import json
from pathlib import Path

import pytest

from purestep.core.errors import ChoiceError, StructureError
from purestep.runtime.cli.main import main
from purestep.runtime.effects.experiment_flags import with_config

PUBLISHED = """
experiment_name: my_experiment
trial_name: my_trial
enable_segment_wise_ppo: true  # Single switch

rollout:
  # enable_segment_wise_ppo will be auto-propagated
  experiment_name: my_experiment
  trial_name: my_trial

actor:
  # enable_segment_wise_ppo will be auto-propagated
  experiment_name: my_experiment
  trial_name: my_trial
"""
ON = ["--mode", "async", "--loss", "decoupled", "--proximal", "segment_wise"]
OFF = ["--mode", "async", "--loss", "plain"]
RUN = ["--run", "runs/my_experiment/my_trial"]


def written(folder: Path, text: str) -> str:
    path = folder / "config.yaml"
    path.write_text(text)
    return str(path)


def test_the_published_file_and_its_switch(tmp_path: Path) -> None:
    path = written(tmp_path, PUBLISHED)
    assert with_config(["--config", path]) == [*ON, *RUN]
    assert with_config(["--seed", "1", f"--config={path}", "--run", "a=b"]) == [
        *ON,
        *RUN,
        "--seed",
        "1",
        "--run",
        "a=b",
    ]
    off = ["--config", path, "enable_segment_wise_ppo=false", "rollout.max_head_offpolicyness=0", "--seed", "1"]
    assert with_config(off) == [*OFF, *RUN, "--staleness", "0", "--seed", "1"]


def test_keys_are_flags(tmp_path: Path) -> None:
    text = "rollout: {consumer_batch_size: 4, max_head_offpolicyness: 2}\nactor: {eps_clip: 0.1}\n"
    wanted = [*ON, "--groups", "4", "--staleness", "2", "--clip", "0.1", "--clip-high"]
    assert with_config(["--config", written(tmp_path, text)]) == [*wanted, "0.1"]
    assert with_config(["--config", written(tmp_path, text), "actor.eps_clip_higher=0.3"]) == [*wanted, "0.3"]
    assert with_config(["--config", written(tmp_path, "actor:\n  eps_clip_higher: null\n")]) == ON


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("enable_segmentwise_ppo: true", "did you mean 'enable_segment_wise_ppo'"),
        ("rollout: {queue_size: 3}", "key rollout.queue_size for purestep train is 'queue_size', wanted one of"),
        ("actor: {c_clip: 3.0}", "key actor.c_clip for purestep train is 'c_clip', wanted one of"),
        ("rollout: {max_head_offpolicyness: -1}", "max_head_offpolicyness is -1, wanted 0 or more"),
        ("rollout: {max_head_offpolicyness: two}", "rollout.max_head_offpolicyness is 'two', wanted int"),
        ("experiment_name: ../a\ntrial_name: b", "key experiment_name is '../a', wanted the name of a folder"),
        ("experiment_name: a\ntrial_name: ..", r"key trial_name is '\.\.', wanted the name of a folder"),
        ("- a", "wanted a mapping"),
    ],
)
def test_what_is_no_flag_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises((ChoiceError, StructureError), match=says) as error:
        with_config(["--config", written(tmp_path, text)])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("words", [["--config"], ["--config", "nowhere.yaml"], ["--config", "a", "--config=b"]])
def test_a_configuration_that_is_not_there_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "zorplex", *words]) == 1
    line = capsys.readouterr().err
    assert line.startswith("purestep: ")
    assert line.count("\n") == 1


@pytest.mark.slow
def test_the_switch_reaches_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = [
        "--mode",
        "sync",
        "--steps",
        "1",
        "--groups",
        "2",
        "--samples",
        "2",
        "--warm-steps",
        "1",
        "--held-out",
        "2",
    ]
    small += ["--width", "16", "--layers", "1", "--heads", "2", "--demonstrations", "32"]
    assert main(["train", "zorplex", "--config", written(tmp_path, PUBLISHED), *small]) == 0
    held = json.loads((tmp_path / "runs" / "my_experiment" / "my_trial" / "arguments.json").read_text())
    assert {"decoupled", "segment_wise"} <= set(map(str, held.values()))
