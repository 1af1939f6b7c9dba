"""Records: frozen however they came to be, a pytree to every transformation, checked where they enter, and TensorDicts."""

import copy
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torch import Tensor

from purestep.core.errors import (
    ChoiceError,
    DtypeError,
    FrozenError,
    PurestepError,
    ShapeError,
    StructureError,
)
from purestep.core.record import (
    check,
    from_tensordict,
    is_record,
    record,
    replace,
    select,
    stack,
    static,
    take,
    tensor,
    to_tensordict,
)
from purestep.core.scan import scan
from purestep.core.tree import leaf_names


@record
class Inner:
    x: Tensor = tensor("* D", "float")
    n: Tensor = tensor("*", "int")


@record
class Outer:
    inner: Inner
    y: Tensor = tensor("* D 2", "float")
    flag: Tensor = tensor("*", "bool")
    tree: Any  # any tree of tensors
    absent: Any = ()
    label: str = static(default="a")


def outer(lead: tuple[int, ...] = (3,), size: int = 2, *, offset: int = 0, label: str = "a") -> Outer:
    def numbers(*shape: int) -> Tensor:
        return torch.arange(offset, offset + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)

    return Outer(
        inner=Inner(x=numbers(*lead, size), n=numbers(*lead).long()),
        y=numbers(*lead, size, 2),
        flag=numbers(*lead) % 2 == 0,
        tree={"a": numbers(*lead), "b": (numbers(*lead, 1), ())},
        label=label,
    )


def assert_same(a: Any, b: Any) -> None:
    assert pytree.tree_structure(a) == pytree.tree_structure(b)
    for name, left, right in zip(leaf_names(a), pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True):
        assert left.dtype == right.dtype, name
        assert torch.equal(left, right), name


leads = st.lists(st.integers(0, 3), max_size=2).map(tuple)
outers = st.builds(outer, leads, st.integers(1, 3), offset=st.integers(-5, 5), label=st.sampled_from("ab"))

MADE: dict[str, Callable[[Outer], Outer]] = {
    "constructor": lambda value: value,
    "replace": lambda value: replace(value, absent=()),
    "evolve": lambda value: attrs.evolve(cast(Any, value), absent=()),
    "unflatten": lambda value: pytree.tree_map(lambda leaf: leaf, value),
    "vmap": torch.vmap(lambda value: replace(value, absent=())),
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "deepcopy": copy.deepcopy,
}
WRITES: dict[str, Callable[[Any], None]] = {
    "set": lambda value: setattr(value, "y", torch.ones(1)),
    "set static": lambda value: setattr(value, "label", "b"),
    "set unknown": lambda value: setattr(value, "yy", torch.ones(1)),
    "set inside": lambda value: setattr(value.inner, "x", torch.ones(1)),
    "delete": lambda value: delattr(value, "y"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_frozen_however_it_was_made(make: Callable[[Outer], Outer], write: Callable[[Any], None]) -> None:
    value = make(outer())
    before = dict(vars(value))
    with pytest.raises(FrozenError, match=r"^(Outer|Inner)\.\w+ is frozen, wanted no write; use replace\(") as caught:
        write(value)
    assert isinstance(caught.value, attrs.exceptions.FrozenInstanceError)
    assert isinstance(caught.value, PurestepError)
    assert vars(value) == before


def test_deleting_first_does_not_help() -> None:
    value = outer()
    with pytest.raises(AttributeError):
        WRITES["delete"](value)
    assert isinstance(value.y, Tensor)


def test_a_write_in_a_compiled_function_is_refused(compiled: Any) -> None:
    def write(value: Any) -> Any:
        value.y = value.y * 2
        return value

    with pytest.raises(Exception, match=r"Outer\.y is frozen"):
        compiled(write, "eager")(outer())


def test_fields_are_named_and_all_are_needed() -> None:
    made: Any = Inner
    with pytest.raises(TypeError):
        made(torch.ones(1), torch.ones(1))
    with pytest.raises(TypeError, match="'n'"):
        made(x=torch.ones(1))
    with pytest.raises(TypeError, match="other"):
        replace(outer(), other=1)


def test_replace_leaves_the_old_one_and_shares_the_rest() -> None:
    old = outer()
    kept = old.y.clone()
    new = replace(old, y=old.y + 1)
    assert torch.equal(old.y, kept)
    assert torch.equal(new.y, kept + 1)
    assert new.inner is old.inner


def test_a_subclass_is_no_record() -> None:
    class Sub(Inner):
        pass

    value = Sub(x=torch.ones(1), n=torch.ones(1))
    assert is_record(outer())
    assert not is_record(value)
    with pytest.raises(StructureError, match="check: value is Sub, wanted a record"):
        check(value)


@pytest.mark.parametrize(("shape", "kind", "error"), [("2 *", "", ShapeError), ("*", "flaot", ChoiceError)])
def test_a_declaration_that_makes_no_sense_is_refused(shape: str, kind: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        tensor(shape, kind)


# --- as a pytree ---


@given(outers)
def test_flatten_and_back_is_the_identity(value: Outer) -> None:
    flat, structure = pytree.tree_flatten(value)
    back = pytree.tree_unflatten(flat, structure)
    assert isinstance(back, Outer)
    assert all(a is b for a, b in zip(flat, pytree.tree_leaves(back), strict=True))
    assert (back.label, back.absent, back.tree["b"][1]) == (value.label, (), ())
    assert leaf_names(value) == ["inner.x", "inner.n", "y", "flag", "tree.a", "tree.b.0"]


def test_static_fields_belong_to_the_structure() -> None:
    assert pytree.tree_structure(outer(label="a")) == pytree.tree_structure(outer((), offset=3, label="a"))
    assert pytree.tree_structure(outer(label="a")) != pytree.tree_structure(outer(label="b"))
    with pytest.raises(ValueError, match="mismatch"):
        pytree.tree_map(torch.add, outer(label="a"), outer(label="b"))


def turned(value: Outer, amount: Tensor) -> Outer:
    """Builds, evolves and nests."""
    inner = Inner(x=value.inner.x.flip(-1) + amount, n=value.inner.n + amount.long())
    made = Outer(inner=inner, y=value.y * amount, flag=~value.flag, tree=value.tree, label=value.label + "z")
    return replace(made, y=made.y + 1)


@given(st.integers(1, 4), st.integers(-3, 3))
def test_vmap_takes_and_gives_records(n: int, offset: int) -> None:
    value, amount = outer((n, 2), offset=offset), torch.arange(float(n))
    singles = [turned(take(value, i), amount[i]) for i in range(n)]
    assert_same(torch.vmap(turned)(value, amount), stack(singles))


def test_a_gradient_is_a_record() -> None:
    def loss(value: Inner) -> Tensor:
        return (replace(value, x=value.x**2).x * value.n[:, None]).sum()

    value = Inner(x=torch.tensor([[1.0], [2.0]]), n=torch.tensor([3.0, 5.0]))
    gradient = torch.func.grad(loss)(value)
    assert_same(gradient, Inner(x=torch.tensor([[6.0], [20.0]]), n=torch.tensor([1.0, 4.0])))


@pytest.mark.slow
def test_records_in_a_full_graph(compiled: Any) -> None:
    def program(value: Outer, amount: Tensor) -> tuple[Outer, Any]:
        gradient = torch.func.grad(lambda inner: (inner.x**2).sum())(replace(value.inner, n=value.inner.x[:, 0]))
        return torch.vmap(turned, in_dims=(0, None))(value, amount), gradient

    arguments = (outer(), torch.tensor(2.0))
    assert_same(compiled(program, "aot_eager")(*arguments), program(*arguments))


def test_a_compiled_function_sees_static_fields_change(compiled: Any) -> None:
    def program(value: Outer) -> Tensor:
        return value.y * len(value.label)

    run = compiled(program, "eager")
    for label in ("a", "bcd", "a", ""):
        assert torch.equal(run(outer(label=label)), outer().y * len(label))


def test_records_are_carry_input_and_output_of_scan() -> None:
    def step(carry: Inner, x: Outer) -> tuple[Inner, Outer]:
        carry = replace(carry, x=carry.x + x.inner.x)
        return carry, replace(x, inner=carry)

    value = outer((4,))
    carry, ys = scan(step, Inner(x=torch.zeros(2), n=torch.tensor(1)), value)
    assert torch.equal(carry.x, value.inner.x.sum(0))
    assert torch.equal(ys.inner.x, value.inner.x.cumsum(0))
    assert_same(replace(ys, inner=value.inner), value)


# --- stack, take, select ---


@given(st.data(), leads, st.integers(1, 3))
def test_take_undoes_stack(data: st.DataObject, lead: tuple[int, ...], n: int) -> None:
    values = [outer(lead, offset=i) for i in range(n)]
    axis = data.draw(st.integers(0, len(lead)))
    stacked = stack(values, axis)
    assert check(stacked).flag.shape == (*lead[:axis], n, *lead[axis:])
    for i, value in enumerate(values):
        assert_same(take(stacked, (slice(None),) * axis + (i,)), value)


@given(st.lists(st.booleans(), min_size=1, max_size=4))
def test_select_takes_whole_rows(flags: list[bool]) -> None:
    a, b = outer((len(flags),)), outer((len(flags),), offset=100)
    chosen = select(torch.tensor(flags), a, b)
    assert_same(chosen, stack([take(a if flag else b, i) for i, flag in enumerate(flags)]))


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "stack of nothing": (lambda: stack([]), StructureError, "stack: values is empty"),
    "stack of two labels": (lambda: stack([outer(), outer(label="b")]), StructureError, r"values\[1\] is another"),
    "stack of two shapes": (
        lambda: stack([outer(), outer((2,))]),
        StructureError,
        r"values\[1\]\.inner\.x is \[2, 2\]",
    ),
    "select from two labels": (
        lambda: select(torch.ones(3) > 0, outer(), outer(label="b")),
        StructureError,
        "select: where_false is another structure",
    ),
    "select from two dtypes": (
        lambda: select(torch.ones(3) > 0, torch.ones(3), torch.ones(3, dtype=torch.int64)),
        StructureError,
        r"select: where_false is \[3\] torch.int64, wanted \[3\] torch.float32",
    ),
    "select by another length": (
        lambda: select(torch.ones(1) > 0, outer(), outer()),
        ShapeError,
        r"select: mask is \[1\], wanted the leading axes of \[3, 2\]",
    ),
}


@pytest.mark.parametrize(("act", "error", "text"), WRONG.values(), ids=WRONG)
def test_trees_that_do_not_match_are_refused(act: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        act()
    assert "\n" not in str(caught.value)


# --- check ---


@given(outers, st.booleans())
def test_check_accepts_what_is_declared(value: Outer, given_batch: bool) -> None:
    assert check(value, tuple(value.flag.shape) if given_batch else None) is value


def changed(**changes: Any) -> Outer:
    return replace(outer(), **changes)


INNER = outer().inner
FAULTS: dict[str, tuple[Any, tuple[int, ...] | None, type[Exception], str]] = {
    "no record": ({"a": 1}, None, StructureError, "check: value is dict, wanted a record; pass one"),
    "a number": (
        changed(y=1.0),
        None,
        StructureError,
        "Outer.y is float, wanted a tensor; wrap it in torch.tensor, or make the field static",
    ),
    "None": (
        changed(absent=None),
        None,
        StructureError,
        "Outer.absent is NoneType, wanted a tensor; use () for absent",
    ),
    "None in a declared field": (
        changed(y=None),
        None,
        StructureError,
        "Outer.y is NoneType, wanted a tensor; use () for absent",
    ),
    "None in a tree": (
        changed(tree={"a": (None,)}),
        None,
        StructureError,
        "Outer.tree.a.0 is NoneType, wanted a tensor; use () for absent",
    ),
    "dtype": (
        changed(flag=torch.ones(3)),
        None,
        DtypeError,
        "Outer.flag is torch.float32, wanted bool; convert it, e.g. with .to(torch.bool)",
    ),
    "dtype inside": (
        changed(inner=replace(INNER, n=torch.ones(3))),
        None,
        DtypeError,
        "Outer.inner.n is torch.float32, wanted int; convert it, e.g. with .to(torch.int64)",
    ),
    "leading axes": (
        changed(flag=torch.ones(4) > 0),
        None,
        ShapeError,
        "Outer.flag is [4], wanted [*] with * = [3]; reshape it or the other fields",
    ),
    "batch": (
        outer(),
        (4,),
        ShapeError,
        "Outer.y is [3, 2, 2], wanted [* D 2] with * = [4]; reshape it or the other fields",
    ),
    "fixed size": (
        changed(y=torch.ones(3, 2, 5)),
        None,
        ShapeError,
        "Outer.y is [3, 2, 5], wanted [* D 2]; reshape it or the other fields",
    ),
    "too few axes": (
        changed(y=torch.ones(2)),
        None,
        ShapeError,
        "Outer.y is [2], wanted [* D 2]; reshape it or the other fields",
    ),
    "leading axes inside": (
        changed(inner=outer((4,)).inner),
        None,
        ShapeError,
        "Outer.inner.x is [4, 2], wanted [* D] with * = [3, ...]; reshape it or the other fields",
    ),
    "leading axes in a tree": (
        changed(tree=[torch.ones(4)]),
        None,
        ShapeError,
        "Outer.tree.0 is [4], wanted [3, ...]; give it the record's leading axes",
    ),
    "a record in a tree": (
        changed(tree={"r": replace(INNER, n=torch.ones(3, 1, dtype=torch.int64))}),
        None,
        ShapeError,
        "Outer.tree.r.n is [3, 1], wanted [*] with * = [3]; reshape it or the other fields",
    ),
}


@pytest.mark.parametrize(("value", "batch", "error", "text"), FAULTS.values(), ids=FAULTS)
def test_check_names_the_fault(value: Any, batch: tuple[int, ...] | None, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        check(value, batch)
    assert str(caught.value) == text


def test_named_sizes_are_shared_within_one_record() -> None:
    @record
    class Pair:
        a: Tensor = tensor("N D")
        b: Tensor = tensor("D N", "float")

    assert check(Pair(a=torch.ones(2, 3, dtype=torch.int32), b=torch.ones(3, 2)))
    with pytest.raises(ShapeError, match=re.escape("Pair.b is [2, 3], wanted [D N] with D = 3, N = 2;")):
        check(Pair(a=torch.ones(2, 3), b=torch.ones(2, 3)))
    with pytest.raises(ShapeError, match=re.escape("Pair.a is [1, 2, 3], wanted [N D];")):
        check(Pair(a=torch.ones(1, 2, 3), b=torch.ones(3, 2)))


def test_a_record_inside_may_have_more_leading_axes_and_sizes_of_its_own() -> None:
    value = changed(inner=Inner(x=torch.ones(3, 7, 5), n=torch.ones(3, 7, dtype=torch.int64)))
    assert check(value, (3,)) is value


def test_absent_fields_pass_and_a_field_that_must_be_a_key_is_one() -> None:
    @record
    class Keyed:
        key: Tensor = tensor("* 2", "key")
        weight: Any = tensor("*", "float")

    assert check(Keyed(key=torch.zeros(5, 2, dtype=torch.int64), weight=()))
    with pytest.raises(DtypeError, match="wanted key"):
        check(Keyed(key=torch.zeros(5, 2, dtype=torch.int32), weight=()))


# --- TensorDicts ---


@given(outers)
def test_to_tensordict_and_back(value: Outer) -> None:
    lead = tuple(value.flag.shape)
    for batch in (lead[:i] for i in range(len(lead) + 1)):
        entries = to_tensordict(value, batch)
        assert entries.batch_size == torch.Size(batch)
        assert entries["tree", "b", "0"] is value.tree["b"][0]
        assert_same(from_tensordict(value, entries), value)


def test_a_tensordict_holds_every_tensor_and_nothing_else() -> None:
    entries = to_tensordict(outer((3,)), [3])
    names = {"inner.x", "inner.n", "y", "flag", "tree.a", "tree.b.0"}
    assert {".".join(key) if isinstance(key, tuple) else key for key in entries.keys(True, True)} == names


def test_a_batch_from_a_tensordict_has_the_structure_of_one() -> None:
    one = outer(())
    many = from_tensordict(one, TensorDict.stack([to_tensordict(one), to_tensordict(outer((), offset=5))]))
    assert_same(many, stack([one, outer((), offset=5)]))


def test_tensordict_errors() -> None:
    with pytest.raises(StructureError, match="to_tensordict: value is dict, wanted a record"):
        to_tensordict({"a": torch.ones(1)})
    with pytest.raises(StructureError, match=r"Outer\.absent is NoneType, wanted a tensor; use \(\) for absent"):
        to_tensordict(changed(absent=None))
    with pytest.raises(ShapeError, match=re.escape("Outer.inner.x is [3, 2], wanted [4, ...]")):
        to_tensordict(outer(), [4])
    without: TensorDict = to_tensordict(outer()).exclude(("inner", "x"))
    with pytest.raises(StructureError, match=r"from_tensordict: Outer\.inner\.x is absent"):
        from_tensordict(outer(), without)


# --- type checkers ---


@pytest.mark.slow
def test_mypy_reports_writes_and_missing_fields(tmp_path: Path) -> None:
    source = tmp_path / "snippet.py"
    source.write_text(
        "import torch\n"
        "from purestep.core.record import record, replace, static, tensor\n"
        "@record\n"
        "class Point:\n"
        "    x: torch.Tensor = tensor('*', 'float')\n"
        "    label: str = static(default='a')\n"
        "point = Point(x=torch.ones(1))\n"
        "reveal_type(replace(point, x=torch.ones(2)))\n"
        "point.x = torch.ones(2)\n"
        "Point(label='b')\n"
        "Point(torch.ones(1))\n"
    )
    root = Path(__file__).parents[3]
    places = ("--config-file", str(root / "pyproject.toml"), "--cache-dir", str(root / ".mypy_cache"))
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *places, str(source)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    lines = [line.partition("snippet.py:")[2] for line in run.stdout.splitlines()]
    assert any(line.startswith("8:") and "snippet.Point" in line for line in lines), run.stdout
    assert any(line.startswith("9:") and "read-only" in line for line in lines), run.stdout
    assert any(line.startswith("10:") and '"x"' in line for line in lines), run.stdout
    assert any(line.startswith("11:") and "positional" in line for line in lines), run.stdout
