"""A language model's run that ended before its first checkpoint is begun again by `resume`; what was saved is never lost."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from purestep.runtime.cli import main
from purestep.runtime.effects import folder
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import flag
from purestep.runtime.runs.logging import metrics_log
from purestep.runtime.runs.training_machine import Log, Loop, TrainChunk
from purestep.runtime.text.training_loop import TextTrainingLoop

from ...support.programs import until
from ...support.run_folders import begun
from ...support.stand_in_server import stood_in

Said = pytest.CaptureFixture[str]
SMALL: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warm_steps": 4,
    "demonstrations": 12,
    "warm_batch": 4,
    "steps": 2,
    "samples": 2,
    "minibatches": 1,
    "held_out": 2,
    "save_every": 9,
}
ZORPLEX = {**SMALL, "algorithm": "reinforce", "groups": 2, "max_turns": 3, "max_new_tokens": 4, "capacity": 64}
CACHE = {
    **SMALL,
    **{"problems": 2, "states": 2, "cycles": 2, "longest": 6, "test_longest": 6},
    **{"num_reasoning_steps": 2, "num_samples_per_problem": 2, "max_retries": 0},
}
ROOM = {name: ZORPLEX[name] for name in ("capacity", "max_new_tokens")}
RECIPES: dict[str, dict[str, Any]] = {"zorplex": ZORPLEX, "cache": CACHE}
NOWHERE, ELSEWHERE = "http://127.0.0.1:9/v1", "http://127.0.0.2:9/v1"


def train(recipe: str, run: Path, **changes: Any) -> list[str]:
    told = {**RECIPES[recipe], **changes}
    return ["train", recipe, "--run", str(run), *(word for name in told for word in (flag(name), str(told[name])))]


def resume(run: Path, *words: str) -> list[str]:
    return ["resume", str(run), *words]


def cut(recipe: str, run: Path, at: int) -> None:
    """Leaves what a run leaves that was killed after so many iterations, none of which was saved."""
    world = TextTrainingLoop
    made = world.train

    class Cut(BaseException):
        pass

    def stopped(self: Any, command: TrainChunk) -> Any:
        if self.iteration == at:
            raise Cut
        return made(self, command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "train", stopped)
        with pytest.raises(Cut):
            main.main(train(recipe, run))
    assert folder.unsaved(run)


def tensors(run: Path, recipe: str = "zorplex") -> dict[str, torch.Tensor]:
    """What the newest checkpoint holds."""
    import safetensors.torch

    return safetensors.torch.load_file(runs.newest_checkpoint(run) / "state.safetensors")


def contents(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module", params=RECIPES)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A recipe, and a run of it that never stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main.main(train(request.param, run)) == 0
    return request.param, run


@pytest.mark.slow
def test_it_ends_with_the_bits_of_one_that_never_stopped(whole: tuple[str, Path], tmp_path: Path, capsys: Said) -> None:
    recipe, wanted = whole
    run = tmp_path / "run"
    cut(recipe, run, 2)
    assert len(read_metrics(run / "metrics.jsonl")) == 2
    assert (run / "before.json").exists()
    half = run / "checkpoints" / ".partial-step_000003"
    half.mkdir(parents=True)
    (half / "state.safetensors").write_bytes(b"half of it")
    (run / "before.json").write_text("{}")
    if recipe == "cache":
        published = (run / "rollouts.jsonl").read_bytes()
        assert published
        (run / "rollouts.jsonl").write_bytes(published.replace(b'"', b"'", 1) + b"torn")
    capsys.readouterr()
    assert main.main(resume(run)) == 0
    assert f"no checkpoint yet: {run} begins again" in capsys.readouterr().err
    one, other = tensors(wanted, recipe), tensors(run, recipe)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert [row["iteration"] for row in read_metrics(run / "metrics.jsonl")] == [1.0, 2.0, 3.0]
    assert len(list((run / "tensorboard").iterdir())) == 1
    alike = ["arguments.json", "before.json", "evaluation.txt", "tokenizer/tokenizer.json"]
    for name in [*alike, *(["rollouts.jsonl"] if recipe == "cache" else [])]:
        assert (run / name).read_bytes() == (wanted / name).read_bytes(), name
    assert not half.exists()


@pytest.mark.slow
def test_it_may_have_ended_as_soon_as_its_arguments_were_there(whole: tuple[str, Path], tmp_path: Path) -> None:
    recipe, wanted = whole
    run = begun(tmp_path / "run", json.loads((wanted / "arguments.json").read_text()))
    assert main.main(resume(run)) == 0
    one, other = tensors(wanted, recipe), tensors(run, recipe)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_rows_that_will_come_again_are_there_once(tmp_path: Path) -> None:
    for done, told in ((0, (1.0, 2.0, 3.0)), (2, (3.0, 4.0)), (0, (1.0,))):
        with metrics_log(tmp_path, Loop(iterations=4, chunk=1, every=9, iteration=done), ()) as log:
            log(Log(tuple({"iteration": number, "warm_loss": 1.0} for number in told)))
        assert [row["iteration"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [
            *map(float, range(1, done + 1)),
            *told,
        ]


def test_what_needs_a_checkpoint_names_the_remedy(whole: tuple[str, Path], tmp_path: Path, capsys: Said) -> None:
    begun(tmp_path, json.loads((whole[1] / "arguments.json").read_text()))
    assert main.main(["evaluate", str(tmp_path)]) == 1
    wanted = f"{tmp_path} is without a checkpoint, wanted a run with one; train it: purestep resume {tmp_path}\n"
    assert capsys.readouterr().err.endswith(wanted)


# --- what is not begun again ---


def damaged(run: Path) -> str:
    for path in (run / "checkpoints").glob("step_*/state.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    return "1 checkpoints, all damaged, wanted a good one"


def without_manifests(run: Path) -> str:
    for path in (run / "checkpoints").glob("step_*/manifest.json"):
        path.unlink()
    return "1 checkpoints, all damaged, wanted a good one"


def taken_away(run: Path) -> str:
    for path in (run / "checkpoints").glob("step_*"):
        shutil.rmtree(path)
    (run / "evaluation.json").unlink()
    return f"without a checkpoint, wanted a run with one; train it: purestep train {{}} --run {run} --overwrite"


def ended(run: Path) -> str:
    shutil.rmtree(run / "checkpoints")
    return f"without a checkpoint, wanted a run with one; train it: purestep train {{}} --run {run} --overwrite"


def of_no_version(run: Path) -> str:
    given = json.loads((run / "arguments.json").read_text())
    shutil.rmtree(run / "checkpoints")
    (run / "evaluation.json").unlink()
    folder.write_json(run / "arguments.json", {**given, "sped": 1})
    return "arguments of {} is with other names: ['sped'], wanted its own"


def of_no_sense(run: Path) -> str:
    given = json.loads((run / "arguments.json").read_text())
    shutil.rmtree(run / "checkpoints")
    (run / "evaluation.json").unlink()
    folder.write_json(run / "arguments.json", {**given, "steps": 0})
    return "--steps is 0, wanted at least 1"


@pytest.mark.parametrize("spoil", [damaged, without_manifests, taken_away, ended, of_no_version, of_no_sense])
def test_what_was_saved_is_never_begun_again(whole: tuple[str, Path], tmp_path: Path, spoil: Any, capsys: Said) -> None:
    recipe, trained = whole
    run = shutil.copytree(trained, tmp_path / "run")
    said = spoil(run)
    left = contents(run)
    assert main.main(resume(run)) == 1
    assert said.format(recipe) in capsys.readouterr().err.splitlines()[-1]
    assert {**contents(run), ".lock": b""} == {**left, ".lock": b""}


# --- a server that was not there ---


@pytest.mark.slow
def test_a_server_that_was_not_there_may_be_somewhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    run = tmp_path / "run"
    assert main.main(train("zorplex", run, server=NOWHERE, server_seconds=0.01)) == 1
    assert NOWHERE in capsys.readouterr().err.splitlines()[-1]
    starting = (run / "served" / "served").resolve() / "mine"  # a server may be starting on what is there
    starting.touch()
    assert main.main(resume(run)) == 1
    assert NOWHERE in capsys.readouterr().err.splitlines()[-1]
    assert starting.exists()
    left = contents(run)
    assert main.main(resume(run, "--server", "nowhere")) == 1
    assert contents(run) == left
    with monkeypatch.context() as patch:
        published = stood_in(patch, run, **ROOM)
        assert main.main(resume(run, "--server", ELSEWHERE)) == 0
    assert published == [(ELSEWHERE, version) for version in range(3)]  # two are trained with, the last is evaluated
    assert [row["iteration"] for row in read_metrics(run / "metrics.jsonl")] == [1.0, 2.0, 3.0]
    assert json.loads((run / "arguments.json").read_text())["server"] == ELSEWHERE
    assert runs.arguments_in(run)[1].sampling.server == ELSEWHERE


@pytest.mark.slow
def test_a_run_that_was_killed_while_it_waited_for_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    words = [sys.executable, "-m", "purestep.runtime.cli.main", *train("zorplex", run, server=NOWHERE)]
    said = tmp_path / "said"
    with said.open("w") as errors:
        going = subprocess.Popen(words, stderr=errors)
    until(
        lambda: said.read_text().count(f"no server at {NOWHERE} yet") == 2,  # at the start, and where it has to sample
        "it waits for its server",
        alive=lambda: going.poll() is None,
        said=said.read_text,
    )
    going.send_signal(signal.SIGKILL)
    going.wait(timeout=60)
    assert folder.unsaved(run)
    published = stood_in(monkeypatch, run, **ROOM)
    assert main.main(resume(run)) == 0
    assert published == [(NOWHERE, version) for version in range(3)]
    assert [row["iteration"] for row in read_metrics(run / "metrics.jsonl")] == [1.0, 2.0, 3.0]
