"""Folders that are replaced: complete or absent at any moment, and files of others in them stay."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from purestep.core.errors import CheckpointError
from purestep.properties.framework.crash import Crash, CrashingFiles
from purestep.runtime.effects import folder
from purestep.runtime.effects.checkpoint.atomic_files import DISK
from purestep.runtime.effects.checkpoint.replace_folder import finish_replacement, in_progress, replace_folder
from purestep.runtime.effects.layout import MODEL, own_entries

OWN = ("config.json", "model.safetensors", "tokenizer.json")
MINE = {"README.md": b"mine", "plots/a.txt": b"mine, too", "additional_chat_templates/notes.txt": b"and mine"}


def contents(place: Path) -> dict[str, bytes]:
    return {p.relative_to(place).as_posix(): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}


def written(place: Path, version: bytes, files: Any = DISK) -> Path:
    """Write a version of a model by file operations that may crash."""
    for name in OWN:
        files.append(place / name, version * 3)
    files.make_folder(place / "additional_chat_templates")
    files.append(place / "additional_chat_templates" / "a.jinja", version)
    return place


def version(name: bytes) -> dict[str, bytes]:
    return {**dict.fromkeys(OWN, name * 3), "additional_chat_templates/a.jinja": name}


def begin(run: Path, old: bool) -> Path:
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    if old:
        (run / MODEL).mkdir()
        written(run / MODEL, b"old")
        for name, content in MINE.items():
            (run / MODEL / name).parent.mkdir(exist_ok=True)
            (run / MODEL / name).write_bytes(content)
    return run


def replaced(run: Path, files: Any) -> bool:
    """Replace the model, and return whether no crash came in between."""
    try:
        replace_folder(run / MODEL, lambda place: written(place, b"new", files), own_entries(MODEL), files=files)
    except Crash:
        return False
    return True


def at_crash(run: Path, fragile: CrashingFiles) -> bool:
    """As `replaced`, by a process that is killed: nothing is cleaned up after the crash."""
    try:
        return replaced(run, fragile.files)
    finally:
        fragile.power_fails()


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("old", [False, True])
def test_a_kill_at_any_operation_leaves_a_whole_model_or_none(tmp_path: Path, old: bool, torn: bool) -> None:
    mine = MINE if old else {}
    ended, operations, seen = False, 0, set[str]()
    while not ended:
        run = begin(tmp_path / "run", old)
        ended = at_crash(run, CrashingFiles(operations, torn=torn, forgets=torn))
        there = contents(run / MODEL)
        ours = {name: content for name, content in there.items() if name not in MINE}
        assert ours in ({}, version(b"old"), version(b"new")), operations
        seen.add(there.get("config.json", b"none").decode())
        everywhere = {name.partition("/")[2]: content for name, content in contents(run).items()}
        assert {name: everywhere.get(name) for name in mine} == mine, operations
        whole = contents(run / MODEL) if (run / MODEL).exists() else {}
        finish_replacement(run / MODEL, own_entries(MODEL))
        after = contents(run / MODEL)
        assert [path.name for path in run.iterdir()] in ([MODEL], [])
        assert not whole or {**after, **mine} == {**whole, **mine}
        assert {name: content for name, content in after.items() if name not in MINE} in (
            ({},) if not old and not whole else (version(b"old"), version(b"new"))
        )
        assert replaced(run, DISK)
        assert contents(run / MODEL) == {**version(b"new"), **mine}
        assert [path.name for path in run.iterdir()] == [MODEL]
        operations += 1
    assert operations > (25 if old else 14)
    assert seen == ({"oldoldold", "none", "newnewnew"} if old else {"none", "newnewnew"})


@pytest.mark.slow
def test_a_kill_while_a_replacement_is_finished_is_finished_later(tmp_path: Path) -> None:
    for first in range(16, 40):
        for second in range(40):
            run = begin(tmp_path / "run", True)
            if at_crash(run, CrashingFiles(first)):
                return
            try:
                finish_replacement(run / MODEL, own_entries(MODEL), files=CrashingFiles(second).files)
            except Crash:
                finish_replacement(run / MODEL, own_entries(MODEL))
            else:
                second = 40
            there = contents(run / MODEL)
            assert {name: there.get(name) for name in MINE} == MINE
            assert {name: content for name, content in there.items() if name not in MINE} in (
                version(b"old"),
                version(b"new"),
            )
            if second == 40:
                break
    raise AssertionError("no replacement ended")


def test_an_error_of_the_writer_leaves_the_old_one(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", True)
    before = contents(run)

    def half(place: Path) -> None:
        (place / "config.json").write_bytes(b"half")
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        replace_folder(run / MODEL, half, own_entries(MODEL))
    assert contents(run) == before


@pytest.mark.parametrize("name", [MODEL, ".partial-model", ".partial-older-model"])
def test_links_and_files_under_its_names_are_refused_and_stay(tmp_path: Path, name: str) -> None:
    run, elsewhere = begin(tmp_path / "run", False), tmp_path / "elsewhere"
    elsewhere.mkdir()
    makes: tuple[Callable[[Path], Any], ...] = (
        lambda path: path.symlink_to(elsewhere),
        lambda path: path.write_bytes(b"mine"),
    )
    for make in makes:
        make(run / name)
        with pytest.raises(CheckpointError, match=rf"{name} is a (link|file), wanted a folder; move it away"):
            replace_folder(run / MODEL, lambda place: written(place, b"new"), own_entries(MODEL))
        assert list(elsewhere.iterdir()) == []
        (run / name).unlink()


def test_a_new_run_removes_a_model_by_its_configuration_first(tmp_path: Path) -> None:
    """So a folder of which the rest is still there is not opened as a model."""
    removed = [path.name for path, _ in own_entries(MODEL)(begin(tmp_path / "run", True) / MODEL)]
    assert set(removed[:2]) == {"config.json", "tokenizer.json"}


@pytest.mark.parametrize("marked", [False, True])
def test_a_start_or_a_resumption_finishes_what_a_killed_process_left(tmp_path: Path, marked: bool) -> None:
    run = tmp_path / "run"
    run.mkdir()
    if marked:
        folder.mark(run, "text")
        folder.write_json(run / folder.ARGUMENTS, {"recipe": "text"})
        written_now, (partial, older) = run / MODEL, in_progress(run / MODEL)
        partial.mkdir()
        older.mkdir()
        written(partial, b"new")
        (older / "mine").write_bytes(b"mine")
        with folder.resuming(run):
            assert contents(written_now) == {**version(b"new"), "mine": b"mine"}
    else:
        in_progress(run / MODEL)[0].mkdir()
        written(in_progress(run / MODEL)[0], b"che")
        with folder.starting(run, "text", overwrite=False):
            folder.clear(run, "text")
    assert not any(path.name.startswith(".partial") for path in run.iterdir())


def test_a_folder_of_others_under_the_name_of_a_copy_is_no_folder_to_begin_in(tmp_path: Path) -> None:
    (tmp_path / ".partial-model").mkdir()
    (tmp_path / ".partial-model" / "mine").write_bytes(b"mine")
    with pytest.raises(CheckpointError, match=r"a folder with '\.partial-model', and no run of purestep"):
        folder.check_free(tmp_path, "text")


WRITER = """
import sys
from pathlib import Path
from purestep.runtime.effects.checkpoint.replace_folder import replace_folder
from purestep.runtime.effects.layout import own_entries
run = Path(sys.argv[1])
print("begun", flush=True)
for number in range(10**6):
    def write(place):
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            (place / name).write_bytes(str(number % 10).encode() * 1000)
    replace_folder(run / "model", write, own_entries("model"))
"""


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_a_whole_model_or_none(tmp_path: Path) -> None:
    for number in range(12):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(0.01 + 0.007 * number)
            child.kill()
        there = contents(tmp_path / MODEL)
        assert not there or len(there) == 3
        assert len({held[:1] for held in there.values()}) <= 1
        assert {len(held) for held in there.values()} <= {1000}
    finish_replacement(tmp_path / MODEL, own_entries(MODEL))
    assert [path.name for path in tmp_path.iterdir()] == [MODEL]
