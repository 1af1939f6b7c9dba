"""Training with generators beside the trainer: phases, what each learns from, resuming, replaying, faults."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from purestep.algorithms.language.batch import Reading
from purestep.core import keys
from purestep.core.errors import CheckpointError, ChoiceError, StructureError
from purestep.core.language.types import Sample, stacked
from purestep.core.record import replace
from purestep.core.tree import leaves
from purestep.runtime.async_rl import checkpoint, run_phase, training_phase
from purestep.runtime.async_rl import run as phases
from purestep.runtime.async_rl.rollout_worker import samples_of
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.machine import begin_schedule
from purestep.runtime.async_rl.training_phase import learning_of
from purestep.runtime.effects.hugging_face.tokenizer import tokenizer_files
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.effects.workers.pool import WorkersError
from purestep.runtime.recipes.zorplex import Zorplex, zorplex_defaults
from purestep.runtime.runs.arguments import changed, to_record
from purestep.runtime.runs.kinds import with_generators
from purestep.runtime.runs.recipe import SessionResult
from purestep.runtime.text import run as session
from purestep.runtime.text.components import sampler, text_components
from purestep.runtime.text.training_loop import learning_components, prompt_requests, training_requests

TINY: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warm_steps": 20,
    "demonstrations": 12,
    "warm_batch": 4,
    "steps": 4,
    "minibatches": 1,
    "groups": 2,
    "samples": 2,
    "held_out": 4,
    "max_turns": 3,
    "max_new_tokens": 8,
    "capacity": 64,
    "generator_engine": "thread",
    "generator_slots": 3,
    "mode": "async",
}


def tiny(**changes: Any) -> Zorplex:
    return changed(zorplex_defaults(), {**TINY, **changes})


def silent(text: str) -> None:
    """Nobody listens."""


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def learned_from(run: Path, name: str) -> list[tuple[int, ...]]:
    """What the updates of a phase learned from, in order: (version, group, seat, attempt, request, head, tail, tokens)."""
    return [(row["version"], *one) for row in rows(run / name / "ledger.jsonl") for one in row["samples"]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of both phases."""
    run = tmp_path_factory.mktemp("runs") / "both"
    outcome = session.start(run, tiny(), overwrite=False, notice=silent)
    assert outcome.session == ("sync", "async")
    assert not outcome.interrupted
    return run


@pytest.mark.parametrize("name", ["sync", "async"])
def test_a_phase_learns_from_each_sample_once_and_from_none_that_is_too_old(both: Path, name: str) -> None:
    taken = learned_from(both, name)
    assert len({one[1:4] for one in taken}) == len(taken) == 16
    assert [one[0] for one in taken] == sorted(one[0] for one in taken)
    bound = {"sync": 0, "async": 1}[name]
    assert all(0 <= version - head <= bound and head <= tail for version, _, _, _, _, head, tail, _ in taken)
    totals = json.loads((both / name / "totals.json").read_text())
    assert totals["consumed"] == 16
    assert totals["version"] == 4
    assert totals["submitted"] == sum(totals[each] for each in ("waiting", "running", "accepted", "rejected"))
    assert totals["accepted"] == sum(totals[each] for each in ("consumed", "filtered", "queued", "cached"))
    assert totals["lost_generators"] == 0


def test_what_is_asked_in_turns_is_what_a_run_without_generators_asks(both: Path) -> None:
    arguments = tiny()
    taken = learned_from(both, "sync")
    for step in range(4):
        wanted = {one.id for one in training_requests(arguments, keys.key(0), step)}
        assert {one[4] for one in taken if one[0] == step} == wanted
    assert prompt_requests(arguments, keys.key(0), 5) == training_requests(arguments, keys.key(0), 2)[2:4]


def test_each_update_has_a_row_and_everybody_a_place_in_the_timeline(both: Path) -> None:
    for name in ("sync", "async"):
        metrics = read_metrics(both / name / "metrics.jsonl")
        assert [row["iteration"] for row in metrics] == [1, 2, 3, 4]
        assert all(row["tokens"] > 0 and row["update_seconds"] > 0 for row in metrics)
        spans = rows(both / name / "timeline.jsonl")
        assert {"trainer", "generator 0", "generator 1"} <= {one["actor"] for one in spans}
        assert {"generate", "train", "publish", "save"} <= {one["kind"] for one in spans}
        assert all(0 <= one["begin"] <= one["end"] for one in spans)
        assert json.loads((both / name / "evaluation.json").read_text())["after"]["sampled"]["attempts"] == 4


def test_a_run_that_is_over_has_nothing_left_and_is_not_begun_anew(both: Path) -> None:
    before = (both / "async" / "ledger.jsonl").read_bytes()
    assert session.resume(both, notice=silent).session == ("sync", "async")
    assert (both / "async" / "ledger.jsonl").read_bytes() == before
    with pytest.raises(
        CheckpointError, match=r"a run with checkpoints, wanted a new folder; go on with it: purestep resume"
    ):
        session.start(both, tiny(), overwrite=False, notice=silent)
    parts, policy = phases.phase_policy(both, "async")
    assert all(bool(leaf.isfinite().all()) for leaf in leaves(parts.whole(policy)))
    assert with_generators(both)


def test_a_run_whose_checkpoints_were_taken_away_is_neither_removed_nor_begun_again(both: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(both, run)
    for name in ("warm", "sync", "async"):
        shutil.rmtree(run / name / "checkpoints", ignore_errors=True)
    left = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(CheckpointError, match="what is left of a run, wanted a new folder; pass --overwrite"):
        session.start(run, tiny(), overwrite=False, notice=silent)
    with pytest.raises(CheckpointError, match="train it: purestep train zorplex"):
        session.resume(run, notice=silent)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"} == left


class Cut(BaseException):
    """A crash."""


@pytest.mark.slow
def test_a_phase_that_was_cut_off_goes_on_and_neither_loses_nor_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, arguments = tmp_path / "run", tiny(compare=False, steps=6)
    save, saved = training_phase.Phase.save, []

    def once(self: training_phase.Phase, schedule: Any, events: int) -> None:
        save(self, schedule, events)
        saved.append(schedule.version)
        if saved == [0, 1, 2]:
            raise Cut

    monkeypatch.setattr(training_phase.Phase, "save", once)
    with pytest.raises(Cut):
        session.start(run, arguments, overwrite=False, notice=silent)
    monkeypatch.setattr(training_phase.Phase, "save", save)
    with (run / "async" / "events.jsonl").open("a") as log:
        log.write('{"torn')
    assert session.resume(run, notice=silent).session == ("async",)
    taken = learned_from(run, "async")
    assert len({one[1:4] for one in taken}) == len(taken) == 24
    assert [row["version"] for row in rows(run / "async" / "ledger.jsonl")] == [0, 1, 2, 3, 4, 5]
    assert json.loads((run / "async" / "totals.json").read_text())["sessions"] == 2
    assert [row["iteration"] for row in read_metrics(run / "async" / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_ended_in_its_beginning_has_its_tokenizer_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: Any) -> SessionResult:
        return phases.outcome_of((), True, {})

    monkeypatch.setattr(phases, "_go_on", stop)
    session.start(tmp_path, tiny(), overwrite=False, notice=silent)
    whole = tokenizer_files(tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{")
    (tmp_path / "tokenizer" / "tokenizer_config.json").unlink()
    session.resume(tmp_path, notice=silent)
    assert tokenizer_files(tmp_path / "tokenizer") == whole


def test_ctrl_c_ends_a_phase_at_a_checkpoint_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, arguments = tmp_path / "run", tiny(compare=False, steps=5)
    save = training_phase.Phase.save

    def stop(self: training_phase.Phase, schedule: Any, events: int) -> None:
        save(self, schedule, events)
        if schedule.version == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(training_phase.Phase, "save", stop)
    outcome = session.start(run, arguments, overwrite=False, notice=silent)
    assert outcome.interrupted
    assert not (run / "async" / "totals.json").exists()
    monkeypatch.setattr(training_phase.Phase, "save", save)
    assert not session.resume(run, notice=silent).interrupted
    taken = learned_from(run, "async")
    assert len({one[1:4] for one in taken}) == len(taken) == 20


@pytest.mark.slow
def test_fewer_checkpoints_and_one_more_at_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, train = tmp_path / "run", training_phase.Phase.train

    def stop(self: training_phase.Phase, command: say.Train) -> Any:
        if command.version == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.0)  # until the driver has heard of it
        return train(self, command)

    def versions() -> list[int]:
        return sorted(int(path.name[-6:]) for path in (run / "async" / "checkpoints").glob("step_*"))

    monkeypatch.setattr(training_phase.Phase, "train", stop)
    assert session.start(run, tiny(compare=False, steps=5, save_every=4), overwrite=False, notice=silent).interrupted
    assert versions() == [0, 2]
    monkeypatch.setattr(training_phase.Phase, "train", train)
    assert not session.resume(run, notice=silent).interrupted
    assert versions() == [2, 4, 5]
    taken = learned_from(run, "async")
    assert len({one[1:4] for one in taken}) == len(taken) == 20


# --- what the trainer does ---


def a_batch(arguments: Zorplex, version: int, policy: Any) -> list[Sample]:
    parts = text_components(arguments)
    ask = sampler(parts, temperature=1.0)
    attempts = ask(parts.whole(policy), version, training_requests(arguments, keys.key(0), version))
    room = {"capacity": arguments.sampling.capacity, "calls": arguments.episodes.max_turns}
    return [paid(one, float(number % 2)) for number, one in enumerate(samples_of(parts.task, attempts, **room))]


def paid(sample: Sample, reward: float) -> Sample:
    """The sample with another reward: a model that knows nothing earns the same with all, which teaches nothing."""
    first = torch.arange(sample.row.reward.shape[-1]) == 0
    return evolve(sample, row=replace(sample.row, reward=torch.where(first, reward, 0.0)[None]))


def begun(arguments: Zorplex) -> training_phase.VersionedLearner:
    parts = text_components(arguments)
    algorithm, _ = learning_components(arguments, parts)
    return learning_of(arguments, parts, 0, algorithm.init(parts.begin()), {})


def test_each_segment_is_anchored_one_version_after_its_own() -> None:
    arguments = tiny(loss="decoupled", proximal="segment_wise", staleness=2, learning_rate=0.05, anneal=False)
    trainer = begun(arguments)
    policies, batches = [trainer.state.params.policy], [a_batch(arguments, 0, trainer.state.params.policy)]
    for version in (0, 1):
        trainer.update(version, batches[version])
        policies.append(trainer.state.params.policy)
        batches.append(a_batch(arguments, version + 1, trainer.state.params.policy))
    mixed = {number: batch[0] for number, batch in enumerate(batches)}
    after = trainer.with_proximal(mixed)
    reader = learning_of(arguments, trainer.parts, 2, trainer.state, {})
    for number, policy in ((0, policies[1]), (1, policies[2])):
        row = mixed[number].row
        state = evolve_policy(reader.state, policy)
        wanted: Reading = reader.read(state, row)
        now = after[number].row
        spoken = row.is_action
        assert torch.allclose(now.proximal_log_prob[spoken], wanted.log_prob[spoken], atol=1e-5)
        assert not torch.allclose(now.proximal_log_prob[spoken], row.behaviour_log_prob[spoken], atol=1e-4)
        assert after[number].final == {number}
    assert after[2] == mixed[2], "the newest have no later weights"
    assert trainer.with_proximal(after) == after, "what is set stays"


def evolve_policy(state: Any, policy: Any) -> Any:
    return replace(state, params=replace(state.params, policy=policy))


def test_versions_are_trained_once_each_and_in_order() -> None:
    arguments = tiny(epochs=2, minibatches=2)
    trainer = begun(arguments)
    batch = a_batch(arguments, 0, trainer.state.params.policy)
    with pytest.raises(StructureError, match="update: version is 1, wanted 0"):
        trainer.update(1, batch)
    trainer.update(0, batch)
    assert trainer.version == int(trainer.state.step) == 1, "a version is a version, whatever its updates"
    with pytest.raises(StructureError, match="update: version is 0, wanted 1"):
        trainer.update(0, batch)


def test_weights_that_are_not_kept_are_named() -> None:
    arguments = tiny(loss="decoupled", proximal="segment_wise", staleness=0)
    trainer = begun(arguments)
    first = a_batch(arguments, 0, trainer.state.params.policy)
    for version in range(3):
        trainer.update(version, first)
    with pytest.raises(StructureError, match="with_proximal: weights of version is 1, wanted one of"):
        trainer.with_proximal({0: first[0]})


def test_a_checkpoint_gives_back_samples_that_wait(tmp_path: Path) -> None:
    arguments = tiny()
    trainer = begun(arguments)
    first, second, *_ = a_batch(arguments, 0, trainer.state.params.policy)
    schedule = begin_schedule(run_phase.rules_of(arguments), prompts=2, workers=2, slots=3)
    kept = checkpoint.PhaseCheckpoint(schedule=schedule, events=3, seconds=1.5)
    samples = {(1, 0, 0): first, (0, 1, 2): evolve(second, final=frozenset({0}))}
    policy = trainer.state.params.policy
    standing = checkpoint.PhaseState(kept=kept, learner=trainer.state, past={7: policy}, samples=samples)
    checkpoint.save(tmp_path, standing, facts={}, metadata=to_record("zorplex", arguments))
    where = checkpoint.newest_of_phase(tmp_path)
    assert isinstance(where, Path)
    back = checkpoint.load_state(where, arguments, trainer.state)
    assert (back.kept.schedule, back.kept.events, back.kept.seconds) == (schedule, 3, 1.5)
    assert set(back.past) == {7}
    assert set(back.samples) == set(samples)
    for name, one in samples.items():
        assert back.samples[name].final == one.final
        assert evolve(back.samples[name], row=()) == evolve(one, row=())  # type: ignore[arg-type]
        pairs = zip(leaves(back.samples[name].row), leaves(one.row), strict=True)
        assert all(torch.equal(mine, its) for mine, its in pairs)
    assert torch.equal(stacked([first, second]).token[1], second.row.token[0])


# --- faults ---


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"staleness": -1}, "--staleness is -1, wanted at least 0"),
        ({"generators": -2}, "--generators is -2"),
        ({"generators": 0}, "--generators is 0, wanted at least 1 with --mode async"),
        ({"generator_slots": 0}, "--generator-slots is 0"),
        ({"patience": 0.0}, "--patience is 0.0"),
        ({"server": "http://127.0.0.1:8000/v1"}, "--server is given with generators"),
    ],
)
def test_what_could_never_work_is_refused_by_its_flag(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ChoiceError, match=said):
        tiny(**changes).check()


@pytest.mark.slow
def test_generators_that_die_again_and_again_are_given_up_and_the_run_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, arguments = tmp_path / "run", tiny(compare=False, steps=3)
    said: list[str] = []

    def dies(mailbox: Any, *arguments: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(run_phase, "generate", dies)
    with pytest.raises(WorkersError, match="no room"):
        session.start(run, arguments, overwrite=False, notice=said.append)
    assert any("is lost" in one for one in said)
    monkeypatch.undo()
    assert session.resume(run, notice=silent).session == ("async",)
