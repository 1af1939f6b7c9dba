"""Several ranks make the updates that one process makes; what they hold goes on in other worlds; a death ends all."""

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import frozen

from purestep.core.errors import ChoiceError
from purestep.core.optim.optimizers import adamw, apply_updates
from purestep.core.record import replace
from purestep.runtime.effects.distributed import launched, process_group
from purestep.runtime.effects.distributed.process_group import (
    ProcessGroup,
    RankError,
    gather_tensor,
    join_processes,
    on_ranks,
    same_on_all,
    shared,
    summed,
)
from purestep.runtime.effects.distributed.torch_optimizer import torch_optimizer

from ...support.programs import World

pytest.importorskip("transformers")

PAGE = Path(__file__).parents[3] / "docs" / "ranks.md"
NAMED = (
    *(
        "effects.distributed.shard",
        "effects.distributed.torch_optimizer",
        "effects.distributed.learner",
        "effects.distributed.driver",
    ),
    *("distributed.partition", "distributed.clip", "distributed.simulated_ranks"),
)
PROGRAM = Path(__file__).parents[2] / "support" / "ranks_program.py"
CLOSE = 1e-12  # of numbers in float64, in another order of sums
LOOSE = {"bfloat16": 0.05}  # of gradients that were computed so
AGAIN = 1e-6  # of losses that were computed in another world
LINE = re.compile(
    r"ranks: rank \d is without another in training \(.*\), wanted all \d at work; start all of them again .*\n"
)


@frozen
class Ended:
    """What became of the processes of a world."""

    codes: tuple[int, ...]
    told: tuple[str, ...]  # on their standard errors


def started(size: int, *words: object) -> Ended:
    """The program on so many ranks, at their end."""
    codes, told = zip(*World(size, *words, module=PROGRAM.stem, strict=True).ended(), strict=True)
    return Ended(codes, told)


def found(folder: Path, size: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"found{rank}.json").read_text()) for rank in range(size)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("two")
    ended = started(2, "quick", folder)
    assert (folder / "found0.json").exists(), ended.told
    return ended, found(folder, 2)


def equal_to_one_process(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        numbers = {name: value for name, value in row.items() if isinstance(value, float)}
        assert not {name: value for name, value in numbers.items() if not value < LOOSE.get(name, CLOSE)}
    assert len({json.dumps(row) for row in rows}) == 1


# --- two ranks, started once ---


@pytest.mark.slow
def test_gradients_and_updates_are_those_of_one_process(two: tuple[Ended, list[dict[str, Any]]]) -> None:
    equal_to_one_process(two[1])
    kinds = {name.split()[0] for name in two[1][0]}
    assert {"gradient", "updates", "restored", "shared"} <= kinds


@pytest.mark.slow
def test_another_batch_is_refused_on_all_ranks(two: tuple[Ended, list[dict[str, Any]]]) -> None:
    assert {row["refused"] for row in two[1]} == {
        "here is another on rank 1 than on rank 0, wanted the same on all ranks; pass the same"
    }


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_others_with_one_line(two: tuple[Ended, list[dict[str, Any]]]) -> None:
    ended, _ = two
    assert ended.codes == (1, -signal.SIGKILL)
    assert LINE.fullmatch(ended.told[0]), ended.told[0]


# --- a process alone ---


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_a_process_that_nobody_launched_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)
    seen = []

    def body(ranks: ProcessGroup) -> None:
        value = torch.tensor([2.0])
        same_on_all("here", ranks, value, "never")
        seen.append((ranks.rank, ranks.size, gather_tensor(ranks, value), summed(ranks, value), shared(ranks, value)))

    assert on_ranks(body, device="cpu") == 0
    assert seen == [(0, 1, [torch.tensor([2.0])], torch.tensor([2.0]), torch.tensor([2.0]))]


def test_half_a_launcher_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with (
        pytest.raises(ChoiceError, match="WORLD_SIZE is not set, wanted set; start it with torchrun"),
        join_processes(device="cpu"),
    ):
        pass


SOUND = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("RANK", "x", "from 0 to 1"),
        ("RANK", "5", "from 0 to 1"),
        ("RANK", "-1", "from 0 to 1"),
        ("WORLD_SIZE", "0", "from 1 on"),
        ("WORLD_SIZE", "two", "from 1 on"),
        ("MASTER_PORT", "x", "from 1 to 65535"),
        ("MASTER_PORT", "65536", "from 1 to 65535"),
    ],
)
def test_what_a_launcher_cannot_mean_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, wanted: str
) -> None:
    for one, said in {**SOUND, name: value}.items():
        monkeypatch.setenv(one, said)
    line = rf"^joined: {name} is '?{value}'?, wanted a whole number {wanted}; start it with torchrun, or set RANK, .*$"
    with pytest.raises(ChoiceError, match=line), join_processes(device="cpu"):
        pass


@pytest.mark.parametrize(
    ("rank", "line"),
    [
        ("0", r"^ranks: MASTER_PORT is \d+, which another program has taken, wanted a free port; choose another "),
        pytest.param(
            "1",
            r"^ranks: rank 1 is without an answer from 127\.0\.0\.1:\d+, where something listens, wanted rank 0 there; ",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_port_that_another_program_has_taken_is_named(monkeypatch: pytest.MonkeyPatch, rank: str, line: str) -> None:
    """Whoever is not rank 0 is connected to what never answers; torch alone would wait without end."""
    monkeypatch.setattr(process_group, "GRACE", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for name, value in {**SOUND, "RANK": rank, "MASTER_PORT": str(taken.getsockname()[1])}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(RankError, match=line) as caught, join_processes(timeout=1.0, device="cpu"):
            pass
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(RankError, match=r"^ranks: rank 0 is without another while they met"),
        join_processes(timeout=1.0, device="cpu"),
    ):
        pass


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_time_out_is_positive(timeout: float) -> None:
    with pytest.raises(ChoiceError, match="joined: timeout"), join_processes(timeout=timeout):
        pass


def test_an_error_of_the_body_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)

    def body(ranks: ProcessGroup) -> None:
        raise RuntimeError("the connection of ideas")

    with pytest.raises(RuntimeError, match=r"^the connection of ideas$"):
        on_ranks(body, device="cpu")


KEEPS = """
import sys, time
from pathlib import Path
from purestep.core.errors import ChoiceError
from purestep.runtime.effects.distributed.process_group import on_ranks

def of_gloo():
    return sum("gloo" in place.read_text() for place in Path("/proc/self/task").glob("*/comm"))

def body(ranks):
    kept.append(ranks)
    until = time.monotonic() + 60
    while not of_gloo():  # threads name themselves
        assert time.monotonic() < until
        time.sleep(0.01)
    if len(kept) == 2:
        raise ChoiceError("no")

kept = []
found = [(on_ranks(body, device="cpu"), of_gloo()) for _ in range(2)]
sys.exit(str(found) if found != [(0, 0), (1, 0)] else 0)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no list of threads")
@pytest.mark.slow
def test_gloos_threads_end_with_the_world_whatever_is_kept_of_it() -> None:
    """A process that takes itself apart while one of them lets go of a tensor is aborted."""
    own = {name: value for name, value in os.environ.items() if name not in launched.SET}
    ended = subprocess.run([sys.executable, "-c", KEEPS], env=own, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "no\n")


def test_what_purestep_refuses_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone(monkeypatch)

    def body(ranks: ProcessGroup) -> None:
        raise ChoiceError("budget is 0, wanted at least 1; pass a positive number")

    assert on_ranks(body, device="cpu") == 1
    assert capsys.readouterr().err == "budget is 0, wanted at least 1; pass a positive number\n"


def test_torchs_adamw_as_a_value_is_our_own() -> None:
    params = {
        "a": torch.linspace(-1.0, 1.0, 6, dtype=torch.float64).reshape(2, 3),
        "b": torch.ones(2, dtype=torch.float64),
    }
    start = {name: value.clone() for name, value in params.items()}
    theirs = torch_optimizer(lambda each: torch.optim.AdamW(each, lr=0.1, weight_decay=0.2))
    ours, one, other = adamw(0.1, weight_decay=0.2), params, params
    state, mine = theirs.init(params), adamw(0.1, weight_decay=0.2).init(params)
    for step in range(3):
        gradients = {name: (value + step).cos() for name, value in start.items()}
        updates, state = theirs.update(gradients, state, one)
        own, mine = ours.update(gradients, mine, other)
        one, other = apply_updates(one, updates), apply_updates(other, own)
    for name, value in start.items():
        torch.testing.assert_close(one[name], other[name], rtol=1e-12, atol=1e-12)
        assert torch.equal(params[name], value)
    assert set(state.slots[0]) == {"step", "exp_avg", "exp_avg_sq"}


# --- the page ---


def block() -> str:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(code)


def test_the_page_names_what_there_is() -> None:
    """Its imports, and everything it names in code."""
    exec("\n".join(line for line in block().splitlines() if line.startswith(("import ", "from "))), {})
    modules = [importlib.import_module(f"purestep.runtime.{name}") for name in NAMED]
    known = {name for module in modules for name in vars(module)}
    called = set(re.findall(r"`(?:\w+=)?(\w+)\(", PAGE.read_text())) | {
        "clip_by_whole_norm",
        "by_tokens",
        "by_batches",
        "deal_sequences",
    }
    assert called - known == {"gather_shards"} - known
    assert {"simulated_ranks", "spread_state", "torch_optimizer", "gather_shards"} <= called


@pytest.mark.slow
def test_the_program_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    seen: list[int] = []

    def sampled(number: int) -> Any:
        seen.append(number)
        said = importlib.import_module(PROGRAM.stem).transcripts(0)
        return said if number < 2 else replace(said, is_action=torch.zeros_like(said.is_action))

    with pytest.raises(SystemExit, match=r"^0$"):
        exec(block(), {"sampled": sampled})
    assert seen == list(range(100))


# --- more ranks ---


@pytest.mark.slow
@pytest.mark.parametrize(("size", "much"), [(3, "checks"), (4, "quick")])
def test_more_ranks_than_are_even_do_the_same(size: int, much: str, tmp_path: Path) -> None:
    ended = started(size, much, tmp_path)
    assert (tmp_path / "found0.json").exists(), ended.told
    equal_to_one_process(found(tmp_path, size))
    assert ended.codes == (*[1] * (size - 1), -signal.SIGKILL)
    assert all(LINE.fullmatch(told) for told in ended.told[:-1])


@pytest.mark.slow
def test_a_rank_that_says_nothing_is_taken_for_gone(tmp_path: Path) -> None:
    ended = started(2, "late", tmp_path)
    assert ended.codes == (1, 1)
    assert all(LINE.fullmatch(told) for told in ended.told), ended.told
    assert not list(tmp_path.iterdir())


def by_torchrun(size: int, *words: object) -> None:
    """The program as its users start it; raises where it does not end with 0."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(size),
        str(PROGRAM),
    ]
    usual = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run([*command, *map(str, words)], env=usual, check=True, capture_output=True, timeout=600)


@pytest.mark.slow
def test_a_run_resumed_in_other_worlds_never_stopped(tmp_path: Path) -> None:
    """20 updates on one rank, and the same on 2 ranks, then 3, then 1, from sharded checkpoints, in float32."""
    losses = []
    for name, plan in {"whole": [(1, 0, 20)], "pieces": [(2, 0, 7), (3, 7, 13), (1, 13, 20)]}.items():
        folder = tmp_path / name
        folder.mkdir()
        for size, first, last in plan:
            if size == 2:
                by_torchrun(size, "piece", folder, first, last)
            else:
                assert set(started(size, "piece", folder, first, last).codes) == {0}
        losses.append([float(line) for line in (folder / "losses").read_text().split()])
    whole, pieces = losses
    assert len(whole) == len(pieces) == 20
    assert len(set(whole)) == 20
    assert max(abs(a - b) / abs(b) for a, b in zip(pieces, whole, strict=True)) < AGAIN
