"""Trees of tensors: names, structure, clones, sizes and finiteness."""

from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.errors import StructureError
from purestep.core.record import record, static, tensor
from purestep.core.tree import all_finite, clone, leaf_names, leaf_paths, leaves, same_structure, size, tree_map


@record
class Node:
    value: Tensor = tensor("*")
    rest: Any = ()
    name: str = static(default="n")


def node(shape: tuple[int, ...] = (2,), dtype: torch.dtype = torch.float32, **options: Any) -> Node:
    return Node(value=torch.zeros(shape, dtype=dtype), **options)


shapes = st.lists(st.integers(0, 3), max_size=2).map(tuple)
tensors = st.builds(torch.zeros, shapes, dtype=st.sampled_from([torch.float32, torch.int64, torch.bool]))
trees = st.recursive(
    tensors | st.just(()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.builds(lambda value, rest: Node(value=value, rest=rest), tensors, inner)
    ),
    max_leaves=6,
)


@given(trees)
def test_leaves_names_and_paths_agree(tree: Any) -> None:
    paths = leaf_paths(tree)
    assert len(set(paths)) == len(paths) == len(leaves(tree))
    assert [".".join(path) for path in paths] == leaf_names(tree)
    for path, leaf in zip(paths, leaves(tree), strict=True):
        found = tree
        for word in path:
            found = getattr(found, word) if isinstance(found, Node) else found[word if word in found else int(word)]
        assert found is leaf


@given(trees)
def test_clone_keeps_bits_and_shares_no_storage(tree: Any) -> None:
    copied = clone(tree)
    same_structure("clone", copied, tree)
    for new, old in zip(leaves(copied), leaves(tree), strict=True):
        assert torch.equal(new, old)
        assert new is not old
        assert new.numel() == 0 or new.untyped_storage().data_ptr() != old.untyped_storage().data_ptr()
    assert size(tree) == sum(len(leaf.flatten()) for leaf in leaves(tree))


def test_clone_of_an_expanded_tensor_can_be_written_row_by_row() -> None:
    copied = clone(torch.zeros(1).expand(3))
    copied[0] = 1.0
    assert copied.tolist() == [1.0, 0.0, 0.0]


def test_tree_map_works_on_records_side_by_side() -> None:
    result = tree_map(torch.add, node(rest=(torch.ones(1),)), node(rest=(torch.ones(1),)))
    assert result.rest[0].item() == 2
    with pytest.raises(ValueError, match="mismatch"):
        tree_map(torch.add, node(), node(name="m"))


@given(trees, trees)
def test_same_structure_is_the_equality_of_structure_shape_and_dtype(a: Any, b: Any) -> None:
    same_structure("law", a, a)
    shapes_and_dtypes = [[(leaf.shape, leaf.dtype) for leaf in leaves(tree)] for tree in (a, b)]
    equal = pytree.tree_structure(a) == pytree.tree_structure(b) and shapes_and_dtypes[0] == shapes_and_dtypes[1]
    if equal:
        same_structure("law", a, b)
    else:
        with pytest.raises(StructureError, match=r"^law") as caught:
            same_structure("law", a, b)
        assert "\n" not in str(caught.value)


DIFFERENT: dict[str, tuple[Any, Any, str]] = {
    "key": (
        {"a": torch.ones(1)},
        {"b": torch.ones(1)},
        "f is another structure, wanted the one it had; leaves ['a', 'b'] differ",
    ),
    "container": (
        (torch.ones(1),),
        [torch.ones(1)],
        "f is another structure, wanted the one it had; containers, the order of keys or static fields differ",
    ),
    "order of keys": (
        {"a": torch.ones(1), "b": torch.ones(1)},
        {"b": torch.ones(1), "a": torch.ones(1)},
        "f is another structure, wanted the one it had; containers, the order of keys or static fields differ",
    ),
    "static field": (
        node(),
        node(name="m"),
        "f is another structure, wanted the one it had; containers, the order of keys or static fields differ",
    ),
    "shape": (
        node((3,)),
        node(),
        "f.value is [3] torch.float32, wanted [2] torch.float32; keep shape and dtype",
    ),
    "dtype": (
        {"a": {"b": torch.ones(1)}},
        {"a": {"b": torch.ones(1) > 0}},
        "f.a.b is [1] torch.float32, wanted [1] torch.bool; keep shape and dtype",
    ),
    "a leaf alone": (
        torch.ones(()),
        torch.ones(1),
        "f is [] torch.float32, wanted [1] torch.float32; keep shape and dtype",
    ),
    "a number": ((1,), (1,), "f.0 is int, wanted a tensor; make it a tensor"),
    "None": ((None,), (torch.ones(1),), "f.0 is NoneType, wanted [1] torch.float32; make it a tensor"),
}


@pytest.mark.parametrize(("got", "wanted", "text"), DIFFERENT.values(), ids=DIFFERENT)
def test_same_structure_names_the_first_difference(got: Any, wanted: Any, text: str) -> None:
    with pytest.raises(StructureError) as caught:
        same_structure("f", got, wanted)
    assert str(caught.value) == text


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_all_finite_sees_one_bad_number_anywhere(bad: float) -> None:
    good: dict[str, Any] = {"a": torch.ones(2, 2), "b": (torch.tensor(3), node()), "c": torch.ones(0)}
    assert all_finite(good).item() is True
    assert all_finite(good | {"a": torch.tensor([[1.0, 1.0], [1.0, bad]])}).item() is False
    assert all_finite(good | {"c": torch.tensor(bad, dtype=torch.bfloat16)}).item() is False


def test_all_finite_is_a_tensor_under_vmap_and_for_trees_without_floats() -> None:
    values = torch.tensor([1.0, torch.nan])
    assert torch.vmap(lambda x: all_finite({"x": x, "n": x.long()}))(values).tolist() == [True, False]
    assert all_finite((torch.tensor(1), ())).item() is True
    assert torch.vmap(lambda x: all_finite(x.long()))(torch.ones(2)).tolist() == [True, True]
