"""Programs traced directly: the laws, the same bits as the compiler's usual way, and the reason where that is taken."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from purestep.algorithms.ppo import ppo
from purestep.core import keys
from purestep.core.envs import make
from purestep.core.optim import optimizers
from purestep.core.policy import actor_critic_mlp
from purestep.core.scan import scan
from purestep.core.tree import leaves
from purestep.properties import check
from purestep.runtime.compile import program
from purestep.runtime.inductor import ahead_of_time
from purestep.runtime.inductor.direct_trace import Untraced, one_hot, traced
from purestep.runtime.train import train, trainer

from ...laws.runtime.direct_trace import PROGRAMS, REFUSED, direct_trace_laws, interpreted

test_traced = check(direct_trace_laws(), interpreted)
ROWS, NUMBER = keys.normal(keys.key(5), (4, 3)), torch.tensor(1.5)


def together(rows: Tensor, number: Tensor) -> list[Any]:
    """All programs of the laws as one, which is compiled once."""
    return [PROGRAMS[name]([rows, number]) for name in sorted(PROGRAMS)]


@pytest.mark.slow
def test_compiled_directly_it_gives_what_it_gives_uncompiled() -> None:
    run = program(together)
    got, wanted = run(ROWS, NUMBER), together(ROWS, NUMBER)
    assert run.reason == ""
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    whole = [(one, other) for one, other in zip(leaves(got), leaves(wanted), strict=True) if one.dtype == torch.int64]
    assert whole
    assert all(torch.equal(one, other) for one, other in whole)


@pytest.mark.slow
def test_what_cannot_be_traced_is_compiled_the_usual_way() -> None:
    changed = REFUSED["a part of an argument that is changed"]
    run = program(lambda x: changed([x]))
    given = torch.tensor([1.0, -2.0, 3.0])
    assert torch.equal(run(given.clone()), changed([given.clone()]))
    assert run.reason.startswith("Untraced: ")


@pytest.mark.slow
def test_a_second_program_of_the_same_graph_is_made_directly_too() -> None:
    for _ in range(2):
        run = program(lambda x: x * 3 + 1)
        assert run(torch.ones(2)).tolist() == [4.0, 4.0]
        assert run.reason == ""


@pytest.mark.slow
def test_an_argument_that_is_returned_is_not_copied() -> None:
    run = program(lambda x, y: (x, x + y, x))
    x, y = torch.ones(2), torch.ones(2)
    first, total, again = run(x, y)
    assert first.data_ptr() == again.data_ptr() == x.data_ptr()
    assert total.tolist() == [2.0, 2.0]


@pytest.mark.slow
def test_results_that_are_no_tensors_are_kept() -> None:
    kept = {"n": 3, "name": "a", "nothing": None}
    run = program(lambda x: {"twice": x * 2, **kept})
    result = run(torch.ones(1))
    assert result.pop("twice").tolist() == [2.0]
    assert (result, run.reason) == (kept, "")


@pytest.mark.slow
def test_a_captured_tensor_that_is_returned_stays_whole() -> None:
    held = torch.arange(4.0)
    run = program(lambda x: (x + held, held, held[1:]))
    for _ in range(50):
        total, whole, part = run(torch.ones(4))
        assert (total.tolist(), whole.tolist(), part.tolist()) == ([1, 2, 3, 4], [0, 1, 2, 3], [1, 2, 3])
        del total, whole, part
    assert held.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("draw", [random.random, numpy.random.rand], ids=["Python", "NumPy"])
def test_numbers_that_others_draw_are_no_constants(draw: Any) -> None:
    with pytest.raises(Untraced, match="a number drawn from Python's or NumPy's generator"):
        traced(lambda inputs: inputs[0] * draw(), [torch.ones(1)])


def test_another_thread_scans_while_one_traces() -> None:
    def function(inputs: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(lambda: float(scan(lambda n, x: (n + x, n), torch.zeros(()), torch.ones(3))[0]))
            return inputs[0] * other.result(60)

    assert traced(function, [torch.ones(1)]).graph(torch.ones(1))[0].tolist() == [3.0]


def test_captured_tensors_are_kept_with_the_library(tmp_path: Path) -> None:
    held, turned = torch.tensor([1.0, 2.0, 3.0]), torch.arange(9.0).reshape(3, 3).T

    def function(rows: Tensor) -> Any:
        return scan(lambda total, x: (total + held * x @ turned, total), torch.zeros(3), rows)

    first = program(function, artefact=tmp_path / "kept")
    wanted = first(ROWS)
    torch.testing.assert_close(wanted, function(ROWS))
    again = program(function, artefact=tmp_path / "kept")
    assert all(torch.equal(one, other) for one, other in zip(again(ROWS), wanted, strict=True))
    assert (first.loaded, again.loaded, first.reason) == (False, True, "")


@pytest.mark.slow
def test_training_has_the_bits_of_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make("cartpole")
    model = actor_critic_mlp(env.observation_space, env.action_space, (8,))
    one = trainer(env, model, ppo(model, optimizers.adam(1e-3), epochs=2, minibatches=2), envs=2, horizon=8)
    state = one.init(keys.key(0))
    direct, usual = (program(train(one, 3), name=name) for name in ("direct", "usual"))
    got = direct(state)
    monkeypatch.setattr(ahead_of_time, "VERSIONS", ())
    wanted = usual(state)
    assert direct.reason == ""
    torch.testing.assert_close(leaves(got), leaves(wanted), rtol=0.0, atol=0.0, equal_nan=True)


def table_in_a_scan(inputs: Any) -> Any:
    """One-hot states times a table, in a scan, a gradient and a vmap: what a network of a tabular policy does."""
    table, states = inputs[0], inputs[1].abs().round().long().clamp(max=3)[None].expand(4).contiguous()

    def total(table: Tensor) -> Tensor:
        return (functional.one_hot(states, 4).to(table.dtype) @ table).square().sum()

    def step(carry: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return carry + functional.one_hot(state, 4).to(table.dtype) @ table, carry.sum()

    rows = torch.vmap(lambda state: functional.one_hot(state, 4) * 2)(states)
    return torch.func.grad(total)(table), scan(step, torch.zeros(3), states), rows


def test_one_hot_is_traced_and_needs_its_number_of_classes() -> None:
    run = interpreted(table_in_a_scan, [ROWS, NUMBER])
    for number in (torch.tensor(0.4), torch.tensor(2.2)):
        torch.testing.assert_close(run([ROWS, number]), table_in_a_scan([ROWS, number]))
    states = torch.tensor([[2, 0], [1, 1]])
    assert torch.equal(one_hot(states, 3), functional.one_hot(states, 3))
    with pytest.raises(Untraced, match="one_hot without its number of classes"):
        traced(lambda inputs: functional.one_hot(inputs[0]), [states])


@pytest.mark.slow
def test_a_table_and_one_hot_compile_directly() -> None:
    run = program(lambda *inputs: table_in_a_scan(inputs))
    torch.testing.assert_close(run(ROWS, NUMBER), table_in_a_scan([ROWS, NUMBER]))
    assert run.reason == ""
