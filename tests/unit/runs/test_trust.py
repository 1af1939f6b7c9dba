"""A command line meets files that are none, numbers that no machine has, and runs that name code: a line each, nothing run."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from purestep.core.errors import CheckpointError, ChoiceError, StructureError, TrustError
from purestep.runtime.cli import main
from purestep.runtime.effects import folder
from purestep.runtime.effects.checkpoint import single
from purestep.runtime.effects.datasets import folder as dataset_folder
from purestep.runtime.effects.experiment_config import load_expr_config
from purestep.runtime.effects.hugging_face.folder import open_model
from purestep.runtime.effects.hugging_face.tokenizer import load_tokenizer
from purestep.runtime.effects.json_lines import objects
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.files.reading import UnreadableError, irregular, parse_json, read_bounded
from purestep.runtime.machine.json_codec import encode
from purestep.runtime.recipes.cache import cache_defaults
from purestep.runtime.recipes.shared_settings import Process
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import changed, check_threads, flatten, from_record, most_threads
from purestep.runtime.runs.recipe import find, own
from purestep.runtime.runs.training_machine import Loop

POLICY = """
from pathlib import Path
Path(__file__).with_name("imported").mkdir()

def paid(state, asked, reply):
    raise NotImplementedError
"""


@pytest.fixture(autouse=True)
def no_waits() -> Any:
    """A test that waits for a FIFO ends the run of tests, and says where."""
    import faulthandler

    faulthandler.dump_traceback_later(240, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


# --- functions that a run's folder names ---


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the reasoning cache from elsewhere, whose record names a function of a module that lies in the path."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "their_policies.py").write_text(POLICY)
    monkeypatch.syspath_prepend(tmp_path / "code")
    arguments = changed(cache_defaults(), {"solution_rollout_policy": "their_policies.paid"})
    run = tmp_path / "run"
    loop = Loop(iterations=4, chunk=1, every=1, iteration=1, saved=1)
    described = runs.run_record(find("cache"), arguments)
    run.mkdir()
    single.save(run, 1, {}, machine=loop, metadata=described)
    folder.mark(run, "cache")
    folder.write_json(run / folder.ARGUMENTS, encode(described))
    return run


@pytest.mark.parametrize("words", [["resume"], ["evaluate", "--problems", "2"]])
def test_a_function_that_a_run_names_is_not_imported_and_the_line_says_how(
    words: list[str], foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = words
    assert main.main([command, str(foreign), *rest]) == 1
    err = capsys.readouterr().err
    typed = " ".join(["purestep", command, str(foreign), *rest, "--solution-rollout-policy", "their_policies.paid"])
    assert err.rstrip().endswith(typed)
    assert len([line for line in err.splitlines() if not line.startswith("loading ")]) == 1
    assert main.main([command, str(foreign), *rest, "--solution-rollout-policy", "os.abort"]) == 1
    assert "their_policies.paid" in capsys.readouterr().err
    assert not (foreign.parent / "code" / "imported").exists()


def test_talking_to_a_run_calls_its_functions_only_if_it_is_trusted(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "their_policies", raising=False)
    assert main.main(["chat", str(foreign), "--task", "0"]) == 1
    assert capsys.readouterr().err.rstrip().endswith(f"purestep chat {foreign} --task 0 --trust")
    assert not (foreign.parent / "code" / "imported").exists()
    assert main.main(["chat", str(foreign), "--task", "0", "--trust"]) == 1  # its checkpoint holds no tensors
    assert (foreign.parent / "code" / "imported").exists()


@pytest.mark.parametrize("more", [["--trust"], ["--solution-rollout-policy", "their_policies.paid"]])
def test_a_function_that_the_command_line_trusts_is_imported(
    more: list[str], foreign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "their_policies", raising=False)
    assert main.main(["resume", str(foreign), *more]) == 1  # its checkpoint holds no tensors
    assert "trust" not in capsys.readouterr().err
    assert (foreign.parent / "code" / "imported").exists()


def test_a_run_without_a_checkpoint_is_not_begun_again_with_foreign_functions(foreign: Path) -> None:
    import shutil

    shutil.rmtree(foreign / "checkpoints")
    with pytest.raises(TrustError, match=r"their_policies\.paid"):
        runs.resume(foreign, notice=lambda text: None)


AUTO = '{"auto_map": {"AutoConfig": "evil.Config", "AutoTokenizer": ["evil.T", null]}, "model_type": "evil"}'


@pytest.mark.parametrize("opens", [open_model, load_tokenizer])
def test_code_that_a_models_folder_brings_is_not_run(opens: Callable[[Path], Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for name in ("config.json", "tokenizer_config.json"):
        (tmp_path / name).write_text(AUTO)
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "evil.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'made')!r})\n")
    with pytest.raises((StructureError, ChoiceError)):
        opens(tmp_path)
    assert not (tmp_path / "made").exists()


# --- files that are none ---


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


ODD = [fifo, device, directory]


@pytest.mark.parametrize("odd", ODD)
def test_files_that_are_none_end_in_a_line(odd: Callable[[Path], None], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    odd(home / "x")
    path = home / "x"
    with pytest.raises(UnreadableError):
        read_bounded(path)
    with pytest.raises(ChoiceError, match="--config"):
        load_expr_config(["--config", str(path)])
    with pytest.raises(CheckpointError, match="unreadable"):
        folder.read_json(path)
    for reads in (read_metrics, lambda path: list(objects(path))):
        with pytest.raises(CheckpointError, match="wanted a"):
            reads(path)
    for name in ("train.txt", "test.txt"):
        (home / name).symlink_to(path)
    with pytest.raises(ChoiceError, match="unreadable"):
        dataset_folder(home)


@pytest.mark.parametrize("odd", [fifo, device])
def test_a_models_folder_with_files_that_are_none_ends_in_a_line(odd: Callable[[Path], None], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "model.safetensors").write_bytes(b"")
    odd(tmp_path / "config.json")
    assert irregular(tmp_path) == "config.json"
    with pytest.raises(StructureError, match="no regular file"):
        open_model(tmp_path)
    with pytest.raises(ChoiceError, match="no regular file"):
        load_tokenizer(tmp_path)


def test_a_file_has_a_largest_size_also_where_it_states_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abcd")
    assert read_bounded(tmp_path / "x", 4) == b"abcd"
    for path, most in ((tmp_path / "x", 3), (Path("/proc/self/status"), 10)):
        with pytest.raises(UnreadableError, match="more than"):
            read_bounded(path, most)
    assert b"Name" in read_bounded(Path("/proc/self/status"))


def test_a_fifo_with_a_writer_is_none_either(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    reader = os.open(tmp_path / "x", os.O_RDONLY | os.O_NONBLOCK)
    writer = threading.Thread(target=(tmp_path / "x").write_bytes, args=(b"abc",))
    writer.start()
    with pytest.raises(UnreadableError, match="a FIFO"):
        read_bounded(tmp_path / "x")
    writer.join()
    os.close(reader)


@pytest.mark.parametrize("text", ["[" * 10**5, '{"a":' * 10**5, "NaN", "1" * 10**4, "{", "[" * 101 + "]" * 101])
def test_json_that_is_none_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


# --- threads and records ---


@pytest.mark.parametrize("threads", [0, -1, 100_000, 10**30])
@pytest.mark.parametrize("recipe", ["ppo", "prove", "zorplex", "cache"])
def test_threads_that_cannot_be_started_end_in_a_line(
    recipe: str, threads: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["train", recipe, "--threads", str(threads), "--run", str(tmp_path / "run")]) == 1
    (line,) = [text for text in capsys.readouterr().err.splitlines() if text.startswith("purestep: ")]
    got = threads if threads < 10**18 else f"a number of {len(str(threads))} digits"
    assert line.startswith(f"purestep: --threads is {got}, wanted ")


def test_as_many_threads_as_a_large_machine_has_are_allowed() -> None:
    check_threads(most_threads())


@pytest.mark.parametrize("changes", [{"threads": "1"}, {"threads": True}, {"backend": "other"}, {"backend": ["none"]}])
def test_a_record_with_values_of_other_types_is_refused(changes: dict[str, Any]) -> None:
    held = {"recipe": "x", **flatten(Process())}
    assert from_record("x", Process(), held) == Process()
    with pytest.raises(CheckpointError, match=f"with {next(iter(changes))}"):
        from_record("x", Process(), {**held, **changes})


def test_every_recipes_own_record_is_taken() -> None:
    for name in own():
        recipe = find(name)
        arguments = recipe.defaults()
        assert runs.arguments_of(runs.run_record(recipe, arguments)) == (recipe, arguments)
