"""Streams in files: what is published is there at once, whole, once, and after any crash."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from purestep.core.errors import ChoiceError, StructureError
from purestep.properties.framework.crash import Crash, CrashingFiles
from purestep.runtime.effects.checkpoint.atomic_files import DISK
from purestep.runtime.effects.jsonl_stream import StreamEntry, StreamReading, read_entries, writer

ROWS: list[dict[str, Any]] = [{"text": "{5} \n é", "reward": 0.5}, {"text": "6", "ids": (1, 2)}]
READ = ({"text": "{5} \n é", "reward": 0.5}, {"text": "6", "ids": [1, 2]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "rollouts.jsonl"


def test_entries_are_lines_that_can_be_read_while_more_are_written(path: Path) -> None:
    assert read_entries(path) == StreamReading((), 0)
    with writer(path) as publish:
        publish(3, ROWS)
        assert read_entries(path).entries == (StreamEntry(3, READ),)
        assert path.read_text().count("\n") == 2
        publish(0, ROWS[:1])
        assert read_entries(path).entries == (StreamEntry(3, READ), StreamEntry(0, READ[:1]))


def test_what_is_there_already_is_passed_over_also_by_the_next_writer(path: Path) -> None:
    for _ in range(2):
        with writer(path) as publish:
            publish(0, ROWS)
            publish(1, ROWS)
            publish(0, [{"text": "other"}])
    assert [entry.number for entry in read_entries(path).entries] == [0, 1]


@pytest.mark.slow
def test_an_entry_that_is_being_written_is_left_for_later(path: Path) -> None:
    with writer(path) as publish:
        publish(0, ROWS)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert read_entries(path) == StreamReading((), 0)
        with writer(path) as publish:
            publish(5, ROWS[:1])
        assert read_entries(path).entries == (StreamEntry(5, READ[:1]),)
    path.write_bytes(whole)
    assert read_entries(path) == StreamReading((StreamEntry(0, READ),), len(whole))


OPERATIONS = 8  # of a run without a crash: a folder, its sync, and two for each entry


@pytest.mark.parametrize("operations", range(OPERATIONS + 1))
@pytest.mark.parametrize(("torn", "forgets"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_crash_leaves_entries_whole_and_the_next_run_completes_them(
    path: Path, operations: int, torn: bool, forgets: bool
) -> None:
    fragile = CrashingFiles(operations, torn=torn, forgets=forgets)
    published = []
    expected: Any = nullcontext() if operations == OPERATIONS else pytest.raises(Crash)
    with expected, writer(path, files=fragile.files) as publish:
        for number in range(3):
            publish(number, ROWS)
            published.append(number)
    fragile.power_fails()
    there = [entry.number for entry in read_entries(path).entries]
    assert there[: len(published)] == published
    assert all(entry.rows == READ for entry in read_entries(path).entries)
    with writer(path) as publish:
        for number in range(3):
            publish(number, ROWS)
    assert [entry.number for entry in read_entries(path).entries] == [0, 1, 2]


def test_behind_a_write_that_failed_nothing_more_is_written(path: Path) -> None:
    def full(path: Path, data: bytes) -> None:
        DISK.append(path, data[:9])
        raise OSError("no space left on device")

    with writer(path, files=evolve(DISK, append=full)) as publish:
        with pytest.raises(OSError, match="no space"):
            publish(0, ROWS)
        with pytest.raises(
            ChoiceError, match=r"stream rollouts.jsonl: state is unknown, as a write failed, .*; open it anew"
        ):
            publish(1, ROWS)
    assert read_entries(path).entries == ()


@pytest.mark.parametrize(
    ("number", "rows", "error", "match"),
    [
        (-1, ROWS, ChoiceError, "stream rollouts.jsonl: number is -1"),
        (0, [], ChoiceError, "stream rollouts.jsonl: rows is none"),
        (0, [{"last": 1}], ChoiceError, r"stream rollouts.jsonl: names is \['last'\]"),
        (0, [{"text": "x" * 99}], ChoiceError, r"entry 0 is \d+ bytes, wanted at most 99; raise the bound"),
        (0, [{"text": b""}], StructureError, r"encode: entry 0\['text'\] is bytes"),
    ],
)
def test_what_cannot_be_published_is_refused_and_leaves_the_file_as_it_is(
    path: Path, number: int, rows: Any, error: type[Exception], match: str
) -> None:
    with writer(path, most=99) as publish:
        with pytest.raises(error, match=match) as caught:
            publish(number, rows)
        assert "\n" not in str(caught.value)
        publish(0, [{"text": "6"}])
    assert [entry.rows for entry in read_entries(path).entries] == [({"text": "6"},)]


@pytest.mark.parametrize("text", ["5\n", "{}\n", '{"entry":0}\n', "[]\n", "hm\n"])
def test_a_file_of_something_else_is_named(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(StructureError, match=r"stream rollouts.jsonl: a line is"):
        read_entries(path)
