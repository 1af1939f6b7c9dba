// Products by the library, by oneDNN and by the kernel of runtime/inductor/products.h, which stands above this text: seconds a call.
#include <torch/csrc/inductor/aoti_torch/c/shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <chrono>

namespace {

template <typename Call>
double seconds(int64_t calls, Call call) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; i++) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
}

}  // namespace

extern "C" {

double library_seconds(
    int64_t calls, AtenTensorHandle out, AtenTensorHandle bias, AtenTensorHandle a, AtenTensorHandle b) {
  int64_t axes;
  aoti_torch_get_dim(a, &axes);
  return seconds(calls, [&] {
    if (axes == 3 && bias)
      aoti_torch_cpu_baddbmm_out(out, bias, a, b, 1, 1);
    else if (axes == 3)
      aoti_torch_cpu_bmm_out(out, a, b);
    else if (bias)
      aoti_torch_cpu_addmm_out(out, bias, a, b, 1, 1);
    else
      aoti_torch_cpu_mm_out(out, a, b);
  });
}

// `weight` is b transposed; the result is a new tensor.
double onednn_seconds(int64_t calls, AtenTensorHandle bias, AtenTensorHandle a, AtenTensorHandle weight) {
  return seconds(calls, [&] {
    AtenTensorHandle result;
    aoti_torch_cpu__linear_pointwise(a, weight, bias ? &bias : nullptr, "none", nullptr, 0, nullptr, &result);
    aoti_torch_delete_tensor_object(result);
  });
}

double own_seconds(
    int64_t calls, int64_t batch, int64_t M, int64_t N, int64_t K, const float* a, const int64_t* a_strides,
    const float* b, const int64_t* b_strides, float* c, const int64_t* c_strides, const float* bias,
    const int64_t* bias_strides) {
  return seconds(calls, [&] {
    purestep_product(batch, M, N, K, a, a_strides, b, b_strides, c, c_strides, bias, bias_strides);
  });
}

// Floating-point operations a second of 12 independent chains of multiply-and-add, as many as hide its latency.
double peak(int64_t calls) {
  using namespace purestep_products;
  Vector a = Vector{} + 0.5f, b = Vector{} + 1.0f;
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define BEGIN(i) Vector x##i = Vector{};
#define OPAQUE(i) asm volatile("" : "+x"(x##i));
#define STEP(i) x##i = multiply_add(x##i, a, b);
  EACH(BEGIN) EACH(OPAQUE)
  asm volatile("" : "+x"(a), "+x"(b));
  const double each = seconds(calls, [&] { EACH(STEP) });
  EACH(OPAQUE)
  return 2.0 * 12 * WIDTH / each;
}
}
