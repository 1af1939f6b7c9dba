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

from .compile_speed import replaced
from .direct_trace import Computed, Passed, Traced, Untraced

MAGIC = b"purestep library\n"
AOTI: Any = vars(torch._C)["_aoti"]  # tensors as handles
ENTRY = "inductor_entry_cpp"


@frozen
class Library:
    """A compiled graph, called with flat arguments."""

    code: bytes
    captured: Sequence[Tensor]  # tensors that the function closes over: further inputs
    outputs: Sequence[Any]  # see `Traced`
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
        captured = [tensor.detach().contiguous() for tensor in self.captured]
        return MAGIC + pickle.dumps((self.code, captured, list(self.outputs), self.structure))


def compiled(one: Traced) -> Library:
    """Return the graph, compiled for the processor by inductor's own passes and code generator."""
    from torch._guards import TracingContext, tracing
    from torch._inductor import codecache, compile_fx, config
    from torch._inductor.virtualized import V

    from .philox import generated

    modules = []
    load = codecache.CppWrapperCodeCache._load_library_inner.__func__  # type: ignore[attr-defined]

    def noted(owner: Any, path: str, key: str) -> Any:
        modules.append(load(owner, path, key))
        return modules[-1]

    noting = replaced(codecache.CppWrapperCodeCache, {"_load_library_inner": classmethod(noted)})
    options = config.patch(compile_fx.get_cpp_wrapper_config())
    with tracing(TracingContext(one.mode)), V.set_fake_mode(one.mode), options, noting, generated():
        graph = compile_fx._recursive_joint_graph_passes(one.graph)
        compile_fx.compile_fx_inner(graph, one.inputs, is_inference=True, cpp_wrapper=True)
    if not modules:
        raise Untraced("a graph without operations")
    code = Path(modules[-1].__file__).read_bytes()
    return Library(code, one.captured, one.outputs, one.structure, getattr(modules[-1], ENTRY))


def loaded(data: bytes) -> Library:
    """Return the library that `dump` returned these bytes for; they must be known to be ours, since they hold code."""
    code, captured, outputs, structure = pickle.loads(data[len(MAGIC) :])
    address = torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr  # type: ignore[attr-defined]
    os.environ["_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"] = str(address)  # the library reads it when it is loaded
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")  # see `keep_to_oneself`
    if folder:
        os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile(suffix=".so", dir=folder) as file:
        file.write(code)
        file.flush()
        spec = importlib.util.spec_from_file_location(f"purestep.{ENTRY}", file.name)
        if spec is None or spec.loader is None:
            raise ImportError(f"no loader for {file.name}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return Library(code, captured, outputs, structure, getattr(module, ENTRY))
