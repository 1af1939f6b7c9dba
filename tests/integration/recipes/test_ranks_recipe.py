"""The recipe on several ranks: what they learn from and keep, that it goes on in worlds of other sizes, and what is refused."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore
from torch.distributed.run import get_args_parser

pytest.importorskip("transformers")

from purestep.core.errors import ChoiceError
from purestep.core.tree import leaves
from purestep.runtime.async_rl import run as phases
from purestep.runtime.cli import main
from purestep.runtime.cli import run as commands
from purestep.runtime.effects import folder
from purestep.runtime.effects.checkpoint.description import read_description
from purestep.runtime.effects.distributed.driver import Driver
from purestep.runtime.effects.distributed.heartbeat import Channel
from purestep.runtime.effects.distributed.process_group import ProcessGroup
from purestep.runtime.effects.hugging_face.folder import open_model
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.recipes.zorplex import Zorplex, zorplex_defaults
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import changed, flag
from purestep.runtime.runs.training_machine import Saved, TrainChunk
from purestep.runtime.text import run as session
from purestep.runtime.text.build_learner import SINGLE_PROCESS, LearnerBackend, of_ranks
from purestep.runtime.text.components import text_components
from purestep.runtime.text.distributed_learner import check_ranks, distributed_backend, in_process_group
from purestep.runtime.text.training_loop import TextTrainingLoop, policy_of

from ...support import recipe_program
from ...support.programs import END, LONG, World, free_port, killed_after, purestep, until, well
from ...support.run_folders import begun, restored
from ...support.stand_in_server import stood_in

PAGE = (Path(__file__).parents[3] / "docs" / "ranks.md").read_text()
AGAIN = 1e-6  # relative differences of losses
SET = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TINY: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warm_steps": 4,
    "demonstrations": 12,
    "warm_batch": 4,
    "steps": 3,
    "minibatches": 1,
    "groups": 2,
    "samples": 3,
    "held_out": 2,
    "max_turns": 3,
    "max_new_tokens": 4,
    "capacity": 64,
}
THREADS = {"mode": "async", "generator_engine": "thread", "generator_slots": 3}
DECOUPLED = {"loss": "decoupled", "proximal": "segment_wise", "staleness": 2, "compare": False}


def tiny(**changes: Any) -> Zorplex:
    """One that earns something to learn from at every step: its baseline is 0.5 at first."""
    return changed(zorplex_defaults("reinforce"), {**TINY, **changes})


def silent(text: str) -> None:
    """Nobody listens."""


@pytest.fixture(autouse=True)
def nobody_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SET:
        monkeypatch.delenv(name, raising=False)


def within(work: Callable[[LearnerBackend], Any]) -> Any:
    """What work gives of the backend of a world of one rank."""
    found: list[Any] = []

    def program(backend: LearnerBackend) -> int:
        found.append(work(backend))
        return 0

    assert in_process_group(program) == 0
    return found[0]


def forms(run: Path) -> list[str]:
    return [read_description(path).form for path in sorted((run / "checkpoints").glob("step_*"))]


def policy(run: Path) -> list[torch.Tensor]:
    parts, held, _ = restored(run)
    return leaves(parts.whole(policy_of(held)))


def apart(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    run = tmp_path_factory.mktemp("plain") / "run"
    session.start(run, tiny(), overwrite=False, notice=silent)
    return run


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run of a world of one rank."""
    run = tmp_path_factory.mktemp("ranked") / "run"
    patch = pytest.MonkeyPatch()
    for name in SET:
        patch.delenv(name, raising=False)
    within(lambda backend: session.start(run, tiny(), overwrite=False, notice=silent, backend=backend))
    patch.undo()
    return run


# --- a world of one rank ---


@pytest.mark.slow
def test_ranks_learn_what_one_process_learns_and_keep_shards(plain: Path, ranked: Path) -> None:
    assert (of_ranks(plain), of_ranks(ranked)) == (False, True)
    assert (forms(plain), forms(ranked)) == (["full"] * 3, ["sharded"] * 3)
    rows, others = read_metrics(plain / "metrics.jsonl"), read_metrics(ranked / "metrics.jsonl")
    assert [row["iteration"] for row in others] == [1.0, 2.0, 3.0, 4.0]
    assert [row["updates"] for row in others[1:]] == [1.0, 1.0, 1.0]
    for name in ("loss", "gradient_norm", "episode_return"):
        for row, other in zip(rows[1:], others[1:], strict=True):
            assert abs(row[name] - other[name]) <= 1e-4 * abs(row[name])
    assert apart(policy(plain), policy(ranked)) < 1e-4
    assert runs.arguments_in(ranked)[1] == tiny()


@pytest.mark.slow
def test_a_run_of_ranks_is_asked_and_resumed_as_any(ranked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["evaluate", str(ranked)]) == 0
    assert main.main(["resume", str(ranked)]) == 0
    told = capsys.readouterr()
    assert "evaluation: accuracy" in told.out
    assert "nothing was left to train" in told.out
    assert "not necessarily" not in told.err
    assert apart(leaves(open_model(ranked / "model").params), policy(ranked)) == 0.0


@pytest.mark.slow
def test_what_was_asked_to_be_saved_is_the_newest(tmp_path: Path) -> None:
    def work(backend: LearnerBackend) -> list[Path | None]:
        algorithm, _ = backend.learner(tiny(), backend.parts(text_components(tiny())))
        state, found = algorithm.init(text_components(tiny()).begin()), []
        for step in range(3):
            backend.save(tmp_path, step, state, machine=(), facts={}, metadata={})
            found.append(backend.newest(tmp_path))
        return found

    assert within(work) == [tmp_path / "checkpoints" / f"step_{step:06}" for step in range(3)]


class Cut(BaseException):
    """A crash."""


def cut_short(run: Path, arguments: Zorplex, at: int, backend: LearnerBackend) -> None:
    """A run that ends like a crash when it says that it has done so many iterations."""
    patch = pytest.MonkeyPatch()

    def saved(iteration: int) -> Saved:
        if iteration == at:
            raise Cut
        return Saved(iteration)

    patch.setattr(runs, "Saved", saved)
    try:
        session.start(run, arguments, overwrite=False, notice=silent, backend=backend)
    except Cut:
        backend.settle()
    finally:
        patch.undo()


@pytest.mark.slow
@pytest.mark.parametrize("first", [pytest.param("plain", marks=pytest.mark.slow), "ranked"])
def test_a_run_goes_on_with_others(first: str, plain: Path, tmp_path: Path) -> None:
    """Begun by one process and gone on with by ranks, and the other way round: one that ranks have begun stays theirs."""
    run = tmp_path / "run"
    if first == "plain":
        cut_short(run, tiny(), 2, SINGLE_PROCESS)
        assert forms(run) == ["full", "full"]
        within(lambda backend: session.resume(run, notice=silent, backend=backend))
    else:
        within(lambda backend: cut_short(run, tiny(), 2, backend))
        assert forms(run) == ["full", "sharded"]
        assert commands.resume_command([str(run)]) == 0
    assert forms(run)[1:] == ["sharded", "sharded"]
    assert apart(policy(run), policy(plain)) < 1e-4
    assert [row["iteration"] for row in read_metrics(run / "metrics.jsonl")] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.slow
def test_a_warm_start_of_ranks_stays_theirs(tmp_path: Path) -> None:
    """Though the first makes it alone: what one process goes on with is added up as ranks do."""
    run = tmp_path / "run"
    within(lambda backend: cut_short(run, tiny(), 1, backend))
    assert (forms(run), of_ranks(run)) == (["full"], True)
    assert commands.resume_command([str(run)]) == 0
    assert forms(run) == ["sharded"] * 3


def test_a_warm_start_says_how_many_ranks_there_were(tmp_path: Path) -> None:
    nowhere: Any = ()
    ranks = ProcessGroup(rank=0, size=2, device=torch.device("cpu"), mesh=nowhere, timeout=1.0)
    with ThreadPoolExecutor(1) as pool:
        backend = distributed_backend(Driver(ranks, {}, Channel(HashStore()), pool))
        backend.save(tmp_path, 1, {"a": torch.ones(2)}, machine=(), facts={"lowering": "eager"}, metadata={})
    (where,) = (tmp_path / "checkpoints").glob("step_*")
    environment = read_description(where).manifest.environment
    assert (environment["ranks"], environment["lowering"]) == (2, "eager")
    assert of_ranks(tmp_path)


def begun_alone(run: Path, backend: LearnerBackend) -> None:
    """What a run leaves that was killed in the step before its first checkpoint."""
    patch = pytest.MonkeyPatch()
    made = TextTrainingLoop.train

    def train(self: Any, command: TrainChunk) -> Any:
        if self.iteration == 2:
            raise Cut
        return made(self, command)

    patch.setattr(TextTrainingLoop, "train", train)
    try:
        with pytest.raises(Cut):
            session.start(run, tiny(save_every=9), overwrite=False, notice=silent, backend=backend)
    finally:
        patch.undo()
    assert folder.unsaved(run)


@pytest.mark.slow
@pytest.mark.parametrize("first", [pytest.param("plain", marks=pytest.mark.slow), "ranked"])
def test_a_run_without_a_checkpoint_is_begun_again_by_others(first: str, plain: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    if first == "plain":
        begun_alone(run, SINGLE_PROCESS)
        within(lambda backend: session.resume(run, notice=silent, backend=backend))
        assert forms(run) == ["sharded"]
    else:
        within(lambda backend: begun_alone(run, backend))
        assert commands.resume_command([str(run)]) == 0
        assert forms(run) == ["full"]
    assert apart(policy(run), policy(plain)) < 1e-4
    assert [row["iteration"] for row in read_metrics(run / "metrics.jsonl")] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.slow
def test_phases_keep_shards_and_read_segments(tmp_path: Path) -> None:
    run, arguments = tmp_path / "run", tiny(**THREADS, **DECOUPLED, samples=2, steps=2)
    outcome = within(lambda backend: session.start(run, arguments, overwrite=False, notice=silent, backend=backend))
    assert outcome.session == ("async",)
    assert set(forms(run / "async")) == {"sharded"}
    assert main.main(["replay", str(run)]) == 0
    parts, found = phases.phase_policy(run, "async")
    assert all(bool(leaf.isfinite().all()) for leaf in leaves(parts.whole(found)))


@pytest.mark.slow
def test_a_server_samples_with_the_weights_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    room = {name: TINY[name] for name in ("capacity", "max_new_tokens")}
    published = stood_in(monkeypatch, run, **room)
    arguments = tiny(server="http://127.0.0.1:9/v1", steps=2)
    within(lambda backend: session.start(run, arguments, overwrite=False, notice=silent, backend=backend))
    assert [version for _, version in published] == [0, 1]
    rows = read_metrics(run / "metrics.jsonl")[1:]
    assert len(rows) == 2
    assert all(row["log_prob_difference"] < 1e-4 for row in rows)
    assert forms(run) == ["full", "sharded", "sharded"]


# --- refusals ---


def test_adapters_are_refused_on_ranks() -> None:
    with pytest.raises(ChoiceError, match="--lora is 4 on 2 ranks, wanted none; train adapters in one process"):
        check_ranks(tiny(lora=4, model="somewhere"), 2)


def launched(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    for name, value in zip(SET, (str(rank), "2", "127.0.0.1", "1"), strict=True):
        monkeypatch.setenv(name, value)


@pytest.mark.slow
def test_other_recipes_are_refused_on_ranks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for words in (["train", "ppo"], ["train", "prove"], ["resume", str(tmp_path)]):
        launched(monkeypatch, 0)
        assert main.main(words) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "on 2 ranks, wanted on one; start it without a launcher" in said
        launched(monkeypatch, 1)
        assert main.main(words) == 1
        assert capsys.readouterr().err == ""


# --- the page ---


def test_the_commands_of_the_page_are_ones_we_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noted = []

    def note(run: Path, *given: Any, **named: Any) -> Any:
        noted.append(str(run))
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    for run in ("ranks", "both"):
        mode = "async" if run == "both" else "sync"
        begun(Path("runs") / run, {"recipe": "zorplex", "mode": mode, "generators": -1})
    monkeypatch.setattr(runs, "start", note)
    monkeypatch.setattr(session, "resume", note)
    (block,) = [one for one in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) if "torchrun" in one]
    for line in block.splitlines():
        first, *rest = shlex.split(line, comments=True)
        if first == "torchrun":
            given = get_args_parser().parse_args(rest)
            assert given.no_python
            first, rest = given.training_script, given.training_script_args
        assert first == "purestep"
        assert main.main(rest) == 130
    assert noted == ["runs/ranks", "runs/both", "runs/ranks", "runs/both"]


# --- several ranks ---


def words(run: Path, **changes: Any) -> list[str]:
    own = {**TINY, **changes}
    given = [word for name, value in own.items() for word in (flag(name), str(value))]
    return ["train", "zorplex", "--algorithm", "reinforce", "--run", str(run), *given]


STUCK = """
import sys, threading
from contextlib import suppress
from pathlib import Path
import attrs, torch
from purestep.runtime.effects.checkpoint.atomic_files import DISK
from purestep.runtime.effects.distributed.process_group import RankError, ProcessGroup
from purestep.runtime.effects.checkpoint.async_save import saving
from purestep.runtime.text import distributed_learner

distributed_learner.GRACE = 0.5
ranks = ProcessGroup(rank=0, size=2, device=torch.device("cpu"), mesh=(), timeout=1.0)
never = attrs.evolve(DISK, sync=lambda path: threading.Event().wait())
with suppress(RankError), distributed_learner._rank_worker(ranks) as worker:
    run = Path(sys.argv[1])
    worker.savers[run] = worker.files.enter_context(saving(run, files=never))
    worker.save(run, 1, {"a": torch.ones(2)}, (), {})
    raise RankError("rank 1 is gone")
"""


@pytest.mark.slow
def test_a_checkpoint_that_waits_for_a_lost_rank_keeps_nobody(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", STUCK, tmp_path], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (1, "rank 1 is gone\n")


@pytest.mark.slow
def test_a_recorded_sequence_gone_on_with_in_other_worlds_never_stopped(tmp_path: Path) -> None:
    """Begun by two, gone on with by three and then by one; at the end two are told to train anew where the checkpoints are."""
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    whole.mkdir()
    pieces.mkdir()
    plan = [f"{size}:{first}:{last}:{free_port()}" for size, first, last in ((2, 0, 4), (3, 4, 8))]
    world = World(3, pieces, "{rank}", *plan, free_port(), *words(pieces), module="recipe_program", strict=True)
    first, *others = world.ended()
    assert [code for code, _ in (first, *others)] == [1, 1, 0]
    assert [text for _, text in others] == ["", ""]
    said = f"purestep: {pieces} is a folder with 'checkpoints', and no run of purestep, wanted a new folder"
    assert first[1].splitlines()[-1].startswith(said)
    within(lambda backend: recipe_program.piece(backend, pieces, 8, 12))
    within(lambda backend: recipe_program.piece(backend, whole, 0, 12))
    losses, once = ([float(line) for line in (place / "losses").read_text().split()] for place in (pieces, whole))
    assert len(losses) == len(once) == len(set(once)) == 12
    assert max(abs(a - b) / abs(b) for a, b in zip(losses, once, strict=True)) < AGAIN


@pytest.mark.slow
def test_a_run_without_a_checkpoint_is_begun_again_on_two_ranks(plain: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    within(lambda backend: begun_alone(run, backend))
    assert f"no checkpoint yet: {run} begins again" in well(purestep(2, "resume", run))
    assert forms(run) == ["sharded"]
    assert apart(policy(run), policy(plain)) < 1e-4


@pytest.mark.slow
def test_ctrl_c_under_torchrun_saves_and_one_process_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, whole, log = tmp_path / "run", tmp_path / "whole", tmp_path / "log"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    usual = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    program = ["purestep.runtime.cli.main", *words(run, steps=6)]
    with log.open("w") as told, subprocess.Popen([*command, *program], env=usual, stderr=told) as torchrun:
        try:
            third, lives = run / "checkpoints" / "step_000003", lambda: torchrun.poll() is None
            until(third.exists, f"{third.name} is there", alive=lives, said=log.read_text)
            torchrun.send_signal(signal.SIGINT)
            torchrun.wait(LONG)
        finally:
            torchrun.terminate()  # where it is still there: it ends its ranks, which outlive it when it is killed
            with suppress(subprocess.TimeoutExpired):
                torchrun.wait(END)
            torchrun.kill()
    assert "iterations and saved; go on with: purestep resume" in log.read_text()
    assert main.main(["resume", str(run)]) == 0
    said = capfd.readouterr().err
    assert "not necessarily the bits of a run that never stopped: ranks: 2 when saved, 1 now" in said
    within(lambda backend: session.start(whole, tiny(steps=6), overwrite=False, notice=silent, backend=backend))
    rows, others = read_metrics(run / "metrics.jsonl"), read_metrics(whole / "metrics.jsonl")
    assert [row["iteration"] for row in rows] == [float(number) for number in range(1, 8)]
    assert [row["loss"] for row in rows[1:]] == pytest.approx([row["loss"] for row in others[1:]], rel=AGAIN)


@pytest.mark.slow
def test_a_run_at_once_that_was_killed_goes_on_on_three_ranks(tmp_path: Path) -> None:
    run = tmp_path / "run"
    own = {"mode": "async", "staleness": 2, "generator_slots": 6, "steps": 5, "samples": 2}
    killed_after(purestep(2, *words(run, **own), "--no-compare"), run / "async" / "checkpoints" / "step_000002")
    well(purestep(3, "resume", run))
    totals = json.loads((run / "async" / "totals.json").read_text())
    assert (totals["version"], totals["sessions"], totals["consumed"]) == (5, 2, 20)
    assert main.main(["replay", str(run)]) == 0
    assert set(forms(run / "async")) == {"sharded"}
