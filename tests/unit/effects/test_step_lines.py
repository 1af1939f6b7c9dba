"""Files of steps: whole steps, each once, at most so many bytes, and a disk without space ends nothing."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from purestep.core.errors import CheckpointError
from purestep.runtime.effects.checkpoint.atomic_files import DISK, Files
from purestep.runtime.effects.step_lines import Write, step_lines

ROW = {"text": "a" * 20}
BYTES = len('{"step":1,"text":"' + "a" * 20 + '"}\n')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.jsonl"


def begun(path: Path, said: list[str], *, last: int = 0, most: int = 1 << 20, files: Files = DISK) -> Write:
    return step_lines(path, last=last, most=most, setting="--bytes 9", notice=said.append, files=files)


def steps(path: Path) -> list[int]:
    return [json.loads(text)["step"] for text in path.read_text().splitlines()]


def test_nothing_is_made_before_a_step_is_written(path: Path) -> None:
    write = begun(path, [])
    write(1, [])
    assert not path.exists()
    write(1, [ROW, ROW])
    assert path.read_bytes() == (json.dumps({"step": 1, **ROW}, separators=(",", ":")) + "\n").encode() * 2


@pytest.mark.parametrize("last", range(5))
def test_steps_that_come_again_are_there_once(path: Path, last: int) -> None:
    write = begun(path, [])
    for step in range(1, 5):
        write(step, [ROW, ROW])
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"step":5,"te')
    write = begun(path, [], last=last)
    assert steps(path) == [step for step in range(1, last + 1) for _ in range(2)]
    for step in range(last + 1, 5):
        write(step, [ROW, ROW])
    assert path.read_bytes() == whole


def test_what_it_did_not_write_stays(path: Path) -> None:
    path.write_bytes(b"mine\n")
    begun(path, [])(1, [ROW])
    assert path.read_bytes().startswith(b'mine\n{"step":1,')


@pytest.mark.parametrize("rows", [1, 3])
def test_the_oldest_steps_make_room_and_steps_stay_whole(path: Path, rows: int) -> None:
    said: list[str] = []
    most = 10 * BYTES
    write = begun(path, said, most=most)
    for step in range(1, 10):
        write(step, [ROW] * rows)
        there = steps(path)
        assert path.stat().st_size <= most
        assert there == [each for each in range(there[0], step + 1) for _ in range(rows)]
    notice = "conversations.jsonl: --bytes 9 is reached, so that the oldest steps are removed from now on"
    assert (steps(path)[0], said) == ((1, []) if rows == 1 else (7, [notice]))


def test_a_step_that_is_too_long_is_left_out_with_one_notice(path: Path) -> None:
    said: list[str] = []
    write = begun(path, said, most=2 * BYTES)
    for step in (1, 2, 3):
        write(step, [ROW] * (1 if step == 2 else 3))
    assert steps(path) == [2]
    assert said == [
        "conversations.jsonl: a step of more bytes than --bytes 9 allows is left out, the first of them step 1"
    ]


def full(after: int, path: Path) -> Files:
    """Files of a disk that has no space left after this many bytes of the file: it takes a part of the next piece."""

    def append(place: Path, data: bytes) -> None:
        there = sum(one.stat().st_size for one in path.parent.iterdir())
        DISK.append(place, data[: max(0, after - there)])
        if there + len(data) > after:
            raise OSError(errno.ENOSPC, "No space left on device")

    return evolve(DISK, append=append)


def test_a_full_disk_gives_one_notice_and_leaves_whole_steps(path: Path) -> None:
    said: list[str] = []
    write = begun(path, said, files=full(5 * BYTES, path))
    for step in (1, 2, 3, 4):
        write(step, [ROW, ROW])
    assert steps(path) == [1, 1, 2, 2]
    (notice,) = said
    assert notice.startswith("conversations.jsonl: no more steps are written (OSError: ")
    assert notice.endswith("No space left on device); training goes on without them")
    begun(path, said, last=2)(3, [ROW])
    assert steps(path) == [1, 1, 2, 2, 3]


def test_a_disk_that_is_full_while_room_is_made_keeps_what_there_is(path: Path) -> None:
    said: list[str] = []
    write = begun(path, said, most=4 * BYTES, files=full(5 * BYTES, path))
    for step in (1, 2, 3, 4, 5, 6):
        write(step, [ROW])
    assert steps(path) == [1, 2, 3, 4]
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert len(said) == 2


@pytest.mark.parametrize("make", ["folder", "link"])
def test_something_else_under_its_name_is_refused(path: Path, make: str) -> None:
    if make == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.parent / "mine.txt")
        (path.parent / "mine.txt").write_text("mine\n")
    with pytest.raises(CheckpointError, match="wanted a file"):
        begun(path, [])
    assert make == "folder" or (path.parent / "mine.txt").read_text() == "mine\n"


def test_a_folder_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    said: list[Any] = []
    begun(tmp_path / "gone" / "conversations.jsonl", said)(1, [ROW])
    assert len(said) == 1
    assert not (tmp_path / "gone").exists()
