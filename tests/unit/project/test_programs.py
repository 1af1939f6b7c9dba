"""Waits for programs end, and what benchmarks start is gone at their end, whatever happens."""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ...support.engine_contract import left
from ...support.engine_spaces import spaces
from ...support.programs import END, first_line, until

ROOT = Path(__file__).parents[3]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    pytest.importorskip("transformers", reason="the extra llm is not installed")
    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def test_a_wait_fails_with_what_it_waited_for() -> None:
    with pytest.raises(AssertionError, match="0 s and not yet: it rains; it said: dry"):
        until(lambda: False, "it rains", seconds=0.1, said=lambda: "dry")
    with pytest.raises(AssertionError, match="it ended before it rains; it said: dry"):
        until(lambda: False, "it rains", alive=lambda: False, said=lambda: "dry")
    rain = list[str]()

    def ends_with_it() -> bool:
        rain.append("drop")
        return False

    until(lambda: bool(rain), "it rains", alive=ends_with_it)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("pass", "says nothing and ends"),
        pytest.param("import time; time.sleep(60)", "says nothing for 1 s", marks=pytest.mark.slow),
        ("print(7)", ""),
    ],
)
def test_the_first_line_is_there_in_time_or_it_is_told(program: str, said: str) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            if said:
                with pytest.raises(AssertionError, match=said):
                    first_line(process, 1.0 if "sleep" in program else END)
            else:
                assert first_line(process) == "7"
        finally:
            process.kill()


RANK = """
import os, pathlib, subprocess
started = subprocess.Popen(["sleep", "60"])
part = pathlib.Path("{place}", "part" + os.environ["RANK"])
part.write_text(f"{{os.getpid()}} {{started.pid}}")
part.rename(part.with_name("rank" + os.environ["RANK"]))
if os.environ["RANK"] == "{fails}":
    started.kill()
    raise ValueError
started.wait()
"""


@pytest.mark.parametrize("fails", ["", "1"])
def test_ranks_of_a_benchmark_do_not_outlive_it(
    benchmark: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Nor does what they have started; where one fails the others, which would wait for it, are ended and it is told."""
    ranks_recipe, pids = benchmark("machines.ranks_recipe"), list[int]()
    monkeypatch.setattr(ranks_recipe, "GRACE", 0.1)
    words = ("timeit", "-n1", "-r1", RANK.format(place=tmp_path, fails=fails))
    raised = pytest.raises(RuntimeError, match=r"ended with \[None, 1\]") if fails else pytest.raises(KeyboardInterrupt)
    with raised, ranks_recipe.world(2, tmp_path / "log", *words) as world:
        until(lambda: len([*tmp_path.glob("rank*")]) == 2, "both ranks run", seconds=END)
        pids += [int(word) for path in tmp_path.glob("rank*") for word in path.read_text().split()]
        if fails:
            world.ended()
        raise KeyboardInterrupt
    assert len(pids) == 4
    assert left({*pids}) == set()


def test_namespaces_of_a_benchmark_are_gone_at_its_end(
    benchmark: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what runs there, and where the second one cannot be made."""
    with spaces(1):
        pass  # it is skipped here where they are not allowed
    engine_hosts, known = benchmark("parts.engine_hosts"), links()
    with engine_hosts.namespaces(1) as ((_, space),):
        inside = subprocess.Popen(["ip", "netns", "exec", space, "sleep", "60"], start_new_session=True)
        until(lambda: inside.pid in engine_hosts.running_in(space), "it is there", seconds=END)
    assert inside.wait(END) == -signal.SIGKILL
    join = engine_hosts._joined

    def refused(bridge: str, address: str, space: str) -> None:
        join(bridge, address, space)
        if space.endswith("1"):
            raise subprocess.CalledProcessError(1, "ip")

    monkeypatch.setattr(engine_hosts, "_joined", refused)
    with engine_hosts.namespaces(3) as places:
        assert [space for _, space in places] == [""] * 3
    until(lambda: links() == known, "all links are gone", seconds=END, said=links)


def links() -> set[str]:
    """The links and the namespaces of this machine that are benchmarks' of this process."""
    mark, found = f"{os.getpid() % 10000}", set[str]()
    for words in (("netns", "list"), ("-o", "-br", "link")):
        told = subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
        found |= {word for word in told.split() if word.startswith((f"pn{mark}", f"pb{mark}"))}
    return found
