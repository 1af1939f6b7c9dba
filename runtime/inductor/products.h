// C = A B, or C = bias + A B, in float32 on one thread: A [M, K], B [K, N], C [M, N] and the bias, all with any strides.
//
// A tile of C, ROWS x COLUMNS, is held in registers while it sums over K. B is copied into panels of as many columns, so that
// any strides of it become the same inner loop, and so that one panel stays in the fastest cache while all rows of A pass it.
// A product with few rows or columns is a dot product for each element, where both operands are contiguous along K.
// Needs AVX-512, or AVX2 with FMA.
#include <algorithm>
#include <cstdint>
#include <immintrin.h>

// Everything is unrolled here, so that the passes beyond O2 would take time without gain.
#pragma GCC push_options
#pragma GCC optimize("O2")

namespace purestep_products {

typedef int64_t Int;

#if defined(__AVX512F__)
constexpr int WIDTH = 16, ROWS = 6, VECTORS = 4;
#else
constexpr int WIDTH = 8, ROWS = 6, VECTORS = 2;
#endif
constexpr int COLUMNS = WIDTH * VECTORS;
constexpr Int BLOCK = 64;  // of K: the sums of a block are rounded before they are added
constexpr Int FEW = 4;  // rows of dot products
constexpr Int WIDEST = 128;

typedef float Vector __attribute__((vector_size(4 * WIDTH)));
typedef float Loose __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef __m128 Four;

#define PURESTEP_INLINE static inline __attribute__((always_inline))
#define EACH(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < count; i++)

PURESTEP_INLINE Vector load(const float* from) { return *reinterpret_cast<const Loose*>(from); }
PURESTEP_INLINE void store(float* to, Vector value) { *reinterpret_cast<Loose*>(to) = value; }

PURESTEP_INLINE Vector multiply_add(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#else
  return _mm256_fmadd_ps(a, b, c);
#endif
}

template <typename Number>
struct Strided {
  Number* data;
  Int row, column;  // strides
  Number* at(Int i, Int j) const { return data + i * row + j * column; }
  Strided from(Int i, Int j) const { return {at(i, j), row, column}; }
  Strided transposed() const { return {data, column, row}; }
};
typedef Strided<const float> Matrix;
typedef Strided<float> Output;

// A tile of M rows: the sums over k, added to `start` unless that is null. C and `start` have unit column strides.
template <int M, int V>
PURESTEP_INLINE void tile(Int K, Matrix a, const float* b, Int b_row, Output c, Matrix start) {
  Vector sum[M][V] = {};
  for (Int k = 0; k < K; k++) {
    Vector right[V];
    EACH(j, V) right[j] = load(b + k * b_row + j * WIDTH);
    EACH(i, M) {
      const Vector left = *a.at(i, k) - Vector{};
      EACH(j, V) sum[i][j] = multiply_add(left, right[j], sum[i][j]);
    }
  }
  if (start.data) EACH(i, M) EACH(j, V) sum[i][j] += load(start.at(i, j * WIDTH));
  EACH(i, M) EACH(j, V) store(c.at(i, j * WIDTH), sum[i][j]);
}

// The same for N columns; where they do not fill the vectors or have other strides, through memory of its own.
template <int M, int V>
static void columns(Int K, Int N, Matrix a, const float* b, Int b_row, Output c, Matrix start) {
  if (N == V * WIDTH && c.column == 1 && (start.column == 1 || !start.data))
    return tile<M, V>(K, a, b, b_row, c, start);
  alignas(64) float own[M * V * WIDTH];
  tile<M, V>(K, a, b, b_row, Output{own, V * WIDTH, 1}, Matrix{nullptr, 0, 1});
  for (Int i = 0; i < M; i++)
    for (Int j = 0; j < N; j++) *c.at(i, j) = own[i * V * WIDTH + j] + (start.data ? *start.at(i, j) : 0.0f);
}

template <int M>
static void rows(Int K, Int N, Matrix a, const float* b, Int b_row, Output c, Matrix start) {
  if (N > COLUMNS / 2)
    columns<M, VECTORS>(K, N, a, b, b_row, c, start);
  else
    columns<M, VECTORS / 2>(K, N, a, b, b_row, c, start);
}

template <int M>
static void last_rows(Int m, Int K, Int N, Matrix a, const float* b, Int b_row, Output c, Matrix start) {
  if (m == M)
    rows<M>(K, N, a, b, b_row, c, start);
  else if constexpr (M > 1)
    last_rows<M - 1>(m, K, N, a, b, b_row, c, start);
}

PURESTEP_INLINE void transpose_four(const float* from, Int step, float* to, Int to_step) {
  Four a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + step);
  Four c = _mm_loadu_ps(from + 2 * step), d = _mm_loadu_ps(from + 3 * step);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(to, a);
  _mm_storeu_ps(to + to_step, b);
  _mm_storeu_ps(to + 2 * to_step, c);
  _mm_storeu_ps(to + 3 * to_step, d);
}

// A panel [K, COLUMNS] of N columns of B; the others are zero.
static void pack(Int K, Int N, Matrix b, float* panel) {
  if (b.column == 1 && N == COLUMNS) {
    for (Int k = 0; k < K; k++)
      for (int j = 0; j < VECTORS; j++) store(panel + k * COLUMNS + j * WIDTH, load(b.at(k, j * WIDTH)));
    return;
  }
  if (N < COLUMNS) std::fill_n(panel, K * COLUMNS, 0.0f);
  const Int fours = b.row == 1 ? K / 4 * 4 : 0, fours_of_columns = b.row == 1 ? N / 4 * 4 : 0;
  for (Int j = 0; j < fours_of_columns; j += 4)
    for (Int k = 0; k < fours; k += 4) transpose_four(b.at(k, j), b.column, panel + k * COLUMNS + j, COLUMNS);
  for (Int k = 0; k < K; k++)
    for (Int j = k < fours ? fours_of_columns : 0; j < N; j++) panel[k * COLUMNS + j] = *b.at(k, j);
}

static void tiles(Int M, Int N, Int K, Matrix a, Matrix b, Output c, Matrix bias) {
  alignas(64) float panel[BLOCK * COLUMNS];
  for (Int k = 0; k < K; k += BLOCK) {
    const Int depth = std::min(BLOCK, K - k);
    const Matrix start = k ? Matrix{c.data, c.row, c.column} : bias;
    for (Int j = 0; j < N; j += COLUMNS) {
      const Int width = std::min<Int>(COLUMNS, N - j);
      const bool direct = b.column == 1 && width == COLUMNS && M <= 2 * ROWS;
      if (!direct) pack(depth, width, b.from(k, j), panel);
      const float* right = direct ? b.at(k, j) : panel;
      const Int right_row = direct ? b.row : COLUMNS;
      const auto from = [&](Int i) { return start.data ? start.from(i, j) : start; };
      Int i = 0;
      for (; i + ROWS <= M; i += ROWS) rows<ROWS>(depth, width, a.from(i, k), right, right_row, c.from(i, j), from(i));
      last_rows<ROWS - 1>(M - i, depth, width, a.from(i, k), right, right_row, c.from(i, j), from(i));
    }
  }
}

PURESTEP_INLINE Four quarter(Vector value) {
  float all[WIDTH];
  store(all, value);
  Four sum = _mm_loadu_ps(all);
  for (int i = 4; i < WIDTH; i += 4) sum = _mm_add_ps(sum, _mm_loadu_ps(all + i));
  return sum;
}

// The sum of all numbers of each of four vectors.
PURESTEP_INLINE Four totals(Vector w, Vector x, Vector y, Vector z) {
  return _mm_hadd_ps(_mm_hadd_ps(quarter(w), quarter(x)), _mm_hadd_ps(quarter(y), quarter(z)));
}

// M rows of A and V columns of B, contiguous along K.
template <int M, int V>
PURESTEP_INLINE void dots(Int K, Matrix a, Matrix b, Output c, Matrix bias) {
  Vector sum[M][V] = {};
  Int k = 0;
  for (; k + WIDTH <= K; k += WIDTH) {
    Vector right[V];
    EACH(j, V) right[j] = load(b.at(k, j));
    EACH(i, M) {
      const Vector left = load(a.at(i, k));
      EACH(j, V) sum[i][j] = multiply_add(left, right[j], sum[i][j]);
    }
  }
  EACH(i, M) {
    float all[FEW];
    _mm_storeu_ps(all, totals(sum[i][0], sum[i][V > 1], sum[i][V > 2 ? 2 : 0], sum[i][V > 3 ? 3 : 0]));
    for (int j = 0; j < V; j++) {
      float whole = all[j];
      for (Int l = k; l < K; l++) whole += *a.at(i, l) * *b.at(l, j);
      *c.at(i, j) = whole + (bias.data ? *bias.at(i, j) : 0.0f);
    }
  }
}

template <int M>
static void few_rows(Int m, Int N, Int K, Matrix a, Matrix b, Output c, Matrix bias) {
  if (m == M) {
    const auto from = [&](Int j) { return bias.data ? bias.from(0, j) : bias; };
    Int j = 0;
    for (; j + FEW <= N; j += FEW) dots<M, FEW>(K, a, b.from(0, j), c.from(0, j), from(j));
    for (; j < N; j++) dots<M, 1>(K, a, b.from(0, j), c.from(0, j), from(j));
  } else if constexpr (M > 1) {
    few_rows<M - 1>(m, N, K, a, b, c, bias);
  }
}

static void product(Int M, Int N, Int K, Matrix a, Matrix b, Output c, Matrix bias) {
  if (K == 0) {
    for (Int i = 0; i < M; i++)
      for (Int j = 0; j < N; j++) *c.at(i, j) = bias.data ? *bias.at(i, j) : 0.0f;
  } else if (M <= FEW && a.column == 1 && b.row == 1) {
    few_rows<FEW>(M, N, K, a, b, c, bias);
  } else if (N <= FEW && a.column == 1 && b.row == 1) {
    few_rows<FEW>(N, M, K, b.transposed(), a.transposed(), c.transposed(), bias.transposed());
  } else if (c.column != 1 ? c.row == 1 : N < WIDTH && M > N) {
    tiles(N, M, K, b.transposed(), a.transposed(), c.transposed(), bias.transposed());
  } else {
    tiles(M, N, K, a, b, c, bias);
  }
}

}  // namespace purestep_products

// Sizes for which the kernel was measured to be the faster one: B and C without ragged edges, or with so few rows or columns that
// they are dot products, and at most one size so large that a library would divide it for its caches.
extern "C" __attribute__((visibility("hidden"))) bool purestep_product_serves(int64_t batch, int64_t M, int64_t N, int64_t K) {
  using namespace purestep_products;
  const bool few = batch == 1 && std::min(M, N) <= FEW, whole = N > 0 && N % (batch == 1 ? COLUMNS / 2 : COLUMNS) == 0;
  return (few || whole) && K > 1 && (M > WIDEST) + (N > WIDEST) + (K > WIDEST) <= 1;
}

// One product for each member of a batch; strides are those of the batch, the rows and the columns. `bias` is null for none.
extern "C" __attribute__((visibility("hidden"))) void purestep_product(
    int64_t batch, int64_t M, int64_t N, int64_t K, const float* a, const int64_t* a_strides, const float* b,
    const int64_t* b_strides, float* c, const int64_t* c_strides, const float* bias, const int64_t* bias_strides) {
  using namespace purestep_products;
  for (int64_t i = 0; i < batch; i++)
    product(M, N, K, Matrix{a + i * a_strides[0], a_strides[1], a_strides[2]},
            Matrix{b + i * b_strides[0], b_strides[1], b_strides[2]},
            Output{c + i * c_strides[0], c_strides[1], c_strides[2]},
            bias ? Matrix{bias + i * bias_strides[0], bias_strides[1], bias_strides[2]} : Matrix{nullptr, 0, 0});
}

#undef EACH
#pragma GCC pop_options
