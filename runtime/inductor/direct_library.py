"""The compiled form of a traced graph: a library, and the way from arguments to a result; kept as bytes."""

import importlib.util
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from attrs import frozen
from torch import Tensor

MAGIC = b"purestep library\n"
AOTI: Any = vars(torch._C)["_aoti"]  # tensors as handles
ENTRY = "inductor_entry_cpp"


@frozen
class Computed:
    """A leaf of a result that is an output of the graph."""

    position: int


@frozen
class Passed:
    """A leaf of a result that is an input, as it came."""

    position: int


@frozen
class Library:
    """A compiled graph, called with flat arguments."""

    code: bytes
    captured: Sequence[Tensor]  # tensors that the function closes over: further inputs
    outputs: Sequence[Any]  # for each leaf of the result: Computed, Passed, or the value itself
    structure: pytree.TreeSpec
    donated: Sequence[int]  # places of tensors whose memory results may have taken
    entry: Callable[..., Any]

    def __call__(self, arguments: Sequence[Any]) -> Any:
        tensors = [leaf for leaf in arguments if isinstance(leaf, Tensor)]
        if self.donated:
            tensors = _given_up(tensors, self.captured, self.donated)
        handles = AOTI.unsafe_alloc_void_ptrs_from_tensors([*tensors, *self.captured])
        computed = AOTI.alloc_tensors_by_stealing_from_void_ptrs(self.entry(handles))
        sources = {Computed: computed, Passed: tensors}
        leaves = [sources[type(one)][one.position] if type(one) in sources else one for one in self.outputs]
        return pytree.tree_unflatten(leaves, self.structure)

    def dump(self) -> bytes:
        """Return it as bytes. Raises: what pickle raises for a structure or constant that it cannot describe."""
        captured = [tensor.detach() for tensor in self.captured]  # with their strides, which the code was made for
        return MAGIC + pickle.dumps((self.code, captured, list(self.outputs), self.structure, list(self.donated)))


def load_library(data: bytes, folder: Path) -> Library:
    """Return the library that `dump` returned these bytes for; they must be known to be ours, since they hold code.

    The code is loaded from a file in the folder that exists as long as that takes.
    """
    code, captured, outputs, structure, donated = pickle.loads(data[len(MAGIC) :])
    address = torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr  # type: ignore[attr-defined]
    os.environ["_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"] = str(address)  # the library reads it when it is loaded
    with tempfile.NamedTemporaryFile(prefix=".", suffix=".so", dir=folder) as file:
        file.write(code)
        file.flush()
        spec = importlib.util.spec_from_file_location(f"purestep.{ENTRY}", file.name)
        if spec is None or spec.loader is None:
            raise ImportError(f"no loader for {file.name}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return Library(code, captured, outputs, structure, donated, getattr(module, ENTRY))


def _given_up(tensors: Sequence[Tensor], captured: Sequence[Tensor], donated: Iterable[int]) -> list[Tensor]:
    """Return the tensors, those given up as new ones in their memory, which the caller's own then lack.

    A copy stands for one whose memory another tensor of the call has a part in, or that is itself a part of a larger one.
    """
    owners = Counter(tensor.untyped_storage().data_ptr() for tensor in (*tensors, *captured))
    results = list(tensors)
    for place in donated:
        tensor = tensors[place]
        memory = tensor.untyped_storage()
        whole = owners[memory.data_ptr()] == 1 and memory.nbytes() == tensor.numel() * tensor.itemsize
        if whole and not tensor.requires_grad and not tensor.is_inference():
            results[place] = tensor.detach()
            tensor.set_(tensor.new_empty(0).untyped_storage())
        else:
            results[place] = tensor.detach().clone()
    return results
