"""Artefacts that this user's secret seals: nothing of another's is unpickled, and none of another function is used."""

import functools
import os
import pickle
import re
import stat
import tempfile
import types
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from attrs import frozen
from torch import Tensor
from torch._inductor import codecache

from purestep.core import keys
from purestep.core.errors import CompileError
from purestep.core.probes import probe, probed
from purestep.core.scan import scan
from purestep.properties import check
from purestep.runtime.compile import program
from purestep.runtime.files.secret import NAME, is_private, private_folder, secret_in
from purestep.runtime.identity import UnknownError, identity
from purestep.runtime.inductor import ahead_of_time
from purestep.runtime.inductor.ahead_of_time import keep_to_oneself

from ...laws.runtime.identity import identity_laws

test_identity = check(identity_laws(), identity)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "purestep"


def scaled(factor: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: factor * x


def eager(function: Callable[..., Any], where: Path) -> Any:
    return program(function, name="it", artefact=where, backend="aot_eager")


def test_an_edited_constant_or_closure_is_compiled_anew(tmp_path: Path) -> None:
    where, x = tmp_path / "it", torch.ones(2)
    assert eager(scaled(2), where)(x).tolist() == [2.0, 2.0]
    again = eager(scaled(2), where)
    assert again(x).tolist() == [2.0, 2.0]
    assert again.loaded
    for function, wanted in ((scaled(3), 3.0), (lambda x: x + 1, 2.0), (lambda x: x + 2, 3.0)):
        other = eager(function, where)
        with pytest.warns(UserWarning, match="of another function"):
            assert other(x).tolist() == [wanted] * 2
        assert not other.loaded


class Bomb:
    """Makes a folder where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kept", [0, 32, 96])
def test_what_another_has_written_is_not_unpickled(tmp_path: Path, kept: int) -> None:
    where = tmp_path / "it"
    eager(scaled(2), where)(torch.ones(2))
    where.write_bytes(where.read_bytes()[:kept] + pickle.dumps(Bomb(tmp_path / "made")) + b" " * 96)
    again = eager(scaled(2), where)
    with pytest.warns(UserWarning, match="damaged, or not written by you"):
        assert again(torch.ones(2)).tolist() == [2.0, 2.0]
    assert not (tmp_path / "made").exists()


def test_without_a_secret_of_ones_own_nothing_is_loaded_or_kept(tmp_path: Path, own_cache: Path) -> None:
    where = tmp_path / "it"
    eager(scaled(2), where)(torch.ones(2))
    before = where.read_bytes()
    (own_cache / NAME).chmod(0o644)
    again = eager(scaled(2), where)
    with pytest.warns(UserWarning, match="is no file of yours alone"):
        assert again(torch.ones(2)).tolist() == [2.0, 2.0]
    assert not again.loaded
    assert where.read_bytes() == before
    (own_cache / NAME).unlink()
    other = eager(scaled(2), where)  # another secret: what the old one sealed is nobody's
    with pytest.warns(UserWarning, match="not written by you"):
        other(torch.ones(2))


def test_an_endless_artefact_is_no_wait(tmp_path: Path) -> None:
    where = tmp_path / "it"
    os.mkfifo(where)
    with pytest.warns(UserWarning, match="a FIFO"):
        assert eager(scaled(2), where)(torch.ones(2)).tolist() == [2.0, 2.0]


def test_what_cannot_be_described_is_not_kept(tmp_path: Path) -> None:
    generator = torch.Generator()

    def drawing(x: Tensor) -> Tensor:
        return x if generator is None else 2 * x

    with pytest.warns(UserWarning, match=r"generator.*Generator.*wanted something that can be described"):
        assert eager(drawing, tmp_path / "it")(torch.ones(2)).tolist() == [2.0, 2.0]
    assert not (tmp_path / "it").exists()


def test_a_secret_is_made_once_and_is_ones_own(tmp_path: Path) -> None:
    secret = secret_in(tmp_path)
    assert secret is not None
    assert len(secret) == 32
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert secret_in(tmp_path) == secret
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def fifo_in_its_place(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.chmod(0o640),
        lambda path: path.write_bytes(b"short"),
        lambda path: (path.rename(path.with_name("real")), path.symlink_to("real")),
        fifo_in_its_place,
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), path.symlink_to("nowhere")),
    ],
)
def test_a_secret_that_others_may_know_is_none(tmp_path: Path, harm: Callable[[Path], Any]) -> None:
    secret_in(tmp_path)
    harm(tmp_path / NAME)
    assert secret_in(tmp_path) is None
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_secret_or_a_folder_of_somebody_elses_is_none(tmp_path: Path) -> None:
    secret_in(tmp_path)
    os.chown(tmp_path / NAME, 65534, 65534)
    assert secret_in(tmp_path) is None
    (tmp_path / "folder").mkdir(mode=0o700)
    assert is_private(tmp_path / "folder")
    os.chown(tmp_path / "folder", 65534, 65534)
    assert private_folder(tmp_path / "folder", tmp_path / "own") == tmp_path / "own"


def test_the_compiler_builds_where_nobody_else_can_write(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_HEADER_DIR", "_HEADER_LOCK_DIR"):
        monkeypatch.setattr(codecache, name, "", raising=False)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr(ahead_of_time, "default_cache_dir", lambda: "/tmp/torchinductor_victim")
    monkeypatch.setattr(tempfile, "tempdir", str(own_cache))
    keep_to_oneself()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(own_cache / "inductor")
    assert is_private(own_cache / "inductor")
    (own_cache / "inductor").chmod(0o777)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/tmp/torchinductor_victim")  # as torch sets it, where it is first
    keep_to_oneself()
    other = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    assert other not in (own_cache / "inductor", Path("/tmp/torchinductor_victim"))
    assert is_private(other)
    other.rmdir()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(own_cache / "named"))
    keep_to_oneself()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(own_cache / "named")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(own_cache / "of two words"))
    with pytest.raises(CompileError, match="wanted a path without spaces, which PyTorch does not quote; name another"):
        keep_to_oneself()


def test_a_cache_with_a_space_in_its_path_is_not_the_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_HEADER_DIR", "_HEADER_LOCK_DIR"):
        monkeypatch.setattr(codecache, name, "", raising=False)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two words"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keep_to_oneself()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / f"purestep-{os.geteuid()}")
    assert is_private(tmp_path / f"purestep-{os.geteuid()}")


def test_backend_none_calls_the_function_itself() -> None:
    calls: list[int] = []

    def noted(x: Tensor, n: Tensor) -> Tensor:
        calls.append(1)
        return x * n

    plain = program(noted, backend="none")
    for n in (2.0, 3.0):
        assert plain(torch.ones(2), torch.tensor(n)).tolist() == [n, n]
    assert len(calls) == 2
    assert plain.seconds == []


def test_an_identity_refuses_what_looks_things_up_by_itself() -> None:
    for function in (lambda x: eval("x"), lambda x: vars(x), lambda x: globals()):
        with pytest.raises(UnknownError, match="a call of"):
            identity(function)


FACTOR = ContextVar("factor", default=2)


def test_the_value_of_a_context_variable_is_part_of_an_identity() -> None:
    def scaled_by_context(x: Tensor) -> Tensor:
        return x * FACTOR.get()

    before = identity(scaled_by_context)
    token = FACTOR.set(3)
    try:
        assert identity(scaled_by_context) != before
    finally:
        FACTOR.reset(token)
    assert identity(scaled_by_context) == before


def test_functions_with_scans_and_probes_have_an_identity() -> None:
    run = probed(lambda x: scan(lambda total, row: (probe("row", total + row), row), x, x[None]))
    assert identity(run) == identity(run)


def test_pickle_leaves_the_identity_as_it_was() -> None:
    class Factor:
        number = 2

    before = identity(scaled(Factor()))
    Factor().__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    assert "__slotnames__" in vars(Factor)
    assert identity(scaled(Factor())) == before


@pytest.mark.parametrize("member", [property, classmethod, staticmethod, functools.cached_property])
def test_the_code_behind_a_member_of_a_class_is_part_of_an_identity(member: Any) -> None:
    def holding(number: int) -> Callable[[Tensor], Tensor]:
        return scaled(type("Held", (), {"member": member(lambda *_: number)})())

    assert identity(holding(2)) == identity(holding(2)) != identity(holding(3))


def test_a_set_counts_by_its_members_whatever_their_order() -> None:
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other)
    assert identity(scaled(one)) == identity(scaled(other))
    different: list[Any] = [one, {0, 9}, frozenset(one), {0.0, 8.0}, {"0", "8"}]
    assert len({identity(scaled(each)) for each in different}) == len(different)


def test_a_module_of_torch_counts_by_its_weights() -> None:
    def linear(number: float) -> torch.nn.Linear:
        made = torch.nn.Linear(2, 1)
        with torch.no_grad():
            for weight in made.parameters():
                weight.fill_(number)
        return made

    assert identity(linear(1.0)) == identity(linear(1.0)) != identity(linear(2.0))


def test_a_built_in_function_counts_with_its_owner_or_the_version_of_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert identity(scaled("a".join)) == identity(scaled("a".join)) != identity(scaled("b".join))
    before = identity(scaled(numpy.array))
    assert identity(scaled(numpy.array)) == before
    monkeypatch.setattr(numpy, "__version__", "0.1")
    assert identity(scaled(numpy.array)) != before
    monkeypatch.delattr(numpy, "__version__")
    with pytest.raises(UnknownError, match="code of numpy"):
        identity(scaled(numpy.array))


@frozen
class Pair:
    first: int


def test_code_of_python_and_of_attrs_counts_by_its_name() -> None:
    functions = [os.path.join, os.path.split, Pair.__init__, Pair.__eq__]
    assert len({identity(scaled(one)) for one in functions}) == len(functions)
    assert [identity(scaled(one)) for one in functions] == [identity(scaled(one)) for one in functions]


def test_a_name_without_a_value_yet_is_another_identity_than_one_with_it() -> None:
    def made(filled: bool) -> Callable[[Tensor], Tensor]:
        def times(x: Tensor) -> Tensor:
            return x * factor

        if filled:
            factor = 2
        return times

    assert identity(made(False)) == identity(made(False)) != identity(made(True))


def test_modules_that_name_each_other_are_followed_once() -> None:
    def times(number: int) -> Any:
        one, other = types.ModuleType("one"), types.ModuleType("other")
        vars(one).update(other=other, number=number)
        vars(other).update(one=one)
        space: dict[str, Any] = {"one": one}
        exec("times = lambda x: x * one.other.one.number", space)
        return space["times"]

    assert times(3)(2) == 6
    assert identity(times(3)) == identity(times(3)) != identity(times(4))


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ({(1, 2)}, "a set of other things than numbers and texts"),
        (Counter("a"), "is Counter"),
        (torch.eye(2).to_sparse(), "Tensor of layout torch.sparse_coo"),
        (torch.empty(2, device="meta"), "Tensor of layout torch.strided"),
        (keys, "the module purestep.core.keys as a value"),
        (lambda: getattr(keys, "fold" + "_in"), "a module whose attributes are looked up by getattr"),
    ],
    ids=["set", "mapping", "sparse", "meta", "module", "getattr"],
)
def test_what_is_not_described_reliably_is_refused_by_name(value: Any, got: str) -> None:
    with pytest.raises(
        UnknownError, match=f"{re.escape(got)}.*wanted something that can be described; close over"
    ) as told:
        identity(scaled(value))
    assert "\n" not in str(told.value)
