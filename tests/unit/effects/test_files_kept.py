"""Nothing of a user's is removed, overwritten, followed or waited for: attacks in folders of their own."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from purestep.core.errors import CheckpointError, ChoiceError, PurestepError
from purestep.properties.framework.crash import Crash, CrashingFiles
from purestep.runtime.cli import main
from purestep.runtime.effects import folder, layout
from purestep.runtime.effects.checkpoint import single
from purestep.runtime.effects.checkpoint.atomic_files import DISK, lock, write_whole
from purestep.runtime.effects.checkpoint.directory import step_folders
from purestep.runtime.effects.checkpoint.tensor_file import read_tensors
from purestep.runtime.effects.json_lines import objects, open_lines
from purestep.runtime.effects.jsonl_stream import read_entries, writer
from purestep.runtime.effects.openai_server.vllm_weights import lay_out
from purestep.runtime.effects.reporting import metrics
from purestep.runtime.effects.reporting.plot import learning_curve
from purestep.runtime.effects.reporting.png import check_picture, drawn_here

from ...support.run_folders import begun

Said = pytest.CaptureFixture[str]
ROWS = [{"steps": 1.0, "episode_return": 1.0}, {"steps": 2.0, "episode_return": 3.0}]
RECIPES = ("ppo", "prove", "cache", "zorplex")


def laid(home: Path, names: list[str]) -> Path:
    """A folder with files of these names, each with its own name in it; a name that ends with / is a folder."""
    for name in names:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text(name)
    return home


def contents(home: Path) -> dict[str, Any]:
    """Return the entries of a folder: of files their bytes, of links their targets, of folders ()."""
    return {
        str(path.relative_to(home)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else ()
        for path in sorted(home.rglob("*"))
    }


PROJECT = [
    "model/config.json",
    "model/mine.bin",
    "tokenizer/vocab.txt",
    "metrics.jsonl",
    "checkpoints/theirs",
    "notes.txt",
]
OURS = [
    *("metrics.jsonl", "evaluation.json", ".partial-evaluation.json", "tensorboard/events.out.tfevents.1.host.2.0"),
    *("checkpoints/step_000001/manifest.json", "checkpoints/step_000001/shards/.metadata", "checkpoints/latest"),
    *("checkpoints/.partial-step_000002/state.safetensors", "checkpoints/.partial-latest", "before.json"),
    *("tokenizer/tokenizer.json", "model/config.json", "model/model-00001-of-00002.safetensors", "evaluation.txt"),
    *(
        "served/weights/version_000000/model.safetensors",
        "sync/metrics.jsonl",
        "sync/checkpoints/step_000004-2/manifest.json",
    ),
    *("async/events.jsonl", "async/.partial-totals.json", "warm/checkpoints/latest", "diverged.safetensors"),
]
THEIRS = [
    *(
        "notes.txt",
        "checkpoints/step_best/manifest.json",
        "checkpoints/notes",
        "tensorboard/run.txt",
        "model/README.md",
    ),
    *("sync/mine/metrics.jsonl", "async/thoughts.txt", "proof.png", ".partial-mine", "served/log.txt"),
]


def whole_run(run: Path) -> Path:
    """A run of zorplex with all that one leaves, and what its user has put beside it."""
    begun(run, {"recipe": "zorplex"})
    laid(run, [*OURS, *THEIRS])
    os.symlink("weights/version_000000", run / "served" / "served")
    learning_curve([ROWS], run / folder.PICTURE)
    return run


# --- folders ---


@pytest.mark.parametrize("foreign", ['{"recipe": "ppo"}', '{"name": "mine"}', "no JSON", None])
@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_a_project_keeps_every_byte(tmp_path: Path, foreign: str | None, more: list[str], capsys: Said) -> None:
    project = laid(tmp_path / "project", PROJECT)
    if foreign is not None:
        (project / "arguments.json").write_text(foreign)
    left = contents(project)
    for words in (
        ["train", "ppo", "--steps", "8", "--backend", "none"],
        ["train", "prove", "--data", "family:20", "--steps", "8", "--backend", "none"],
    ):
        assert main.main([*words, "--run", str(project), *more]) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith(f"purestep: {project} is a ")
        assert "wanted a new folder; choose another folder" in said
        assert contents(project) == left


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", [*layout.names_of("zorplex"), ".git/", "x", ".lock.", ".partial-x", "-"])
def test_no_name_makes_a_folder_a_run(tmp_path: Path, recipe: str, name: str) -> None:
    home = laid(tmp_path / "home", [name])
    left = contents(home)
    with pytest.raises(CheckpointError, match="wanted a new folder"), folder.starting(home, recipe, overwrite=True):
        raise AssertionError("begun")
    assert contents(home) == left


def test_a_lock_of_something_else_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("package lock v3\n")
    with pytest.raises(CheckpointError, match="a file of something else, wanted a lock"), lock(tmp_path):
        pass
    assert (tmp_path / ".lock").read_text() == "package lock v3\n"


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "[]", "{}", "[" * 60_000, '{"purestep": "1", "recipe": "ppo", "marker": true, "names": []}']
    + [
        json.dumps({"purestep": "1", "recipe": "ppo", "marker": form, "names": names})
        for form, names in [(2, []), (1, ["../x"]), (1, [".."]), (1, ["a/b"]), (1, [5]), (1, [""]), (1, "x"), ("1", [])]
    ],
)
def test_a_marker_that_purestep_did_not_write_is_none(tmp_path: Path, text: str) -> None:
    laid(tmp_path, [*PROJECT, "arguments.json"])
    (tmp_path / folder.MARKER).write_text(text)
    left = contents(tmp_path)
    with pytest.raises(CheckpointError) as caught, folder.starting(tmp_path, "ppo", overwrite=True):
        pass
    assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointError):
        folder.existing(tmp_path)
    assert contents(tmp_path) == left


def test_what_a_marker_names_and_no_run_writes_stays(tmp_path: Path) -> None:
    begun(tmp_path, {"recipe": "ppo"})
    marker = json.loads((tmp_path / folder.MARKER).read_text())
    (tmp_path / folder.MARKER).write_text(json.dumps({**marker, "names": [*marker["names"], "thesis.tex", "src"]}))
    laid(tmp_path, ["thesis.tex", "src/main.c"])
    folder.clear(tmp_path, "ppo")
    assert (tmp_path / "thesis.tex").exists()
    assert (tmp_path / "src" / "main.c").exists()


def test_only_what_runs_write_is_removed(tmp_path: Path) -> None:
    run = whole_run(tmp_path / "run")
    # the picture that the user drew has a name of another recipe, which the marker does not name
    theirs = {name: (run / name).read_bytes() for name in THEIRS}
    folder.clear(run, "zorplex")
    assert {name for name, held in contents(run).items() if held != ()} == {*theirs, folder.MARKER}
    assert {name: (run / name).read_bytes() for name in theirs} == theirs
    assert step_folders(run / "checkpoints") == []
    assert not folder.has_checkpoints(run)


def test_another_recipe_does_not_take_names_that_are_not_named(tmp_path: Path) -> None:
    run = begun(tmp_path, {"recipe": "ppo"})
    laid(run, ["model/config.json"])
    left = contents(run)
    with pytest.raises(CheckpointError, match="a folder with 'model', which no run wrote"):
        folder.clear(run, "zorplex")
    assert contents(run) == left
    folder.clear(run, "ppo")
    assert (run / "model" / "config.json").exists()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(os.path.relpath(path))


SPECIAL: list[Callable[[Path], None]] = [pipe, listening, Path.mkdir]


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluation.json", "arguments.json", folder.MARKER, ".lock"])
@pytest.mark.parametrize("special", SPECIAL)
def test_a_name_of_ours_that_is_no_file_ends_in_a_line(
    tmp_path: Path, name: str, special: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(tmp_path / "run", {"recipe": "ppo"})
    monkeypatch.chdir(run)
    (run / name).unlink(missing_ok=True)
    special(run / name)
    left = sorted(path.name for path in run.iterdir())
    with pytest.raises(CheckpointError, match=r"wanted a file") as caught, folder.starting(run, "ppo", overwrite=True):
        pass
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in run.iterdir()) == left


def test_a_picture_that_its_user_has_drawn_is_not_removed(tmp_path: Path) -> None:
    run = begun(tmp_path, {"recipe": "ppo"})
    (run / folder.PICTURE).write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(CheckpointError, match="a picture that purestep did not draw"):
        folder.clear(run, "ppo")
    assert (run / folder.ARGUMENTS).exists()


def test_links_are_removed_and_never_followed(tmp_path: Path) -> None:
    precious = laid(tmp_path / "precious", ["step_000001/manifest.json", "events.out.tfevents.1", "x"])
    left = contents(precious)
    run = begun(tmp_path / "run", {"recipe": "zorplex"})
    for name in ("checkpoints", "tensorboard", "model", "sync", "learning_curve.png", "served"):
        (run / name).symlink_to(precious)
    (run / "metrics.jsonl").symlink_to(precious / "x")
    (run / "evaluation.json").symlink_to(precious / "absent")
    folder.clear(run, "zorplex")
    assert [path.name for path in run.iterdir()] == [folder.MARKER]
    run = begun(tmp_path / "again", {"recipe": "zorplex"})
    laid(run, ["checkpoints/step_000002/manifest.json", "sync/totals.json"])
    (run / "checkpoints" / "step_000001").symlink_to(precious)
    (run / "checkpoints" / "step_000002" / "shards").symlink_to(precious)
    (run / "sync" / "checkpoints").symlink_to(precious)
    folder.clear(run, "zorplex")
    assert [path.name for path in run.iterdir()] == [folder.MARKER]
    assert contents(precious) == left


def test_a_link_to_a_folder_may_be_a_run(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    with folder.starting(tmp_path / "run", "ppo", overwrite=False):
        folder.clear(tmp_path / "run", "ppo")
    assert (tmp_path / "disk" / folder.MARKER).is_file()


@pytest.mark.parametrize("make", [pipe, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_a_run_that_is_no_folder_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "run")
    with (
        pytest.raises(CheckpointError, match="wanted a new folder"),
        folder.starting(tmp_path / "run", "ppo", overwrite=True),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_old_run_is_refused_by_every_command(tmp_path: Path, capsys: Said) -> None:
    for recipe in RECIPES:
        run = laid(tmp_path / recipe, ["checkpoints/step_000001/manifest.json", "metrics.jsonl"])
        about = {"recipe": recipe, "mode": "async", "generators": 1} if recipe == "zorplex" else {"recipe": recipe}
        (run / folder.ARGUMENTS).write_text(json.dumps(about))
        left = contents(run)
        several = {"zorplex": ["chat", "replay"], "prove": []}.get(recipe, [])
        for command in ("resume", "evaluate", "plot", *several):
            assert main.main([command, str(run)]) == 1
            said = capsys.readouterr().err.splitlines()
            assert said[-1] == (
                f"purestep: {run} is a run of an older purestep, without .purestep.json, wanted that of a run; "
                "train it anew, in another folder"
            ), (command, recipe)
        if recipe == "prove":
            assert main.main(["explain", "in(a, b)", "--run", str(run)]) == 1
            assert "a run of an older purestep" in capsys.readouterr().err
        assert contents(run) == left


# --- crashes ---


def cleared(files: Any, run: Path) -> bool:
    """Clear the folder, record the new run's arguments, and return whether no crash came in between."""
    try:
        folder.clear(run, "zorplex", files=files)
        folder.write_json(run / folder.ARGUMENTS, {"recipe": "zorplex"}, files=files)
    except Crash:
        return False
    return True


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("old", [True, False])
def test_a_kill_at_any_moment_leaves_a_run_or_a_folder_to_begin_in(tmp_path: Path, torn: bool, old: bool) -> None:
    ended, operations = False, 0
    template = whole_run(tmp_path / "template")
    before, kept = contents(template), THEIRS if old else []
    while not ended:
        run = tmp_path / "run"
        if old:
            shutil.copytree(template, run, symlinks=True)
        else:
            run.mkdir()
        fragile = CrashingFiles(operations, torn=torn, forgets=torn)
        ended = cleared(fragile.files, run)
        fragile.power_fails()
        now = contents(run)
        assert {name: now[name] for name in kept} == {name: name.encode() for name in kept}
        try:
            folder.existing(run)
            whole = True
        except CheckpointError:
            whole = False
        begun_anew = {name for name, held in now.items() if held != ()} == {*kept, folder.MARKER, folder.ARGUMENTS}
        assert not whole or now == before or begun_anew, "a run of which something is gone is taken for a whole one"
        with folder.starting(run, "zorplex", overwrite=True):
            assert cleared(DISK, run)
        assert {name for name, held in contents(run).items() if held != ()} == {
            *kept,
            *(folder.MARKER, folder.ARGUMENTS, ".lock"),
        }
        shutil.rmtree(run)
        operations += 1
    assert operations > (30 if old else 6)


# --- files ---


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    writes: dict[str, Callable[[Path], object]] = {
        "whole": lambda path: write_whole(path, b"x"),
        "append": lambda path: DISK.append(path, b"x"),
        "lines": lambda path: open_lines(path).__enter__(),
        "rows": lambda path: metrics.jsonl(path).__enter__(),
        "rewind": lambda path: metrics.rewind(path, 0),
        "stream": lambda path: writer(path).__enter__()(0, [{"a": 1}]),
        "board": lambda path: metrics.tensorboard(path).__enter__(),
        "served": lambda path: lay_out(path, lambda home: None, version=0),
        "lock": lambda path: lock(path.parent).__enter__(),
    }
    for there in (False, True):
        for name, write in writes.items():
            home = tmp_path / f"{name}-{there}"
            home.mkdir()
            if there:
                target.write_text('{"steps": 1}\n')
            path = home / (".lock" if name == "lock" else name)
            path.symlink_to(target)
            with pytest.raises((PurestepError, OSError)) as caught:
                write(path)
            assert "\n" not in str(caught.value), name
            assert path.is_symlink(), name
            assert target.exists() is there, name
            assert not there or target.read_text() == '{"steps": 1}\n', name
        partial = tmp_path / f".partial-a-{there}"
        partial.symlink_to(target)
        with pytest.raises(CheckpointError, match="a link, wanted a file"):
            write_whole(tmp_path / f"a-{there}", b"x")


@pytest.mark.parametrize("special", [pipe, Path.mkdir])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, special: Callable[[Path], None]) -> None:
    path = tmp_path / "it"
    special(path)
    calls: list[Callable[[], object]] = [
        lambda: folder.read_json(path),
        lambda: write_whole(path, b"x"),
        lambda: DISK.append(path, b"x"),
        lambda: metrics.read_metrics(path),
        lambda: metrics.jsonl(path).__enter__(),
        lambda: open_lines(path).__enter__(),
        lambda: list(objects(path)),
        lambda: read_entries(path),
        lambda: writer(path).__enter__(),
        lambda: read_tensors(path),
        lambda: drawn_here(path),
    ]
    for call in calls:
        with pytest.raises(PurestepError) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_for_others_code_holds_no_links(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from purestep.runtime.effects.hugging_face.tokenizer import save_tokenizer, train_tokenizer

    tokenizer, precious = train_tokenizer(["a b"]), tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").symlink_to(precious)
    with pytest.raises(CheckpointError, match="a link, wanted a file"):
        save_tokenizer(tokenizer, tmp_path / "tokenizer")
    (tmp_path / "linked").symlink_to(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="a link, wanted a folder"):
        save_tokenizer(tokenizer, tmp_path / "linked")
    assert precious.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_copy_of_a_checkpoint_is_no_checkpoint_of_the_run(tmp_path: Path) -> None:
    import torch

    tree = {"w": torch.ones(2)}
    first = single.save(tmp_path, 1, tree)
    for name in ("step_best", "step_1", "step_000001.bak"):
        shutil.copytree(first, first.with_name(name))
    last = [single.save(tmp_path, step, tree, keep=1) for step in (2, 3)][-1]
    assert single.latest(tmp_path) == last
    assert {path.name for path in first.parent.iterdir()} == {
        *("step_best", "step_1", "step_000001.bak"),
        *("latest", last.name),
    }


# --- pictures ---


def test_a_picture_takes_the_place_of_one_that_purestep_drew_alone(tmp_path: Path) -> None:
    out = learning_curve([ROWS], tmp_path / "new" / "curve.png")
    assert drawn_here(out)
    first = out.read_bytes()
    assert learning_curve([ROWS], out).read_bytes() == first
    out.write_bytes(first.replace(b"Software\0purestep", b"Software\0somebody"))
    for held in (out.read_bytes(), b"", b"notes", first[:20], first.replace(b"\x89PNG", b"PNG\x89")):
        out.write_bytes(held)
        with pytest.raises(ChoiceError, match="a file that purestep did not draw, wanted a new file or a picture"):
            learning_curve([ROWS], out)
        assert out.read_bytes() == held
    assert [path.name for path in out.parent.iterdir()] == ["curve.png"]


@pytest.mark.parametrize("command", ["plot", "explain"])
def test_out_is_looked_at_before_the_work(
    tmp_path: Path, command: str, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    from purestep.runtime.recipes import explain_query
    from purestep.runtime.runs import curves

    run = begun(tmp_path / "run", {"recipe": "prove"})
    for module, work in ((explain_query, "explain_query"), (curves, "draw_metric")):
        monkeypatch.setattr(module, work, lambda *given: pytest.fail("the work was done"))
    (tmp_path / "notes.txt").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "linked").symlink_to(tmp_path / "absent")
    (tmp_path / "looped").symlink_to(tmp_path / "looped")
    words = ["plot", str(run)] if command == "plot" else ["explain", "in(a, b)", "--run", str(run)]
    for out in ("notes.txt", "pipe", "linked", "run", "notes.txt/x.png", "linked/x.png", "pipe/x", "looped", "."):
        assert main.main([*words, "--out", str(tmp_path / out)]) == 1
        (said,) = capsys.readouterr().err.splitlines()
        assert "wanted a " in said, out
        assert "name another one" in said, out
    assert main.main([*words, "--out", "/dev/null"]) == 1
    assert "/dev/null is a device" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linked", "looped", "notes.txt", "pipe", "run"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_picture_needs_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChoiceError, match="is a folder"):
        check_picture(Path())
    assert check_picture(Path("a.png")) == Path("a.png")
    with pytest.raises(
        CheckpointError, match=r"picture: a/a/a/... is a path through 1000 folders, wanted at most \d+; choose"
    ):
        check_picture(Path("a/" * 1000))
    (tmp_path / ".partial-a.png").symlink_to(tmp_path / "absent")
    with pytest.raises(ChoiceError, match="a link"):
        check_picture(Path("a.png"))
