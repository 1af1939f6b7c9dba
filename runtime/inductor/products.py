"""Matrix products of compiled programs by a kernel of our own, where it is faster than the library's.

The kernel, products.h, is compiled once a machine; `compile_speed.hurried` links it to each program that calls it. It takes
products of float32 on one thread with sizes like those of small networks, and leaves others to the library at each call.
`benchmarks.products` compares both.
"""

import re
from pathlib import Path
from typing import Any

import torch
import torch._inductor.codecache as codecache
from torch._inductor.cpu_vec_isa import pick_vec_isa

HEADER = Path(__file__).with_name("products.h")
VECTORS = ("AVX2", "AVX512")  # the instruction sets that the kernel is written for

CALL = re.compile(r"(\s*)(AOTI_TORCH_ERROR_CODE_CHECK\(aoti_torch_cpu_(mm|addmm|bmm|baddbmm)_out\((.*)\)\);)$")
OWNED = re.compile(r"RAIIAtenTensorHandle\((\w+)\)$")
VIEW = re.compile(r"wrap_with_raii_handle_if_needed\(reinterpret_tensor_wrapper\((\w+, \d+, \w+, \w+, \d+L)\)\)$")
INCLUDED = "#include <torch/csrc/inductor/cpp_wrapper/cpu.h>\n"
CALLED = "purestep_multiplied("
CALLS = """
extern "C" bool purestep_product_serves(int64_t batch, int64_t M, int64_t N, int64_t K);
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
  const int64_t batch = c.size(3), M = a.size(2), K = a.size(1), N = b.size(1);
  if (dtype != aoti_torch_dtype_float32() || !purestep_product_serves(batch, M, N, K)) return false;
  int64_t strides[4][3];
  const PurestepView* views[] = {&c, &bias, &a, &b};
  for (int view = 0; view < 4; view++)
    for (int axis = 0; axis < 3; axis++) strides[view][axis] = views[view]->stride(3 - axis);
  purestep_product(batch, M, N, K, a.data, strides[2], b.data, strides[3], c.data, strides[0], bias.data, strides[1]);
  return true;
}
"""


def multiplied(text: str) -> str:
    """Return a program's C++ with the kernel tried before each call of the library.

    Unchanged where the program has no such call, runs on several threads, or the kernel is not written for this processor.
    """
    lines = text.split("\n")
    changed = [_tried(line, number) for number, line in enumerate(lines)]
    written = torch.backends.cpu.get_cpu_capability() in VECTORS and torch.get_num_threads() == 1
    if changed == lines or not written or INCLUDED not in text:
        return text
    return "\n".join(changed).replace(INCLUDED, INCLUDED + CALLS, 1)


def calls_kernel(source: str) -> bool:
    """Return whether the C++ in this file has to be linked with the kernel."""
    return CALLED in Path(source).read_text()


def compiled_kernel() -> str:
    """Return the path of the kernel's object file, compiled if this machine has none yet for these flags."""
    from torch._inductor.cpp_builder import CppBuilder, CppTorchDeviceOptions, get_name_and_dir_from_output_file_path
    from torch.utils._filelock import FileLock

    options = CppTorchDeviceOptions(vec_isa=pick_vec_isa(), compile_only=True, device_type="cpu")
    flags = CppBuilder(name="o", sources="i", BuildOption=options).get_command_line()
    key, path = codecache.write(HEADER.read_text(), "products.cpp", extra=flags)
    name, folder = get_name_and_dir_from_output_file_path(path)
    builder: Any = CppBuilder(name=f"{name}.part", sources=path, BuildOption=options, output_dir=folder)
    target = Path(path).with_suffix(".o")
    with FileLock(str(Path(codecache.get_lock_dir(), f"{key}.lock")), timeout=codecache.LOCK_TIMEOUT):
        if not target.exists():  # whole, or not at all: every later program is linked with it
            builder.build()
            Path(builder.get_target_file_path()).replace(target)
    return str(target)


def _tried(line: str, number: int) -> str:
    """Return the line, with a call of the library only where the kernel refuses.

    >>> _tried("x = y", 0)
    'x = y'
    >>> print(_tried("AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, a, b));", 0)[:70])
    { if (!purestep_multiplied(PurestepView(buf0), PurestepView(), Pureste
    """
    found = CALL.match(line)
    if not found:
        return line
    indent, call, kind, given = found.groups()
    words, before = _arguments(given), ""
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


def _arguments(text: str) -> list[str]:
    """Return the arguments of a call.

    >>> _arguments("buf0, view(arg1, 2), 1L")
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
