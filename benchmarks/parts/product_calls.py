"""The kernel of products.h: called from Python, and in place of the library's products in a compiled program."""

import contextlib
import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor
from torch import Tensor
from torch._inductor.codecache import CppCodeCache

from purestep.runtime.inductor import loop_codegen
from purestep.runtime.inductor.compile_speed import replaced
from purestep.runtime.inductor.hoist_buffers import hoisted

HEADER = Path(__file__).with_name("products.h")
TIMING = Path(__file__).with_name("product_timing.cpp")
WIDEST = 256  # only one of M, N and K may be larger: the kernel divides only K into blocks

CALL = re.compile(r"(\s*)(AOTI_TORCH_ERROR_CODE_CHECK\(aoti_torch_cpu_(mm|addmm|bmm|baddbmm)_out\((.*)\)\);)$")
OWNED = re.compile(r"RAIIAtenTensorHandle\((\w+)\)$")
VIEW = re.compile(r"wrap_with_raii_handle_if_needed\(reinterpret_tensor_wrapper\((\w+, \d+, \w+, \w+, \d+L)\)\)$")
INCLUDED = "#include <torch/csrc/inductor/cpp_wrapper/cpu.h>\n"
KERNELS = 'kernel_src = (\nr"""'  # where a program's C++ of its kernels begins, if it has any
NONE = "kernel_src = ''"
VIEWS = """
extern "C" void purestep_product(
    int64_t batch, int64_t M, int64_t N, int64_t K, const float* a, const int64_t* a_strides, const float* b,
    const int64_t* b_strides, float* c, const int64_t* c_strides, const float* bias, const int64_t* bias_strides);

struct PurestepView {
  AtenTensorHandle handle = nullptr;
  float* data = nullptr;
  int64_t axes = 0;
  const int64_t *sizes = nullptr, *strides = nullptr;
  PurestepView() {}
  explicit PurestepView(AtenTensorHandle whole) : handle(whole), data(start_of(whole)) {
    int64_t *own_sizes, *own_strides;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(handle, &axes));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(handle, &own_sizes));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(handle, &own_strides));
    sizes = own_sizes;
    strides = own_strides;
  }
  PurestepView(AtenTensorHandle whole, int64_t ndim, const int64_t* its_sizes, const int64_t* its_strides, int64_t offset)
      : handle(whole), data(start_of(whole) + offset), axes(ndim), sizes(its_sizes), strides(its_strides) {}
  static float* start_of(AtenTensorHandle whole) {
    void* start;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(whole, &start));
    return static_cast<float*>(start);
  }
  int64_t size(int64_t from_last) const { return from_last > axes ? 1 : sizes[axes - from_last]; }
  int64_t stride(int64_t from_last) const { return size(from_last) == 1 ? 0 : strides[axes - from_last]; }
};

static bool purestep_multiplied(
    const PurestepView& c, const PurestepView& bias, const PurestepView& a, const PurestepView& b) {
  int32_t dtype;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(c.handle, &dtype));
  const int64_t M = a.size(2), K = a.size(1), N = b.size(1);
  if (dtype != aoti_torch_dtype_float32() || K == 1 || (M > WIDEST) + (N > WIDEST) + (K > WIDEST) > 1) return false;
  int64_t strides[4][3];
  const PurestepView* views[] = {&c, &bias, &a, &b};
  for (int view = 0; view < 4; view++)
    for (int axis = 0; axis < 3; axis++) strides[view][axis] = views[view]->stride(3 - axis);
  purestep_product(
      c.size(3), M, N, K, a.data, strides[2], b.data, strides[3], c.data, strides[0], bias.data, strides[1]);
  return true;
}
"""


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


def own_arguments(a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor) -> list[Any]:
    """The arguments of `purestep_product` for a product of two or three axes; the bias is broadcast to the output."""
    wide = None if bias is None else bias.expand(out.shape)
    sizes = (out.shape[0] if out.ndim == 3 else 1, a.shape[-2], b.shape[-1], a.shape[-1])
    arguments: list[Any] = [ctypes.c_int64(size) for size in sizes]
    for tensor in (a, b, out, wide):
        strides = () if tensor is None else tuple(tensor.stride())
        filled = (0,) * (3 - len(strides)) + strides
        arguments += [None if tensor is None else ctypes.c_void_p(tensor.data_ptr()), (ctypes.c_int64 * 3)(*filled)]
    return arguments


@contextlib.contextmanager
def own_products() -> Iterator[list[int]]:
    """Compile programs in the block with our products wherever they serve; gives the number of calls in each program."""
    counts: list[int] = []

    def multiplying(text: str) -> str:
        text, count = multiplied(hoisted(text))
        counts.append(count)
        return text

    marks = {**inductor.unsafe_marked_cacheable_functions, "purestep_product": HEADER.read_text() + VIEWS}
    with replaced(loop_codegen, {"hoisted": multiplying}), inductor.patch(unsafe_marked_cacheable_functions=marks):
        yield counts


def multiplied(text: str) -> tuple[str, int]:
    """A program's C++ with our products, and how many there are; the same text where it has none."""
    lines = text.split("\n")
    changed = [rewritten(line, number) for number, line in enumerate(lines)]
    count = sum(one != other for one, other in zip(lines, changed, strict=True))
    if not count or INCLUDED not in text or not (KERNELS in text or NONE in text):
        return text, 0
    kernel = f"{KERNELS}\n{HEADER.read_text()}"
    whole = "\n".join(changed).replace(INCLUDED, INCLUDED + VIEWS.replace("WIDEST", str(WIDEST)), 1)
    return whole.replace(NONE, f'{kernel}"""\n)', 1).replace(KERNELS, kernel, KERNELS in text), count


def rewritten(line: str, number: int) -> str:
    """The line, with a call of the library only where our own refuses.

    >>> rewritten("x = y", 0)
    'x = y'
    >>> print(rewritten("AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, a, b));", 0)[:70])
    { if (!purestep_multiplied(PurestepView(buf0), PurestepView(), Pureste
    """
    found = CALL.match(line)
    if not found:
        return line
    indent, call, kind, given = found.groups()
    words, before = arguments(given), ""
    if kind in ("addmm", "baddbmm"):
        *words, beta, alpha = words
        if {float(beta.rstrip("L")), float(alpha.rstrip("L"))} != {1.0}:
            return line
    else:
        words.insert(1, "")
    for place, word in enumerate(words):
        owned = OWNED.match(word)
        if owned:  # it frees its tensor when the call is over, so that it can be written only once
            name = f"purestep_owned_{number}_{place}"
            before += f"RAIIAtenTensorHandle {name}({owned[1]}); "
            call, words[place] = call.replace(word, name), name
    views = [f"PurestepView({VIEW.sub(lambda view: view[1], word)})" for word in words]
    return f"{indent}{{ {before}if (!purestep_multiplied({', '.join(views)})) {{ {call} }} }}"


def arguments(text: str) -> list[str]:
    """The arguments of a call.

    >>> arguments("buf0, view(arg1, 2), 1L")
    ['buf0', 'view(arg1, 2)', '1L']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
