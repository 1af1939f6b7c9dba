"""Programs: compiled once for each signature, counted, refused after the warm-up, kept on disk for the next process."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from purestep.core.errors import CompileError, RecompileError
from purestep.core.record import record, replace, tensor
from purestep.core.scan import scan
from purestep.core.tree import clone
from purestep.runtime import compile
from purestep.runtime.compile import fingerprint, phase, program
from purestep.runtime.files.cache_folder import SECONDS, remember_seconds, usual_seconds


@record
class Account:
    """Something with a number, a row and a setting."""

    balance: Tensor = tensor("*", "float")
    history: Tensor = tensor("* H", "float")


def account() -> Account:
    return Account(balance=torch.tensor(1.5), history=torch.zeros(3))


def pay(state: Account, amount: Tensor, *, times: int = 1) -> tuple[Account, dict[str, Tensor]]:
    balance = state.balance + amount * times
    after = replace(state, balance=balance, history=torch.cat([state.history[1:], balance[None]]))
    return after, {"total": after.history.sum(), "balance": balance}


def eager_program(function: Callable[..., Any], **options: Any) -> Any:
    return program(function, backend="aot_eager", **options)


# --- one compilation for each signature ---


def test_one_compilation_for_each_signature() -> None:
    double = eager_program(lambda x: 2 * x)
    signatures = [torch.ones(2), torch.ones(3), torch.ones(3, dtype=torch.int64), torch.ones(3, 1)]
    for _ in range(2):
        for x in signatures:
            assert torch.equal(double(x), 2 * x)
    assert len(double.seconds) == 4
    assert all(seconds > 0.0 for seconds in double.seconds)


def test_numbers_without_axes_are_not_constants() -> None:
    """The compiler would take them for Python's, and compile anew for each value."""
    lowered, state = eager_program(pay), account()
    for amount in (0.25, 4.0, -1.0):
        wanted = pay(state, torch.tensor(amount))
        state, told = lowered(state, torch.tensor(amount))
        assert torch.equal(state.history, wanted[0].history)
        assert state.balance.shape == told["total"].shape == ()
        assert told["total"] == wanted[1]["total"]
    assert state.history.tolist() == [1.75, 5.75, 4.75]
    assert len(lowered.seconds) == 1


def test_other_values_than_tensors_are_part_of_the_signature() -> None:
    lowered = eager_program(pay)
    for times in (1, 2, 1, 2):
        after, _ = lowered(account(), torch.tensor(1.0), times=times)
        assert after.balance.item() == 1.5 + times
    assert len(lowered.seconds) == 2


def test_1_and_1_point_0_and_true_are_three_values() -> None:
    times = eager_program(lambda x, n: x * n)
    for n, dtype in ((1, torch.int64), (1.0, torch.float32), (True, torch.int64)):
        assert times(torch.tensor([1, 2]), n).dtype == dtype
    assert len(times.seconds) == 3


def test_rows_that_do_not_lie_in_one_piece() -> None:
    lowered, x = eager_program(lambda x: x * 2 + x[0]), torch.arange(12.0).reshape(3, 4)
    for view in (x, x.T, x[:, ::2], torch.ones(()).expand(3, 4)):
        assert torch.equal(lowered(view), view * 2 + view[0])
    assert len(lowered.seconds) == 3


def test_arguments_keep_their_bits() -> None:
    lowered, arguments = eager_program(pay), (account(), torch.tensor(2.0))
    before = clone(arguments)
    lowered(*arguments)
    assert torch.equal(arguments[0].history, before[0].history)
    assert arguments[0].balance == before[0].balance


@pytest.mark.slow
def test_arguments_that_were_one_tensor_may_be_two_later() -> None:
    run = program(lambda a, b: a - 2 * b, backend="aot_eager")
    one, two = torch.tensor([1.0]), torch.tensor([5.0])
    assert run(one, one).tolist() == [-1.0]
    assert run(one, two).tolist() == [-9.0]
    assert len(run.seconds) == 1


def test_each_composition_is_a_program_of_its_own() -> None:
    """One code object, twelve closures: the compiler would give up at the ninth."""

    def plus(n: int) -> Callable[[Tensor], Tensor]:
        return lambda x: x + n

    programs = [eager_program(plus(n)) for n in range(12)]
    for _ in range(2):
        assert [int(p(torch.zeros((), dtype=torch.int64))) for p in programs] == list(range(12))
    assert [len(p.seconds) for p in programs] == [1] * 12


def test_a_function_is_one_graph_or_an_error() -> None:
    def scans(x: Tensor) -> Any:
        return scan(lambda total, row: (total + row, total * 2), torch.zeros_like(x[0]), x)

    counters.clear()
    assert torch.equal(eager_program(scans)(torch.ones(5, 2))[0], torch.full((2,), 5.0))
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1

    def breaks(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(CompileError, match=r"breaks: .*test_compile.py:\d+ is .*graph_break"):
        eager_program(breaks)(torch.ones(2))


def test_a_program_has_a_name() -> None:
    assert eager_program(pay).name == "pay"
    assert eager_program(pay, name="till").name == "till"


# --- after the warm-up ---

KNOWN = torch.ones(2)
CHANGES: dict[str, tuple[Any, str]] = {
    "shape": ((account(), torch.ones(3)), "argument 1 is [3] torch.float32 cpu, wanted [] torch.float32 cpu"),
    "dtype": (
        (replace(account(), history=torch.zeros(3, dtype=torch.float64)), torch.tensor(1.0)),
        "argument 0.history is [3] torch.float64 cpu, wanted [3] torch.float32 cpu",
    ),
    "device": (
        (account(), torch.tensor(1.0, device="meta")),
        "argument 1 is [] torch.float32 meta, wanted [] torch.float32 cpu",
    ),
    "no tensor": ((account(), 1.0), "argument 1 is float 1.0, wanted [] torch.float32 cpu"),
    "structure": (
        ((account(), account()), torch.tensor(1.0)),
        "the arguments' structure is another, wanted that of the first call",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_settled_program_refuses_to_compile_again(change: str) -> None:
    lowered = eager_program(pay)
    lowered.settle()
    lowered(account(), torch.tensor(1.0))  # the first call is the warm-up, whenever it comes
    arguments, what = CHANGES[change]
    with pytest.raises(RecompileError) as error:
        lowered(*arguments)
    assert str(error.value) == f"pay: {what}; keep structures, shapes and dtypes as they were in the warm-up"
    assert lowered(account(), torch.tensor(2.0))[0].balance.item() == 3.5
    assert len(lowered.seconds) == 1


def test_a_changed_setting_is_named() -> None:
    lowered = eager_program(pay)
    lowered(account(), torch.tensor(1.0), times=2)
    lowered.settle()
    with pytest.raises(RecompileError, match=r"pay: argument times is int 3, wanted int 2; keep"):
        lowered(account(), torch.tensor(1.0), times=3)


def test_what_was_compiled_before_settling_stays() -> None:
    double = eager_program(lambda x: 2 * x)
    double(torch.ones(2))
    double(torch.ones(3))
    double.settle()
    assert double(torch.ones(3)).tolist() == [2.0] * 3
    assert double(torch.ones(2)).tolist() == [2.0] * 2


# --- artefacts ---


def thrice(x: Tensor) -> Tensor:
    return 3 * x


def test_the_compiled_form_is_found_again(tmp_path: Path) -> None:
    where = tmp_path / "deep" / "thrice"
    one = eager_program(thrice, artefact=where)
    assert one(torch.ones(2)).tolist() == [3.0, 3.0]
    assert not one.loaded
    again = eager_program(thrice, artefact=where)
    assert again(torch.tensor([1.0, 2.0])).tolist() == [3.0, 6.0]
    assert again.loaded
    assert len(again.seconds) == 1
    assert [path.name for path in where.parent.iterdir()] == ["thrice"]


def test_only_the_first_signature_is_kept(tmp_path: Path) -> None:
    where = tmp_path / "thrice"
    one = eager_program(thrice, artefact=where)
    one(torch.ones(2))
    kept = where.read_bytes()
    one(torch.ones(3))
    assert where.read_bytes() == kept


@pytest.mark.parametrize("damage", ["cut", "overwritten", "empty"])
def test_a_damaged_artefact_is_made_anew(tmp_path: Path, damage: str) -> None:
    where = tmp_path / "thrice"
    eager_program(thrice, artefact=where)(torch.ones(2))
    whole = where.read_bytes()
    where.write_bytes({"cut": whole[: len(whole) // 2], "overwritten": b"x" * len(whole), "empty": b""}[damage])
    again = eager_program(thrice, artefact=where)
    with pytest.warns(UserWarning, match="compiled form thrice is unusable .*; compiling again"):
        assert again(torch.ones(2)).tolist() == [3.0, 3.0]
    assert not again.loaded
    healed = eager_program(thrice, artefact=where)
    assert healed(torch.ones(2)).tolist() == [3.0, 3.0]
    assert healed.loaded


@pytest.mark.parametrize("x", [torch.ones(3), torch.ones(2, dtype=torch.int64)], ids=["shape", "dtype"])
def test_an_artefact_of_other_arguments_is_not_run(tmp_path: Path, x: Tensor) -> None:
    """The compiled form checks nothing: given integers it would read them as floats."""
    where = tmp_path / "thrice"
    eager_program(thrice, artefact=where)(torch.ones(2))
    other = eager_program(thrice, artefact=where)
    with pytest.warns(UserWarning, match="not of these arguments"):
        assert torch.equal(other(x), 3 * x)
    assert not other.loaded


def test_what_cannot_be_kept_runs_all_the_same(tmp_path: Path) -> None:
    class Unpicklable:
        factor = 5

        def __reduce__(self) -> Any:
            raise TypeError("no")

    held = Unpicklable()
    lowered = eager_program(lambda x: x * held.factor, artefact=tmp_path / "five")
    with pytest.warns(UserWarning, match="compiled form five cannot be kept, so others compile it anew"):
        assert lowered(torch.ones(2)).tolist() == [5.0, 5.0]
    assert list(tmp_path.iterdir()) == []


SECOND_PROCESS = textwrap.dedent(
    """
    import sys
    import torch
    from pathlib import Path
    torch.set_num_threads(1)
    from purestep.core.scan import scan
    from purestep.runtime.compile import program

    def wander(start, rows):
        return scan(lambda x, row: (torch.sin(x @ row), x.sum()), start, rows)

    generator = torch.Generator().manual_seed(0)
    arguments = torch.randn(2, 3, generator=generator), torch.randn(4, 3, 3, generator=generator)
    lowered = program(wander, artefact=Path(sys.argv[1]))
    torch.save((lowered.loaded, lowered(*arguments), lowered.loaded), sys.argv[2])
    """
)


@pytest.mark.slow
def test_a_second_process_finds_the_compiled_form_and_the_same_bits(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SECOND_PROCESS)
    told = []
    for n in range(2):
        out = tmp_path / f"{n}.pt"
        subprocess.run([sys.executable, script, tmp_path / "wander", out], check=True, timeout=300)
        told.append(torch.load(out))
    assert [(before, after) for before, _, after in told] == [(False, False), (False, True)]
    assert torch.equal(told[0][1][0], told[1][1][0])
    assert torch.equal(told[0][1][1], told[1][1][1])


# --- fingerprints ---


def test_a_fingerprint_names_everything_that_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("core", "algorithms", "runtime"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("1")
    monkeypatch.setattr(compile, "__file__", str(tmp_path / "runtime" / "compile.py"))
    plain = fingerprint("cartpole", 4)
    assert len(plain) == 32
    assert plain == fingerprint("cartpole", 4)
    seen = {plain, fingerprint("cartpole", 5), fingerprint("pendulum", 4), fingerprint()}
    (tmp_path / "core" / "a.py").write_text("2")
    seen.add(fingerprint("cartpole", 4))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    seen.add(fingerprint("cartpole", 4))
    monkeypatch.setattr(torch, "__version__", "0.0")
    seen.add(fingerprint("cartpole", 4))
    assert len(seen) == 7


@pytest.mark.slow
def test_the_code_generator_is_the_default() -> None:
    """The one real compilation here: a loop, a record, a number without axes, and the settings of `settings`."""

    def run(state: Account, amounts: Tensor) -> tuple[Account, Tensor]:
        return scan(lambda s, amount: (pay(s, amount)[0], s.balance), state, amounts)

    lowered, amounts = program(run), torch.tensor([0.5, 2.0, -1.0])
    assert lowered.backend == "inductor"
    after, balances = lowered(account(), amounts)
    assert balances.tolist() == [1.5, 2.0, 4.0]
    assert after.balance.item() == 3.0
    assert after.history.tolist() == [2.0, 4.0, 3.0]


# --- the seconds of a compilation ---


def test_seconds_of_a_compilation_are_kept_for_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert usual_seconds("train ppo") == 0.0
    remember_seconds("train ppo", 41.26)
    remember_seconds("train a2c", 30.0)
    assert (usual_seconds("train ppo"), usual_seconds("train a2c"), usual_seconds("sweep")) == (41.3, 30.0, 0.0)
    assert [file.name for file in (tmp_path / "purestep").iterdir()] == [SECONDS]


@pytest.mark.parametrize("text", ["", "[]", '{"train ppo": "long"}', "\0"])
def test_damaged_seconds_are_unknown_and_replaced(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "purestep").mkdir()
    (tmp_path / "purestep" / SECONDS).write_text(text)
    assert usual_seconds("train ppo") == 0.0
    remember_seconds("train ppo", 2.0)
    assert usual_seconds("train ppo") == 2.0


def test_the_phase_is_that_of_the_thread_that_compiles() -> None:
    seen, thread = set[str](), threading.get_ident()

    def backend(graph: Any, inputs: Any) -> Any:
        seen.add(phase(thread))
        return graph

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert (seen, phase(thread)) == ({"tracing"}, "")
