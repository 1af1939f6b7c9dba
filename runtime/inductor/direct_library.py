"""The compiled form of a traced graph: a library, and the way from arguments to a result; kept as bytes."""

import importlib.util
import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
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
    entry: Callable[..., Any]

    def __call__(self, arguments: Sequence[Any]) -> Any:
        tensors = [leaf for leaf in arguments if isinstance(leaf, Tensor)]
        handles = AOTI.unsafe_alloc_void_ptrs_from_tensors([*tensors, *self.captured])
        computed = AOTI.alloc_tensors_by_stealing_from_void_ptrs(self.entry(handles))
        sources = {Computed: computed, Passed: tensors}
        leaves = [sources[type(one)][one.position] if type(one) in sources else one for one in self.outputs]
        return pytree.tree_unflatten(leaves, self.structure)

    def dump(self) -> bytes:
        """Return it as bytes. Raises: what pickle raises for a structure or constant that it cannot describe."""
        captured = [tensor.detach() for tensor in self.captured]  # with their strides, which the code was made for
        return MAGIC + pickle.dumps((self.code, captured, list(self.outputs), self.structure))


def load_library(data: bytes, folder: Path) -> Library:
    """Return the library that `dump` returned these bytes for; they must be known to be ours, since they hold code.

    The code is loaded from a file in the folder that exists as long as that takes.
    """
    code, captured, outputs, structure = pickle.loads(data[len(MAGIC) :])
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
    return Library(code, captured, outputs, structure, getattr(module, ENTRY))
