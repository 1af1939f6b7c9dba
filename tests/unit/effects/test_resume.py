"""Driver, checkpoints and metrics together: a run cut anywhere and resumed ends with the bits of one never stopped."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from torch import Tensor

from purestep.core import keys
from purestep.core.machine import Interrupted, Machine, Started, Stop
from purestep.core.record import record, replace, tensor
from purestep.runtime.effects.checkpoint.atomic_files import lock
from purestep.runtime.effects.checkpoint.single import latest, read_checkpoint, save
from purestep.runtime.effects.reporting.metrics import jsonl, read_metrics, rewind
from purestep.runtime.machine.drive import drive, serial


@record
class Learner:
    weight: Tensor = tensor("*", "float")
    key: Tensor = tensor("2", "key")


@frozen
class Loop:
    """The machine's state: what has been done."""

    iteration: int = 0
    saved: int = 0


@frozen
class Train:
    iteration: int


@frozen
class Trained:
    loss: float


@frozen
class Save:
    loop: Loop


@frozen
class Saved:
    pass


@frozen
class Report:
    row: dict[str, float]


TOTAL, EVERY = 7, 2


def step(loop: Loop, event: Any) -> tuple[Loop, tuple[Any, ...]]:
    if isinstance(event, Trained):
        loop = evolve(loop, iteration=loop.iteration + 1)
        report = Report({"iteration": float(loop.iteration), "loss": event.loss})
        if loop.iteration % EVERY == 0 or loop.iteration == TOTAL:
            loop = evolve(loop, saved=loop.iteration)
            return loop, (report, Save(loop))
        return loop, (report, Train(loop.iteration))
    if event == Interrupted():
        return loop, (Stop("interrupted"),)
    return loop, (Stop("done"),) if loop.iteration == TOTAL else (Train(loop.iteration),)


@pytest.fixture(scope="module", autouse=True)
def quick_disk() -> Iterator[None]:
    """Hundreds of real syncs would wait for whatever else uses the disk; no test cuts the machine's power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def learn(learner: Learner) -> Learner:
    key, noise = keys.split(learner.key)
    return replace(learner, weight=learner.weight * 0.9 + keys.normal(noise, (3,)), key=key)


def run(folder: Path, events: int = 10**6) -> tuple[Loop, Learner]:
    """Runs from where the folder stands until the end, or until it is cut off after so many events."""
    world = {"learner": Learner(weight=torch.zeros(3), key=keys.key(5))}
    loop = Loop()

    def train(command: Train) -> Trained:
        world["learner"] = learn(world["learner"])
        return Trained(float(world["learner"].weight.sum()))

    def keep(command: Save) -> Saved:
        save(folder, command.loop.iteration, world["learner"], machine=command.loop, metadata={"total": TOTAL})
        return Saved()

    with lock(folder):
        path = latest(folder)
        if path is not None:
            checkpoint = read_checkpoint(path, world["learner"], classes=[Loop])
            world["learner"], loop = checkpoint.tree, checkpoint.machine
        rewind(folder / "metrics.jsonl", loop.iteration)
        with jsonl(folder / "metrics.jsonl") as sink:

            def show(report: Report) -> tuple[()]:
                sink(report.row)
                return ()

            handlers = serial({Train: train, Save: keep, Report: show})
            *_, last = islice(drive(Machine(step), loop, handlers), events)
    return last, world["learner"]


def test_a_run_cut_after_any_event_and_resumed_ends_with_the_same_bits(tmp_path: Path) -> None:
    loop, learner = run(tmp_path / "whole")
    assert loop == Loop(TOTAL, TOTAL)
    events = TOTAL + 4 + 1  # every training, every save, the start
    for cut in range(1, events + 1):
        folder = tmp_path / str(cut)
        run(folder, cut)
        again, resumed = run(folder)
        assert again == loop
        assert torch.equal(resumed.weight, learner.weight)
        assert torch.equal(resumed.key, learner.key)
        assert (folder / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    assert [row["iteration"] for row in read_metrics(tmp_path / "whole" / "metrics.jsonl")] == list(range(1, TOTAL + 1))


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    first = run(tmp_path)
    before = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    second = run(tmp_path)
    assert second[0] == first[0]
    assert torch.equal(second[1].weight, first[1].weight)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == before


@pytest.mark.parametrize("event", [Started(), Saved()])
def test_the_machine_goes_on_from_any_state(event: Any) -> None:
    assert step(Loop(3, 2), event)[1] == (Train(3),)
    assert step(Loop(TOTAL, TOTAL), event)[1] == (Stop("done"),)
