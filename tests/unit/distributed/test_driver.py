"""One process leads and others follow: what is told arrives, what is refused is refused by all, and who is gone ends all."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.distributed import heartbeat
from purestep.runtime.effects.distributed.driver import Driver, led
from purestep.runtime.effects.distributed.heartbeat import Channel, alive
from purestep.runtime.effects.distributed.process_group import ProcessGroup, RankError, join_processes

PROGRAM = Path(__file__).parents[2] / "support" / "leading_program.py"
SIZE = 3
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[int, ...], Found]:
    """Exit codes and what was found on three processes that went through all worlds."""
    folder = tmp_path_factory.mktemp("three")
    words = [sys.executable, "-W", "error", str(PROGRAM)]
    usual = {**os.environ, "OMP_NUM_THREADS": "1"}
    each = [
        subprocess.Popen([*words, str(rank), str(folder)], env=usual, stderr=subprocess.PIPE, text=True)
        for rank in range(SIZE)
    ]
    try:
        told = [one.communicate(timeout=300)[1] for one in each]
    finally:
        for one in each:
            one.kill()
    paths = [folder / f"found{rank}.json" for rank in range(SIZE)]
    assert all(path.exists() for path in paths), told
    return tuple(one.returncode for one in each), [json.loads(path.read_text()) for path in paths]


@pytest.mark.slow
def test_what_is_told_is_done_by_all_in_one_order(three: tuple[tuple[int, ...], Found]) -> None:
    _, found = three
    assert found[0]["words"][:5] == ["cut", "add 2", "gather", "gather", "left 1"]
    assert found[0]["words"][5] == "refuse"
    assert sorted(found[0]["words"][6:15]) == ["add 1", *["together"] * 8]
    assert found[1]["words"] == found[2]["words"] == found[0]["words"]
    assert found[0]["each"] == [3.0 * own for own in range(8)], "words of several threads got mixed up"


@pytest.mark.slow
def test_shards_stay_where_they_are_and_come_back_whole(three: tuple[tuple[int, ...], Found]) -> None:
    first = three[1][0]
    assert first["divided"] == [True, False]
    assert first["more"] == 3.0
    assert first["gathered"] == {"a": [6.0, 7.0, 8.0, 9.0, 10.0], "b": 7.0}
    assert first["after"] == first["gathered"]["a"]


@pytest.mark.slow
def test_shards_that_the_first_forgets_are_forgotten_by_all(three: tuple[tuple[int, ...], Found]) -> None:
    first = three[1][0]
    assert (first["held"], first["known"]) == (2, 1)
    assert all("left 1" in one["words"] for one in three[1]), "shards that nobody needs are kept"


@pytest.mark.slow
def test_no_word_of_an_earlier_talk_is_heard(three: tuple[tuple[int, ...], Found]) -> None:
    """All that wait for one would be in the midst of a word, which they give up after a while, as long as none comes."""
    assert [one["thrice"] for one in three[1]] == [6, 6, 6]
    assert three[1][0]["there"] == [False, False, False]


@pytest.mark.slow
def test_the_exit_code_is_the_firsts_and_its_error_ends_all(three: tuple[tuple[int, ...], Found]) -> None:
    assert [one["talked"] for one in three[1]] == [7, 7, 7]
    assert [one["failed"] for one in three[1]] == ["ValueError: something else", 1, 1]


@pytest.mark.slow
def test_what_all_refuse_is_raised_and_what_one_refuses_ends_all(three: tuple[tuple[int, ...], Found]) -> None:
    assert three[1][0]["refused"] == "too much, wanted less; take less"
    for rank, one in enumerate(three[1]):
        said = "rank 1 is at another end of 'refuse' than rank 0"
        assert one["parted"].startswith(f"RankError: ranks: {said}"), one
        assert ("too much" in one["parted"]) == (rank == 1)


@pytest.mark.slow
def test_a_death_ends_those_that_are_left(three: tuple[tuple[int, ...], Found]) -> None:
    codes, found = three
    assert codes == (-signal.SIGKILL, 0, -signal.SIGKILL)
    for rank in (0, 1):
        assert found[rank]["lost"].startswith(f"RankError: ranks: rank {rank} is without another in training (")
    assert found[1]["orphaned"].startswith("RankError: ranks: rank 1 is without another ")  # in training, or meeting
    assert all("\n" not in found[1][name] for name in ("lost", "orphaned"))


@pytest.mark.slow
def test_a_death_ends_a_first_process_that_is_busy(three: tuple[tuple[int, ...], Found]) -> None:
    _, found = three
    said = "ranks: rank 0 is without a sign of rank 2 for 3 s, wanted one each 0 s; start all of them again"
    assert found[0]["deserted"].startswith(f"RankError: {said}")
    assert found[0]["over"].startswith(said), "words are told yet"
    assert found[1]["deserted"].startswith("RankError: ranks: rank 1 is without ")
    assert found[2]["killed"] == signal.SIGKILL


@pytest.mark.slow
def test_processes_whose_word_is_stuck_end_at_once(three: tuple[tuple[int, ...], Found]) -> None:
    """The connections of the one that stops stay, so that the word would hang for the 60 seconds of the world."""
    _, found = three
    said = "ranks: rank 0 is without a sign of rank 1 for 3 s, wanted one each 0 s; start all of them again"
    assert (found[0]["stuck"], found[2]["stuck"]) == (1, 1)
    assert found[0]["said"] == [f"{said} from the last checkpoint"]
    assert found[2]["said"][-1].startswith("ranks: rank 2 is without another in training (")  # torch may warn before


# --- a process alone ---


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("alone")
def test_a_process_alone_tells_itself() -> None:
    seen: list[Any] = []

    def program(lead: Driver) -> int:
        seen.append(lead.call("double", {"a": torch.tensor(2.0)}, 3))
        with pytest.raises(ChoiceError, match="call: word is 'other', wanted one of"):
            lead.call("other")
        with pytest.raises(ChoiceError, match="no"):
            lead.call("refuse")
        lead.start_call("double", 1, 2)
        lead.settled()
        lead.start_call("refuse")
        with pytest.raises(ChoiceError, match="no"):
            lead.settled()
        return 3

    def refuse() -> Any:
        raise ChoiceError("no")

    with join_processes(device="cpu") as ranks:
        assert led(ranks, {"double": lambda tree, number: (tree, 2 * number), "refuse": refuse}, program) == 3
    assert seen == [({"a": torch.tensor(2.0)}, 6)]


@pytest.mark.usefixtures("alone")
def test_nothing_is_told_after_something_went_wrong() -> None:
    def fault() -> Any:
        raise OSError("gone")

    with join_processes(device="cpu") as ranks, ThreadPoolExecutor(1) as pool:
        lead = Driver(ranks, {"fault": fault}, Channel(HashStore()), pool)
        with pytest.raises(OSError, match="gone"):
            lead.call("fault")
        with pytest.raises(RankError, match="ranks: rank 0 is in the middle of 'fault', wanted no more words"):
            lead.call("fault")


def ranks_of(rank: int) -> ProcessGroup:
    nowhere: Any = ()
    return ProcessGroup(rank=rank, size=2, device=torch.device("cpu"), mesh=nowhere, timeout=1.0)


def test_a_first_process_without_signs_of_life_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.005)
    monkeypatch.setattr(heartbeat, "MISSED", 3)
    silent = Channel(HashStore())
    silent.beat(0, 0)
    with pytest.raises(RankError, match="ranks: rank 1 is without a sign of rank 0 for 0 s"):
        silent.awaited(1, ranks_of(1))


def test_a_store_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.005)
    monkeypatch.setattr(heartbeat, "MISSED", 3)
    told, released, errors = threading.Event(), threading.Event(), list[RankError]()

    class Vanished:
        """A store whose host is gone without a word, until it is back."""

        def set(self, name: str, value: str) -> None:
            released.wait()

        def check(self, names: list[str]) -> bool:
            return False

    def lost(error: RankError) -> None:
        errors.append(error)
        told.set()

    with alive(Channel(Vanished()), ranks_of(1), lost):
        assert told.wait(60.0)
        released.set()
    assert [str(error).split(",")[0] for error in errors] == [
        "ranks: rank 1 is without an answer of where all have met for 0 s"
    ]


def test_a_first_process_that_shows_signs_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.005)
    monkeypatch.setattr(heartbeat, "MISSED", 3)
    seen: list[str] = []

    class Beating:
        """A store in which each look at the signs of life finds another one, and the word comes after ten."""

        def check(self, names: list[str]) -> bool:
            return names != ["1"] or len(seen) >= 10

        def get(self, name: str) -> bytes:
            seen.append(name)
            return str(len(seen)).encode()

    Channel(Beating()).awaited(1, ranks_of(1))
    assert len(seen) == 10
