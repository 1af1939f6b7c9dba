"""hurried: what it changes while it holds, it changes back, and the compiler writes the same C++ with it and without."""

import contextlib
import functools
import gc
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.codecache as codecache
import torch._inductor.cpu_vec_isa as features
from torch import Tensor

from purestep.core.scan import scan
from purestep.runtime.compile import program
from purestep.runtime.inductor import compile_speed, loop_codegen
from purestep.runtime.inductor.compile_speed import hurried
from purestep.runtime.inductor.replace_attributes import replace_attributes


@pytest.mark.parametrize("collects", [True, False])
def test_all_is_as_before_once_compiling_ended_or_failed(collects: bool) -> None:
    worker, before = codecache._worker_compile_cpp, gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with hurried():
            assert not gc.isenabled()
            assert codecache._worker_compile_cpp is not worker
        assert gc.isenabled() == collects
        with pytest.raises(ZeroDivisionError), hurried():
            raise ZeroDivisionError
        assert gc.isenabled() == collects
        assert codecache._worker_compile_cpp is worker
    finally:
        (gc.enable if before else gc.disable)()


def test_replaced_puts_back_after_a_failure_and_adds_no_names() -> None:
    class Owner:
        name = 1

    with contextlib.suppress(ZeroDivisionError), replace_attributes(Owner, {"name": 2, "other": 3}):
        assert Owner.name == 2
        assert not hasattr(Owner, "other")
        raise ZeroDivisionError
    assert Owner.name == 1


def test_a_value_is_computed_once_by_each_reader_of_a_loop_for_each_index() -> None:
    class Reader:
        pass

    computed = list[tuple[int, ...]]()

    def load(index: list[int]) -> int:
        computed.append(tuple(index))
        return len(computed)

    now = [Reader(), Reader()]
    make_loader = compile_speed._once_a_reader(lambda _: load, lambda: now[0])
    one, other = make_loader("operation"), make_loader("operation")
    assert (one([1]), other([1]), one([2]), one([1])) == (1, 1, 2, 1)
    now.reverse()
    assert one([1]) == 3
    now.reverse()
    assert (one([1]), computed) == (1, [(1,), (2,), (1,)])


NAMES = (r"(cpp_fused)_\w+?_(\d+)\b", r"(while_loop_body_graph|while_loop_cond_graph)(_\d+)*", r"\b(u)\d+(?=_raw|\b)")


def sources(folder: Path) -> set[str]:
    """A program's C++, its loop's and its kernels', without comments, bounds of counters, and numbers in names."""
    found = [path for end in ("main", "optimized") for path in folder.rglob(f"*.{end}.cpp")]
    texts = [
        path.read_text() for path in found if path.stat().st_size > 2
    ]  # not those that only build the headers early
    plain = [re.sub(r"^\s*//.*\n|^.*throw std::runtime_error.*\n", "", text, flags=re.MULTILINE) for text in texts]
    return {functools.reduce(lambda text, name: re.sub(name, r"\1", text), NAMES, text) for text in plain}


@pytest.mark.slow
@pytest.mark.parametrize("named", ["", "avx2", "default"])
def test_the_instruction_set_is_the_one_that_the_compiler_would_choose(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named:
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", named)
    with hurried():
        chosen = features.pick_vec_isa()
    assert features.valid_vec_isa_list is compile_speed.STOCK_FEATURES
    assert str(chosen) == str(features.pick_vec_isa())


def test_features_are_looked_at_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = list[int](), list[int]()

    def tested() -> list[Any]:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return []

    monkeypatch.setattr(compile_speed, "_usable_features", tested)
    monkeypatch.setattr(features, "x86_isa_checker", lambda: ["avx2"])
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: compile_speed._first_features(), range(8)))
    assert set(most) == {1}


def test_a_header_is_named_once_while_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()

    def precompile(header: str, command: str, **_: Any) -> str:
        made.append(f"{header} {command}")
        if command == "fails":
            raise ZeroDivisionError
        path = tmp_path / f"{len(made)}.h"
        path.touch()
        return str(path)

    monkeypatch.setattr(compile_speed, "STOCK_HEADER", precompile)
    monkeypatch.setattr(codecache, "_HEADER_DIR", str(tmp_path))
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: compile_speed._header_once("a.h", "plain"), range(8)))
    assert (paths, made) == ({str(tmp_path / "1.h")}, ["a.h plain"])
    (tmp_path / "1.h").unlink()
    assert compile_speed._header_once("a.h", "plain") == str(tmp_path / "2.h")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            compile_speed._header_once("a.h", "fails")
    assert made == ["a.h plain", "a.h plain", "a.h fails", "a.h fails"]


class Builder:
    """A builder of a header, by a command that succeeds or fails."""

    def __init__(self, target: Path, command: str) -> None:
        self.target, self.command = target, command

    def get_target_file_path(self) -> str:
        return str(self.target)

    def get_command_line(self) -> str:
        return f"{self.command} -o {self.target}"


def test_a_header_is_precompiled_beside_the_program_and_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        compile_speed, "_WANTED", {}
    )  # without the compiler's own, which take minutes on a busy machine
    good, bad = tmp_path / "good.h.gch", tmp_path / "bad.h.gch"
    for target, source in ((good, "/dev/null"), (bad, tmp_path / "absent")):
        compile_speed._side_by_side(str(tmp_path / "lock"), [Builder(target, f"sort {source}")])
    assert list(tmp_path.iterdir()) == []
    while compile_speed._WANTED:
        compile_speed._make_header()
    until = time.monotonic() + 60.0
    while list(tmp_path.iterdir()) != [good]:  # a thread of an earlier program may have taken one
        assert time.monotonic() < until
        time.sleep(0.01)
    compile_speed._side_by_side(str(tmp_path / "lock"), [Builder(good, "false")])
    assert compile_speed._WANTED == {}


@pytest.mark.slow
def test_the_compiler_writes_the_same_code_with_and_without_shortcuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fold(start: Tensor, rows: Tensor) -> Any:
        def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            carry = torch.tanh(carry @ row.reshape(8, 3)[:, None, 1:2].expand(8, 4, 2).flatten(1)) + row[::3]
            carry, inner = scan(lambda sum, part: (sum + part.mean(), sum[::2] * part[:4]), carry, row.reshape(4, 6))
            return carry, carry.reshape(4, 2).softmax(-1).sum(0) + inner.sum()

        return scan(step, start, rows)

    monkeypatch.setattr(loop_codegen, "multiplied", str)  # the kernel of products is linked by a shortcut
    stock, written = compile_speed._shortcuts, dict[str, set[str]]()
    start, rows = torch.linspace(-1, 1, 8), torch.linspace(-2, 2, 5 * 24).reshape(5, 24)
    results = []
    for name, shortcuts in (("with", stock), ("without", lambda: [])):
        monkeypatch.setattr(compile_speed, "_shortcuts", shortcuts)
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / name))
        results.append(program(fold)(start, rows))
        written[name] = sources(tmp_path / name)
    assert [len(text) > 1000 for text in written["with"]] == [True, True]
    assert written["with"] == written["without"]
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


@pytest.mark.slow
def test_a_result_of_three_tensors_that_is_read_again_is_stored_if_it_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.minimum(a, b * c)
        return value.flip(0) - 1, value.flip(1) + 1  # read at other places, so in loops of their own

    minima = dict[tuple[int, int], int]()
    for rows in (8, 2048):
        given = [torch.linspace(-1, end, rows * 16).reshape(rows, 16) for end in (1.0, 2.0, 3.0)]
        for limit in (0, compile_speed.SMALL):
            folder = tmp_path / f"{rows}-{limit}"
            monkeypatch.setattr(compile_speed, "SMALL", limit)
            monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
            found, wanted = program(both)(*given), both(*given)
            torch.testing.assert_close(found, wanted)
            minima[rows, limit] = sum(
                len(re.findall(r"minimum\(|min_propagate_nan\(", text)) for text in sources(folder)
            )
    small, large = ([minima[rows, limit] for limit in (0, 1 << 16)] for rows in (8, 2048))
    assert large[0] == large[1] == small[0] > small[1] > 0
