"""Two tasks, each in a file of its own, with every command: nothing outside the file is needed for any of them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from purestep.core.errors import PurestepError
from purestep.runtime.cli import main
from purestep.runtime.effects import task_reference
from purestep.runtime.effects.openai_server.vllm_process import running
from purestep.runtime.effects.reporting.metrics import Row, read_metrics
from purestep.runtime.effects.task_reference import EVERY, trust
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import changed, flatten
from purestep.runtime.runs.training_machine import TrainChunk
from purestep.runtime.text import run as session
from purestep.runtime.text.build_learner import LearnerBackend
from purestep.runtime.text.columns import LABEL, TAKEN, own_figures
from purestep.runtime.text.config import TaskRun
from purestep.runtime.text.distributed_learner import in_process_group
from purestep.runtime.text.training_loop import TextTrainingLoop

from ...support.example_tasks import MARKET, SAFE
from ...support.programs import free_port, killed_after, purestep, until, well
from ...support.run_folders import begun
from ...support.stand_in_server import stood_in

Said = pytest.CaptureFixture[str]
TINY: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "groups": 2,
    "samples": 3,
    "held_out": 4,
    "minibatches": 1,
    "warm_steps": 4,
    "demonstrations": 8,
    "warm_batch": 4,
    "steps": 3,
    "max_new_tokens": 4,
}
ROOM: dict[str, dict[str, int]] = {SAFE: {"max_turns": 4, "capacity": 96}, MARKET: {"max_turns": 20, "capacity": 320}}
THREADS: dict[str, Any] = {"mode": "async", "compare": False, "generator_engine": "thread", "generator_slots": 3}
BESIDE = ("--mode", "async", "--no-compare", "--generator-engine", "thread", "--generator-slots", "3")
MOST_LINES = 80
ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("VLLM_PYTHON", ROOT / ".peers" / "vllm" / "bin" / "python"))
LEAST = """
from purestep.core import keys
from purestep.core.language.parsers import Parsed
from purestep.core.language.task import TextTask
from purestep.core.language.text_env import Outcome, TextEnv

def reset(params, key):
    return int(keys.randint(key, (), 0, 10)), "0-9?"

def step(params, state, action, key):
    return state, Outcome("no", reward=float(action == str(state)), terminated=action == str(state))

TASK = TextTask(name="least", env=lambda stream: TextEnv((), reset, step), parser=lambda text: Parsed(text[:1] or "?"))
"""
both = pytest.mark.parametrize("reference", [SAFE, MARKET], ids=["safe", "market"])
each_on_its_ranks = pytest.mark.parametrize(("size", "reference"), [(1, SAFE), (2, MARKET)], ids=["safe-1", "market-2"])
second_is_slow = pytest.mark.parametrize(
    "reference", [pytest.param(SAFE, id="safe"), pytest.param(MARKET, id="market", marks=pytest.mark.slow)]
)


@pytest.fixture(autouse=True)
def only_what_a_test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_reference, "_trusted", set[str]())
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def tiny(reference: str, **changes: Any) -> TaskRun:
    """The arguments of a small run, whose algorithm always has something to learn from."""
    trust(reference)
    own = {"algorithm": "reinforce", **TINY, **ROOM.get(reference, ROOM[SAFE]), **changes}
    return changed(TaskRun(), {"reference": reference, **own})


def words(reference: str, run: Path, *more: str, **changes: Any) -> list[str]:
    own = {"algorithm": "reinforce", **TINY, **ROOM.get(reference, ROOM[SAFE]), **changes}
    flags = [word for name, value in own.items() for word in ("--" + name.replace("_", "-"), str(value))]
    return ["train", reference, "--run", str(run), *flags, *more]


def silent(text: str) -> None:
    """Nobody listens."""


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def steps(rows: list[Row]) -> list[dict[str, str]]:
    """The figures of each step of reinforcement but those of a clock; as text, so that NaN is NaN."""
    clocked = [{name: repr(row[name]) for name in row if "second" not in name} for row in rows]
    return [row for row in clocked if row["episode_return"] != "nan"]


def check_labels(rows: list[Row], labels: tuple[str, ...]) -> None:
    """Each step of reinforcement says of each label how large its share was."""
    reinforced = [row for row in rows if row["episode_return"] == row["episode_return"]]
    assert reinforced
    for row in rows:
        assert {name for name in row if name.startswith(LABEL)} == {LABEL + name for name in labels}
    for row in reinforced:
        assert sum(row[LABEL + name] for name in labels) == pytest.approx(1.0)


@both
def test_a_file_has_few_lines(reference: str) -> None:
    file = Path(reference.rpartition(":")[0])
    assert len(file.read_text().splitlines()) <= MOST_LINES
    subprocess.run([sys.executable, "-m", "ruff", "format", "--check", "--quiet", str(file)], check=True)


@both
@pytest.mark.slow
def test_a_run_in_turns_reports_labels_and_is_evaluated_drawn_and_talked_to(
    reference: str, tmp_path: Path, capsys: Said
) -> None:
    run = tmp_path / "run"
    assert main.main(words(reference, run)) == 0
    task = tiny(reference).task()
    told = capsys.readouterr()
    assert all(f"ended as {label}" in told.out for label in task.labels)
    assert re.search(rf"episode_return \S+  accuracy \S+  label/({'|'.join(task.labels)}) \S+", told.err)
    rows = read_metrics(run / "metrics.jsonl")
    check_labels(rows, task.labels)
    assert own_figures(rows) == tuple(task.figures)
    assert (run / "learning_curve.png").exists()
    assert main.main(["plot", str(run)]) == 0
    assert main.main(["evaluate", str(run), "--trust", "--tasks", "3"]) == 0
    assert "of 3 tasks" in capsys.readouterr().out
    assert main.main(["chat", str(run), "--trust", "--task", "1"]) == 0
    assert "task 1 (right: " in capsys.readouterr().out


@second_is_slow
@pytest.mark.slow
def test_generators_report_labels_too(reference: str, tmp_path: Path) -> None:
    run, arguments = tmp_path / "run", tiny(reference, **THREADS)
    session.start(run, arguments, overwrite=False, notice=silent)
    rows = read_metrics(run / "async" / "metrics.jsonl")
    check_labels(rows, arguments.task().labels)
    names = {name for name in rows[0] if not name.startswith(LABEL)}
    assert names - set(arguments.task().figures) <= TAKEN
    assert main.main(["plot", str(run)]) == 0
    assert main.main(["replay", str(run)]) == 0


class Cut(BaseException):
    """A crash."""


def cut_short(begin: Callable[[], Any], at: int) -> None:
    """A run that ends like a crash before it does the iteration of that number."""
    patch, made = pytest.MonkeyPatch(), TextTrainingLoop.train

    def train(self: Any, command: TrainChunk) -> Any:
        if self.iteration == at:
            raise Cut
        return made(self, command)

    patch.setattr(TextTrainingLoop, "train", train)
    try:
        with pytest.raises(Cut):
            begin()
    finally:
        patch.undo()


@second_is_slow
@pytest.mark.parametrize("how", ["turns", *(pytest.param(how, marks=pytest.mark.slow) for how in ("server", "ranks"))])
def test_what_goes_on_ends_with_the_bits_of_what_never_stopped(
    how: str, reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    changes = {"server": "http://127.0.0.1:9/v1"} if how == "server" else {}
    arguments = tiny(reference, **changes)

    def begin(run: Path) -> None:
        if how == "server":
            room = {"capacity": arguments.sampling.capacity, "max_new_tokens": arguments.sampling.max_new_tokens}
            stood_in(monkeypatch, run, **room)
        led(lambda backend: session.start(run, arguments, overwrite=False, notice=silent, backend=backend))

    def led(program: Callable[[LearnerBackend], Any]) -> None:
        def work(backend: LearnerBackend) -> int:
            program(backend)
            return 0

        if how == "ranks":
            assert in_process_group(work) == 0
        else:
            from purestep.runtime.text.build_learner import SINGLE_PROCESS

            work(SINGLE_PROCESS)

    begin(whole)
    cut_short(lambda: begin(cut), at=3)
    assert len(read_metrics(cut / "metrics.jsonl")) == 3
    notices: list[str] = []
    led(lambda backend: session.resume(cut, notice=notices.append, backend=backend))
    assert not [text for text in notices if "not necessarily" in text]
    assert steps(read_metrics(cut / "metrics.jsonl")) == steps(read_metrics(whole / "metrics.jsonl"))
    trust(EVERY)
    for run in (whole, cut):
        assert main.main(["evaluate", str(run), "--trust"]) == 0
    assert weights(cut) == weights(whole)


@pytest.mark.slow
def test_a_task_of_a_world_and_a_parser_alone_goes_everywhere(tmp_path: Path, capsys: Said) -> None:
    file, run, beside = tmp_path / "least.py", tmp_path / "run", tmp_path / "beside"
    file.write_text(LEAST)
    reference = f"{file}:TASK"
    own = {"warm_steps": 0, "max_turns": 3}
    assert main.main(words(reference, run, **own)) == 0
    assert "label/" in capsys.readouterr().err
    check_labels(read_metrics(run / "metrics.jsonl"), tiny(reference).task().labels)
    assert (run / "learning_curve.png").exists()
    assert main.main(words(reference, beside, *BESIDE, **own)) == 0
    for one in (run, beside):
        assert main.main(["evaluate", str(one), "--trust"]) == 0
        assert main.main(["chat", str(one), "--trust", "--task", "0"]) == 0
        assert main.main(["chat", str(one), "--trust", "--question", "Which?"]) == 0
        assert main.main(["plot", str(one), str(one), "--out", str(tmp_path / "two.png")]) == 0
    assert "Which?" in capsys.readouterr().out


@pytest.mark.slow
def test_metrics_of_before_there_were_labels_are_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    cut_short(lambda: session.start(run, tiny(SAFE), overwrite=False, notice=silent), at=3)
    path = run / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text(
        "".join(json.dumps({name: row[name] for name in row if not name.startswith(LABEL)}) + "\n" for row in rows)
    )
    session.resume(run, notice=silent)
    rows = read_metrics(path)
    assert [any(name.startswith(LABEL) for name in row) for row in rows] == [False, False, False, True]
    assert main.main(["plot", str(run)]) == 0


# --- in processes of their own ---


def killed_and_resumed(run: Path, given: list[str], home: Path, size: int) -> str:
    """Kills all ranks of a run at its second checkpoint, goes on with it on as many; gives what the first says then."""
    killed_after(purestep(size, *given), home / "checkpoints" / "step_000002")
    return well(purestep(size, "resume", run, "--trust"))


@pytest.mark.slow
@each_on_its_ranks
def test_a_run_that_was_killed_ends_with_the_bits_of_one_that_was_not(
    size: int, reference: str, tmp_path: Path
) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    well(purestep(size, *words(reference, whole, steps=5)))
    said = killed_and_resumed(torn, words(reference, torn, steps=5), torn, size)
    assert "not necessarily" not in said
    assert weights(torn) == weights(whole)
    assert steps(read_metrics(torn / "metrics.jsonl")) == steps(read_metrics(whole / "metrics.jsonl"))


@pytest.mark.slow
@each_on_its_ranks
def test_a_run_with_generators_that_was_killed_goes_on(size: int, reference: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    own = {"mode": "async", "generators": 2, "generator_slots": 6, "steps": 5}
    killed_and_resumed(run, words(reference, run, "--no-compare", **own), run / "async", size)
    totals = json.loads((run / "async" / "totals.json").read_text())
    assert (totals["version"], totals["sessions"]) == (5, 2)
    assert main.main(["replay", str(run)]) == 0
    assert main.main(["evaluate", str(run), "--trust"]) == 0


@pytest.mark.slow
def test_what_is_refused_is_one_line_of_the_first_rank(tmp_path: Path) -> None:
    file, run = tmp_path / "least.py", tmp_path / "run"
    file.write_text(broken(LEAST, *BROKEN["reward"][:2]))
    begun(run, {"recipe": "task", **flatten(tiny(SAFE))})
    refused = (
        (words(f"{file}:TASK", tmp_path / "new"), "wanted a number"),
        (["resume", run], "repeat the command with"),
    )
    for given, line in refused:
        (first, told), other = purestep(2, *given).ended()
        assert (first, *other) == (1, 1, "")
        assert line in told.splitlines()[-1], told
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason=f"no vLLM at {PYTHON}: see benchmarks/machines/server_zorplex.py")
@both
def test_a_vllm_server_samples(reference: str, tmp_path: Path) -> None:
    run, port = tmp_path / "run", free_port()
    heads = {"width": 64, "heads": 2}  # of a width that vLLM has code for
    world = purestep(1, *words(reference, run, server=f"http://127.0.0.1:{port}/v1", **heads))
    link = run / "served" / "served"
    until(link.exists, "weights are laid out", alive=lambda: world.each[0].poll() is None, said=world.killed)
    window = ROOM[reference]["capacity"]
    with running(PYTHON, link, name="current", log=tmp_path / "log", port=int(port), window=window):
        well(world)
    assert all(row["log_prob_difference"] < 1e-4 for row in read_metrics(run / "metrics.jsonl")[1:])


# --- what is refused ---


def broken(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


BROKEN: dict[str, tuple[str, str, str]] = {
    "parser": (
        'parser=lambda text: Parsed(text[:1] or "?")',
        "parser=lambda text: text[0]",
        "parser on '' is IndexError",
    ),
    "reward": ("reward=float(action == str(state))", "reward=None", "reward is NoneType None, wanted a number"),
    "terminated": ("terminated=action == str(state)", "terminated=0", "terminated is int 0, wanted a bool"),
    "label": ('name="least"', 'name="least", label=lambda attempt: "lost"', "label is 'lost', wanted one of"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_task_that_breaks_a_law_is_refused_before_anything_is_built_or_removed(
    fault: str, tmp_path: Path, capsys: Said
) -> None:
    file, run = tmp_path / "least.py", tmp_path / "run"
    old, new, line = BROKEN[fault]
    file.write_text(broken(LEAST, old, new))
    reference = f"{file}:TASK"
    assert main.main(words(reference, run)) == 1
    assert re.fullmatch(rf"purestep: task least: .*{re.escape(line)}.*", capsys.readouterr().err.splitlines()[-1])
    for changes in ({}, THREADS):
        with pytest.raises(PurestepError, match=re.escape(line)):
            session.start(run, tiny(reference, warm_steps=0, **changes), overwrite=True, notice=silent)
    assert not run.exists()


@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["turns", "async"])
def test_a_task_that_has_been_broken_since_is_refused_by_resume(
    beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, run = tmp_path / "least.py", tmp_path / "run"
    file.write_text(LEAST)
    reference = f"{file}:TASK"
    own = THREADS if beside else {}
    session.start(run, tiny(reference, warm_steps=0, **own), overwrite=False, notice=silent)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    file.write_text(broken(LEAST, *BROKEN["reward"][:2]))
    monkeypatch.delitem(sys.modules, "purestep_task_least")
    with pytest.raises(PurestepError, match="reward is NoneType None, wanted a number"):
        session.resume(run, notice=silent)
    with pytest.raises(PurestepError, match="reward is NoneType None, wanted a number"):
        session.start(run, tiny(reference, warm_steps=0, **own), overwrite=True, notice=silent)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"} == {
        path: content for path, content in before.items() if path.name != ".lock"
    }


LATE = """
def late(attempt):
    text = next(event.text for event in attempt.episode.events if hasattr(event, "finish_reason"))
    return {}[text] if attempt.episode.world < 10 and text not in ("", "?", "0", "yes", "[ANSWER] 0") else 0.0

def env(stream):
    return TextEnv((), reset if stream == "training" else lambda params, key: (10, "0-9?"), step)

TASK = TextTask(name="late", env=env, parser=lambda text: Parsed(text or "?"), figures={"found": late})
"""


@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["turns", "async"])
def test_a_figure_that_raises_while_training_ends_the_run_in_one_line(
    beside: bool, tmp_path: Path, capsys: Said
) -> None:
    (tmp_path / "late.py").write_text(LEAST + LATE)
    more = (*BESIDE, "--generators", "1") if beside else ()
    assert main.main(words(f"{tmp_path / 'late.py'}:TASK", tmp_path / "run", *more, warm_steps=0, max_turns=2)) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"task late: figure 'found' is KeyError: .*, wanted a number for every attempt", last), last


MODULES: dict[str, tuple[str, str]] = {
    "exits": ("raise SystemExit(3)", "SystemExit: 3, wanted a module that can be imported"),
    "leaves": ("import sys\nsys.exit()", "SystemExit, wanted a module that can be imported"),
    "a line": ("a = 1\nif a\n", "SyntaxError: expected ':' (tasks.py, line 2), wanted a module"),
    "absent": ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all', wanted a module that"),
    "raises": ("1 / 0", "ZeroDivisionError: division by zero, wanted a module that can be imported"),
}


@pytest.mark.parametrize("case", MODULES)
def test_a_module_that_cannot_be_imported_is_one_line(case: str, tmp_path: Path, capsys: Said) -> None:
    text, line = MODULES[case]
    (tmp_path / "tasks.py").write_text(text)
    assert main.main(words(f"{tmp_path / 'tasks.py'}:TASK", tmp_path / "run")) == 1
    said = capsys.readouterr().err.splitlines()
    assert line in said[-1]
    assert not (tmp_path / "run").exists()


def test_a_module_that_is_not_installed_says_how_else_to_name_it(tmp_path: Path, capsys: Said) -> None:
    assert main.main(words("nowhere_at_all.worlds:TASK", tmp_path / "run")) == 1
    assert "install it, or name its file: FILE.py:NAME" in capsys.readouterr().err.splitlines()[-1]


def test_the_flags_of_an_experiment_configuration_are_those_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[TaskRun] = []

    def begun(run: Path, recipe: str, arguments: TaskRun, **named: Any) -> Any:
        held.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "start", begun)
    (tmp_path / "one.yaml").write_text(
        "rollout: {consumer_batch_size: 6, max_head_offpolicyness: 3}\nactor: {eps_clip: 0.1}\n"
    )
    more = ["--config", str(tmp_path / "one.yaml"), "rollout.consumer_batch_size=5"]
    assert main.main(["train", SAFE, *more, "--run", str(tmp_path / "run")]) == 130
    (one,) = held
    assert (one.reference, one.episodes.groups, one.asynchronous.staleness, one.learning.clip) == (SAFE, 5, 3, 0.1)
    assert (one.asynchronous.mode, one.asynchronous.loss) == ("async", "decoupled")


def test_what_goes_on_is_told_with_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    """After Ctrl-C, once or twice, in turns and with generators; and where a new run finds one."""
    run, made = tmp_path / "run", TextTrainingLoop.train
    hint = f"purestep resume {run} --trust"

    def pressed(self: Any, command: TrainChunk) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return made(self, command)

    def pressed_twice(*given: Any, **named: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TextTrainingLoop, "train", pressed)
        assert main.main(words(SAFE, run)) == 130
    assert f"interrupted after 1 iterations and saved; go on with: {hint}\n" in capsys.readouterr().err
    assert main.main(words(SAFE, run)) == 1
    assert f"go on with it: {hint}; or pass --overwrite" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(session, "resume", pressed_twice)
        assert main.main(["resume", str(run), "--trust"]) == 130
    assert f"stopped at once; {hint} goes on from the last checkpoint" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(TextTrainingLoop, "train", pressed)
        assert main.main(words(SAFE, run, "--overwrite", *BESIDE)) == 130
    assert f"interrupted and saved; go on with: {hint}\n" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(session, "resume", pressed_twice)
        assert main.main(["resume", str(run), "--trust"]) == 130
    assert f"stopped at once; {hint} goes on from the last checkpoint" in capsys.readouterr().err
