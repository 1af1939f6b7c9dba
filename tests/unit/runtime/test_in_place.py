"""Carries written in place: the laws, cases that were difficult, compiled programs, and arguments that are given up."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase, settings
from hypothesis import given as drawing
from torch import Tensor

from purestep.core.errors import ChoiceError, RecompileError, ShapeError
from purestep.properties import check
from purestep.runtime.compile import artefact_name, program
from purestep.runtime.files.cache_folder import cache_directory
from purestep.runtime.inductor.compile_speed import VERSIONS

from ...laws.runtime.in_place import Program, equal, in_place_laws, programs, rewritten
from ...support.writes import CASES, COPIED, QUICK, ROWS, Case, ring

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith(VERSIONS), reason="written for other versions of torch"
)

test_in_place = check(in_place_laws(), rewritten)


def start() -> Tensor:
    return torch.arange(float(ROWS)) / 4


ALL = [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow, id=case.__name__) for case in CASES]


@pytest.mark.parametrize("case", ALL)
def test_a_case_has_the_bits_of_the_function(case: Case) -> None:
    buffer, kept = start(), start()
    made = rewritten(case, [buffer])
    assert equal(made(buffer), case(buffer))
    assert torch.equal(buffer, kept)
    assert (made.in_place == 0) == (case in COPIED)


def every_case(given: Tensor) -> list[Any]:
    return [case(given) for case in CASES]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compiled_cases_have_the_bits_of_the_functions() -> None:
    given, run = start(), program(every_case)
    for case, got, wanted in zip(CASES, run(given), every_case(given), strict=True):
        assert equal(got, wanted), case
    assert run.reason == ""
    assert torch.equal(given, start())


def drawn(count: int) -> list[Program]:
    found: list[Program] = []

    @settings(max_examples=count, derandomize=True, database=None, phases=(Phase.generate,))
    @drawing(programs())
    def collect(one: Program) -> None:
        found.append(one)

    collect()
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compiled_drawn_programs_have_the_bits_of_the_functions() -> None:
    some = drawn(12)
    given = [one.buffers() for one in some]

    def whole(given: list[list[Tensor]]) -> list[Any]:
        return [one(*buffers) for one, buffers in zip(some, given, strict=True)]

    run = program(whole)
    for one, got, wanted in zip(some, run(given), whole(given), strict=True):
        assert equal(got, wanted), one
    assert run.reason == ""
    assert equal(given, [one.buffers() for one in some])


# --- arguments that are given up ---


def stored(buffer: Tensor, t: Tensor) -> Any:
    """A write outside of a loop, and one within it."""
    buffer = buffer.index_copy(0, (t + torch.arange(3)) % ROWS, torch.full((3,), 7.0))
    return ring(buffer), t + 1


@pytest.mark.slow
def test_a_buffer_that_is_given_up_is_the_result_and_empty_afterwards() -> None:
    run, t = program(stored, donate=(0,)), torch.tensor(2)
    buffer, given, wanted = start(), start(), start()
    place = buffer.data_ptr()
    for _ in range(3):
        given = buffer
        (wanted, ys), _ = stored(wanted, t)
        (buffer, got), _ = run(buffer, t)
        assert equal((buffer, got), (wanted, ys))
        assert buffer.data_ptr() == place
        assert given.shape == (0,)
    with pytest.raises(ShapeError, match="an empty tensor, as one is that an earlier call was given"):
        run(given, t)
    larger = torch.arange(2.0 * ROWS) / 4
    assert equal(run(larger[:ROWS], t), stored(larger[:ROWS], t))
    assert torch.equal(larger, torch.arange(2.0 * ROWS) / 4)
    turned = torch.arange(2.0 * ROWS).view(ROWS, 2)[:, 0]
    assert equal(run(turned, t), stored(turned, t))
    run.settle()
    with pytest.raises(RecompileError):
        run(torch.zeros(3), t)


def both(pair: tuple[Tensor, Tensor], other: Tensor) -> Any:
    first, second = pair
    at = torch.arange(3)
    return first.index_copy(0, at, other[3:6]), second.index_copy(0, at, first[5:8]), second


@pytest.mark.slow
def test_shared_memory_is_copied_and_a_result_that_is_an_argument_passes() -> None:
    run = program(both, donate=(0,))  # of the pair's second tensor both the old and the new value are results
    for pick in range(3):
        one, two, three = start(), start() + 1, start() + 2
        given = [((one, one), three), ((one, two), one), ((one, two), three)][pick]
        wanted = [leaf.clone() for leaf in both(*given)]
        assert equal(run(*given), wanted)
        assert torch.equal(three, start() + 2)


CAPTURED = start()


@pytest.mark.slow
def test_a_captured_tensor_that_is_given_up_keeps_its_numbers() -> None:
    run = program(lambda buffer: (buffer.index_copy(0, torch.arange(3), CAPTURED[5:8]), CAPTURED * 2), donate=(0,))
    wanted = start().index_copy(0, torch.arange(3), start()[5:8])
    assert equal(run(CAPTURED), (wanted, start() * 2))
    assert torch.equal(CAPTURED, start())


def test_a_position_that_is_no_argument_is_refused() -> None:
    with pytest.raises(ChoiceError, match="donate is \\(2,\\), wanted positions below 1"):
        program(lambda x: x + 1, donate=(2,), backend="none")(start())


@pytest.mark.parametrize("backend", ["none", "aot_eager"])
def test_other_backends_leave_arguments_as_they_are(backend: str) -> None:
    given = start()
    run = program(stored, donate=(0,), backend=backend)
    assert equal(run(given, torch.tensor(2)), stored(start(), torch.tensor(2)))
    assert torch.equal(given, start())


@pytest.mark.slow
def test_a_kept_program_knows_what_it_is_given(tmp_path: Path) -> None:
    assert cache_directory() is not None
    where, t = tmp_path / "kept", torch.tensor(2)
    assert artefact_name(stored, "none", start(), t) != artefact_name(stored, "none", start(), t, donate=(0,))
    wanted = stored(start(), t)
    for number in range(2):
        run = program(stored, donate=(0,), artefact=where)
        given = start()
        assert equal(run(given, t), wanted)
        assert run.loaded == (number == 1)
        assert given.shape == (0,)
    plain, given = program(stored, artefact=where), start()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert equal(plain(given, t), wanted)
    assert "of another function" in str(caught[0].message)
    assert torch.equal(given, start())
