"""Conversations of training in a run's folder: what was trained on, once, through stops and full disks, at no cost in bits."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from purestep.core.language.types import Transcript
from purestep.core.transcript.record import SAMPLED
from purestep.runtime.async_rl.scheduler.state import Schedule
from purestep.runtime.async_rl.training_phase import Phase, VersionedLearner
from purestep.runtime.cli import main
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.training_machine import TrainChunk
from purestep.runtime.text.trainer import TrainStepResult
from purestep.runtime.text.training_loop import TextTrainingLoop

SMALL = [
    *("--width", "16", "--layers", "1", "--heads", "2", "--warm-steps", "0", "--steps", "3", "--minibatches", "1"),
    *("--groups", "2", "--samples", "3", "--held-out", "2", "--max-turns", "3", "--max-new-tokens", "8"),
    *("--capacity", "64", "--threads", "1"),
]
ASYNC = [
    *("--max-turns", "1", "--mode", "async", "--generators", "1", "--no-compare", "--generator-engine", "thread"),
    *("--generator-slots", "4"),
]
Trained = list[tuple[Transcript, Any]]  # each update's transcripts and advantages
TASK = """
from purestep.core.language.episode import Grade
from purestep.core.language.prompts import PromptRow, prompt_task

ROWS = [PromptRow(f"{number} + 1?") for number in range(4)]


def rewards(replies):
    return [Grade(len(one.text) / 8, {"long": len(one.text) / 8, "odd": float("nan")}) for one in replies]


SUMS = prompt_task("sums", ROWS, ROWS, rewards=rewards, parts=("long",))
"""


def zorplex(run: Path, *words: str) -> None:
    assert main.main(["train", "zorplex", "--run", str(run), *SMALL, *words]) == 0


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (home / "conversations.jsonl").read_text().splitlines()]


def watched(train: Callable[[], None]) -> Trained:
    """The batches that a run learns from, whatever it keeps of them."""
    found: Trained = []
    step, update = TextTrainingLoop._step, VersionedLearner.update

    def note(rows: Transcript, learned: TrainStepResult) -> TrainStepResult:
        found.append((rows, learned.advantage))
        return learned

    def stepped(self: TextTrainingLoop, number: int) -> dict[str, float]:
        inner = self.trainer
        self.trainer = lambda state, rows, key: note(rows, inner(state, rows, key))
        row = step(self, number)
        self.trainer = inner
        return row

    def updated(self: VersionedLearner, version: int, samples: Any) -> TrainStepResult:
        inner = self.trainer
        self.trainer = lambda state, rows, key: note(rows, inner(state, rows, key))
        learned = update(self, version, samples)
        self.trainer = inner
        return learned

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTrainingLoop, "_step", stepped)
        patch.setattr(VersionedLearner, "update", updated)
        train()
    return found


def column(row: dict[str, Any], name: str) -> list[Any]:
    return [value for message in row["messages"] for value in message.get(name, [])]


def check(kept: list[dict[str, Any]], trained: Trained) -> None:
    """Each line has the ids and numbers of the transcript that was trained on."""
    for step, (rows, advantage) in enumerate(trained, 1):
        here = [row for row in kept if row["step"] == step]
        assert [row["id"] for row in here] == rows.id.tolist()
        assert [row["group"] for row in here] == rows.group.tolist()
        for place, row in enumerate(here):
            length = int(rows.length[place])
            said = rows.source[place, :length] == SAMPLED
            assert column(row, "ids") == rows.token[place, :length].tolist()
            for name, values in (
                ("log_probs", rows.behaviour_log_prob[place, :length]),
                ("versions", rows.version[place, :length]),
                ("advantages", advantage[place, :length]),
            ):
                assert torch.equal(torch.tensor(column(row, name), dtype=values.dtype), values[said])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trained]:
    home = tmp_path_factory.mktemp("runs") / "one"
    return home, watched(lambda: zorplex(home))


def state(run: Path) -> dict[str, torch.Tensor]:
    import safetensors.torch

    return safetensors.torch.load_file(runs.newest_checkpoint(run) / "state.safetensors")


def test_what_is_kept_is_what_was_trained_on(run: tuple[Path, Trained]) -> None:
    home, trained = run
    kept = lines(home)
    assert len(trained) == 3
    assert len(kept) == 18
    check(kept, trained)
    assert {row["label"] for row in kept} <= {"success", "wrong_format", "tool_spam", "wrong_answer"}
    returns = [row["episode_return"] for row in read_metrics(home / "metrics.jsonl")]
    for step, mean in enumerate(returns, 1):
        rewards = [row["reward"] for row in kept if row["step"] == step]
        assert sum(rewards) / len(rewards) == pytest.approx(mean, abs=1e-6)


@pytest.mark.slow
def test_no_bit_of_training_depends_on_it(run: tuple[Path, Trained], tmp_path: Path) -> None:
    home, _ = run
    zorplex(tmp_path / "none", "--keep-conversations", "0")
    zorplex(tmp_path / "one", "--keep-conversations", "1")
    assert not (tmp_path / "none" / "conversations.jsonl").exists()
    every = [row for row in lines(home) if row["group"] % 2 == 0]
    assert lines(tmp_path / "one") == every
    assert len(every) == 9
    wanted = state(home)
    for name in ("none", "one"):
        found = state(tmp_path / name)
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[leaf], wanted[leaf]) for leaf in wanted)
        for one, other in zip(
            read_metrics(home / "metrics.jsonl"), read_metrics(tmp_path / name / "metrics.jsonl"), strict=True
        ):
            timed = {column for column in one if "second" in column}
            assert [(key, repr(one[key])) for key in one if key not in timed] == [
                (key, repr(other[key])) for key in other if key not in timed
            ]


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.slow
def test_a_run_that_was_killed_has_each_conversation_once(run: tuple[Path, Trained], tmp_path: Path, at: int) -> None:
    """Killed when a step's conversations are written, and its checkpoint is not."""
    home, _ = run
    made = TextTrainingLoop.train

    class Cut(BaseException):
        pass

    def stopped(self: TextTrainingLoop, command: TrainChunk) -> Any:
        done = made(self, command)
        if self.iteration == at + 1:
            raise Cut
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTrainingLoop, "train", stopped)
        with pytest.raises(Cut):
            zorplex(tmp_path / "run")
    assert {row["step"] for row in lines(tmp_path / "run")} == set(range(1, at + 2))
    assert main.main(["resume", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "conversations.jsonl").read_bytes() == (home / "conversations.jsonl").read_bytes()


LIMIT = 320_000  # bytes of any file of the process


@pytest.mark.slow
def test_a_disk_without_room_for_conversations_stops_no_training(tmp_path: Path) -> None:
    """The operating system refuses to let the file grow, as a full disk does; other files stay below the limit."""
    words = [sys.executable, "-m", "purestep", "train", "zorplex", "--run", str(tmp_path / "run"), *SMALL]
    words += ["--groups", "64", "--steps", "6"]
    done = subprocess.run(
        [*words, "--keep-conversations", "64"],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("conversations.jsonl") == 1
    assert "no more steps are written (OSError: [Errno 27] File too large" in done.stderr
    kept = lines(tmp_path / "run")
    there = [row["step"] for row in kept]
    assert there == [step for step in range(1, there[-1] + 1) for _ in range(192)]
    assert there[-1] < 6
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 6
    assert runs.newest_checkpoint(tmp_path / "run").name == "step_000006"


def as_in_the_ledger(phase: Path) -> int:
    """The number of conversations of a phase, which are those of the samples in its ledger, in order."""
    ledger = [json.loads(text) for text in (phase / "ledger.jsonl").read_text().splitlines()]
    asked = [(row["version"] + 1, sample[3]) for row in ledger for sample in row["samples"]]
    assert [(row["step"], row["id"]) for row in lines(phase)] == asked
    return len(asked)


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trained]:
    """A run with generators, of a task whose rewards have parts."""
    home = tmp_path_factory.mktemp("phases")
    (home / "sums.py").write_text(TASK)
    words = ["train", f"{home / 'sums.py'}:SUMS", "--run", str(home / "run"), *SMALL, *ASYNC]

    def train() -> None:
        assert main.main(words) == 0

    return home / "run", watched(train)


@pytest.mark.slow
def test_samples_of_generators_are_kept_as_they_were_trained_on(phases: tuple[Path, Trained]) -> None:
    home, trained = phases
    kept = lines(home / "async")
    assert len(trained) == 3
    check(kept, trained)
    assert as_in_the_ledger(home / "async") == 18


@pytest.mark.slow
def test_a_phase_that_was_killed_has_each_conversation_once(phases: tuple[Path, Trained], tmp_path: Path) -> None:
    save = Phase.save

    class Cut(BaseException):
        pass

    def once(self: Phase, schedule: Schedule, events: int) -> None:
        if schedule.version == 2:
            raise Cut
        save(self, schedule, events)

    task = phases[0].parent / "sums.py"
    words = ["train", f"{task}:SUMS", "--run", str(tmp_path / "run"), *SMALL, *ASYNC]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Phase, "save", once)
        with pytest.raises(Cut):
            main.main(words)
    assert {row["step"] for row in lines(tmp_path / "run" / "async")} >= {1, 2}
    assert main.main(["resume", str(tmp_path / "run"), "--trust"]) == 0
    assert as_in_the_ledger(tmp_path / "run" / "async") == 18


@pytest.mark.slow
def test_parts_of_rewards_come_with_samples(phases: tuple[Path, Trained]) -> None:
    for row in lines(phases[0] / "async"):
        assert row["parts"] == {"long": pytest.approx(row["reward"], abs=1e-6), "odd": "nan"}


@pytest.mark.slow
def test_the_page_of_such_a_run_has_its_conversations(phases: tuple[Path, Trained]) -> None:
    home, _ = phases
    assert main.main(["view", str(home)]) == 0
    text = (home / "view.html").read_text()
    assert "<h1>SUMS by grpo, 3 steps</h1>" in text
    assert text.count('"phase":"async"') == 18
