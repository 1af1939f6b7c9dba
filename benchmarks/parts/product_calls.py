"""The kernel of runtime/inductor/products.h called from C++ beside the library, and programs compiled without it."""

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path

import torch
import torch._inductor.config as inductor
from torch import Tensor
from torch._inductor.codecache import CppCodeCache

from purestep.runtime.inductor import loop_codegen
from purestep.runtime.inductor.products import HEADER
from purestep.runtime.inductor.replace_attributes import replace_attributes

TIMING = Path(__file__).with_name("product_timing.cpp")


def compiled() -> ctypes.CDLL:
    """The functions of product_timing.cpp, built for this processor as a program's kernels are."""
    library: ctypes.CDLL = CppCodeCache.load(HEADER.read_text() + TIMING.read_text())
    for name in ("library_seconds", "onednn_seconds", "own_seconds", "peak"):
        getattr(library, name).restype = ctypes.c_double
    return library


def handle(tensor: Tensor | None) -> ctypes.c_void_p | None:
    """A tensor as C++ takes it; it is never freed."""
    if tensor is None:
        return None
    capsule = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([tensor])[0]
    name = ctypes.pythonapi.PyCapsule_GetName
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p(pointer(capsule, name(capsule)))


@contextlib.contextmanager
def library_products() -> Iterator[None]:
    """Compile programs in the block with the library's products alone."""
    marks = {**inductor.unsafe_marked_cacheable_functions, "library products": "1"}
    with (
        replace_attributes(loop_codegen, {"multiplied": lambda text: text}),
        inductor.patch(unsafe_marked_cacheable_functions=marks),
    ):
        yield
