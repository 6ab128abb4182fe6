// Weights of 8 bits with a scale for each row: products of a few rows of x, reading the weights
// once unconverted; rows as floats; rows by token.
#include "backend/cuda/device/activation.h"
#include "backend/cuda/device/words.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int warps = 8, threads = 32 * warps;
constexpr int most_rows = 8;  // of x: from some more on the arithmetic takes longer than reading the weights

// Byte i of a word as a float. The byte with its sign bit flipped is the lowest of the mantissa of
// 2^23, and the difference from 2^23 + 128 is exact: two fast operations, where a conversion of
// integers is slow.
__device__ inline float int8_of(uint32_t word, int i) {
  uint32_t byte = ((word >> (8 * i)) ^ 0x80u) & 0xffu;
  return __uint_as_float(0x4b000000u | byte) - 8388736.f;
}

// W codes of a row: a word holds four.
template <int W>
struct Codes {
  Words<uint8_t, W> words;
  __device__ void load(const int8_t* p) { words = load_words<W>(reinterpret_cast<const uint8_t*>(p)); }
  __device__ float operator[](int i) const { return int8_of(words.w[i / 4], i % 4); }
};
template <>
struct Codes<1> {
  int8_t code;
  __device__ void load(const int8_t* p) { code = *p; }
  __device__ float operator[](int) const { return float(code); }
};

struct ProductArgs {
  int64_t n, k;
  int rows;
  bool gelu;
};

// A warp makes `outputs` columns of y for all rows of x (Rows or fewer). A lane takes W elements of
// k at a time; its loads of a step are all under way before the first is used. The order of the
// sums depends on k and W only.
template <class T, int W, int Rows, int outputs>
__global__ void __launch_bounds__(threads)
    few_rows(ProductArgs a, const T* x, const int8_t* w, const float* scale, const T* bias, T* y) {
  wait_for_predecessors();
  constexpr int in_flight = W == 1 ? 1 : 2;
  constexpr int V = W < 16 / int(sizeof(T)) ? W : 16 / int(sizeof(T));  // elements of x in one load
  const int lane = int(threadIdx.x) % 32;
  const int64_t first = (int64_t(blockIdx.x) * warps + threadIdx.x / 32) * outputs;
  float sums[outputs][Rows] = {};
  for (int64_t k0 = lane * W; k0 < a.k; k0 += 32 * W * in_flight) {
    Codes<W> codes[in_flight][outputs] = {};
#pragma unroll
    for (int u = 0; u < in_flight; ++u)
#pragma unroll
      for (int o = 0; o < outputs; ++o)
        if (int64_t k = k0 + u * 32 * W; k < a.k && first + o < a.n) codes[u][o].load(w + (first + o) * a.k + k);
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      const int64_t k = k0 + u * 32 * W;
      if (k >= a.k) break;
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        if (r >= a.rows) break;
#pragma unroll
        for (int v = 0; v < W; v += V) {
          float values[V];
          load_floats(x + r * a.k + k + v, values);
#pragma unroll
          for (int o = 0; o < outputs; ++o)
#pragma unroll
            for (int e = 0; e < V; ++e) sums[o][r] = fmaf(values[e], codes[u][o][v + e], sums[o][r]);
        }
      }
    }
  }
#pragma unroll
  for (int o = 0; o < outputs; ++o)
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const float sum = warp_sum(sums[o][r]);
      const int64_t column = first + o;
      if (lane != 0 || r >= a.rows || column >= a.n) continue;
      float result = sum * scale[column] + (bias ? widen(bias[column]) : 0.f);
      y[r * a.n + column] = narrow<T>(a.gelu ? gelu(result) : result);
    }
}

// A row of codes times its scale, one warp: W elements of a lane at a time.
template <class T, int W>
__device__ inline void write_row(const int8_t* from, float scale, T* to, int64_t columns) {
  constexpr int V = W < 16 / int(sizeof(T)) ? W : 16 / int(sizeof(T));
  for (int64_t c = int(threadIdx.x) % 32 * W; c < columns; c += 32 * W) {
    Codes<W> codes;
    codes.load(from + c);
#pragma unroll
    for (int v = 0; v < W; v += V) {
      float values[V];
#pragma unroll
      for (int e = 0; e < V; ++e) values[e] = codes[v + e] * scale;
      store_floats(to + c + v, values);
    }
  }
}

// All rows, or with ids only their rows.
template <class T, int W>
__global__ void __launch_bounds__(threads) write_rows(const int8_t* q, const float* scale, const int32_t* ids, T* x,
                                                      int64_t rows, int64_t vocab, int64_t columns) {
  wait_for_predecessors();
  const int64_t row = int64_t(blockIdx.x) * warps + threadIdx.x / 32;
  if (row >= rows) return;
  const int64_t from = ids ? ids[row] : row;
  const bool known = from >= 0 && from < vocab;
  write_row<T, W>(q + (known ? from * columns : 0), known ? scale[from] : 0.f, x + row * columns, columns);
}

// body(integral_constant W): the number of codes
// in one load. 16 take a whole warp 512 columns.
template <class Body>
void with_width(int64_t columns, std::initializer_list<const void*> codes, std::initializer_list<const void*> values,
                Body body) {
  const bool fits = aligned(values);
  if (fits && columns % 512 == 0 && aligned(codes)) return body(std::integral_constant<int, 16>());
  if (fits && columns % 8 == 0 && aligned(codes, 8)) return body(std::integral_constant<int, 8>());
  body(std::integral_constant<int, 1>());
}

void launch_rows(const KernelCall& c, const int8_t* q, const float* scale, const int32_t* ids, int64_t rows,
                 const Value& table) {
  const int64_t vocab = table.shape[0], columns = table.shape[1];
  with_type(c.out_value(0).dtype, [&](auto t) {
    using T = decltype(t);
    with_width(columns, {q}, {c.out[0]}, [&](auto width) {
      launch(c, write_rows<T, decltype(width)::value>, blocks_for(rows, warps), threads, 0, q, scale, ids,
             c.output<T>(0), rows, vocab, columns);
    });
  });
}

void launch_dequantize(const KernelCall& c) {
  namespace at = in::dequantize;
  const Value& q = c.in_value(at::q);
  launch_rows(c, c.input<int8_t>(at::q), c.input<float>(at::scale), nullptr, q.shape[0], q);
}

void launch_embedding(const KernelCall& c) {
  namespace at = in::embedding_int8;
  launch_rows(c, c.input<int8_t>(at::table), c.input<float>(at::scale), c.input<int32_t>(at::ids),
              c.in_value(at::ids).numel(), c.in_value(at::table));
}

void launch_product(const KernelCall& c) {
  namespace at = in::linear_int8;
  const Value &x = c.in_value(at::x), &w = c.in_value(at::w);
  ProductArgs a = {};
  a.n = w.shape[0], a.k = w.shape[1], a.rows = int(x.shape.rows());
  a.gelu = c.instr.op == &op_linear_gelu_int8;
  // Two columns a warp read x half as often; one if two would leave multiprocessors without work.
  const bool two = a.n >= int64_t(4) * warps * std::max(1, c.device->multiprocessors);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    with_width(a.k, {c.in[at::w]}, {c.in[at::x]}, [&](auto width) {
      constexpr int W = decltype(width)::value;
      auto start = [&](auto kernel, int outputs) {
        launch(c, kernel, blocks_for(a.n, warps * outputs), threads, 0, a, c.input<T>(at::x), c.input<int8_t>(at::w),
               c.input<float>(at::scale), c.has(at::b) ? c.input<T>(at::b) : nullptr, c.output<T>(0));
      };
      if (a.rows == 1) return two ? start(few_rows<T, W, 1, 2>, 2) : start(few_rows<T, W, 1, 1>, 1);
      if (a.rows == 2) return two ? start(few_rows<T, W, 2, 2>, 2) : start(few_rows<T, W, 2, 1>, 1);
      if (a.rows <= 4) return two ? start(few_rows<T, W, 4, 2>, 2) : start(few_rows<T, W, 4, 1>, 1);
      two ? start(few_rows<T, W, most_rows, 2>, 2) : start(few_rows<T, W, most_rows, 1>, 1);
    });
  });
}

std::string reject(const KernelQuery& q, size_t scale) {
  if (q.in(scale).dtype != DType::f32) return "takes scales of f32";
  if (q.out(0).numel() == 0) return "an empty operand";
  return reject_unless_float(q);
}
std::string reject_dequantize(const KernelQuery& q) {
  return q.in(in::dequantize::q).dtype != DType::i8 ? "takes i8" : reject(q, in::dequantize::scale);
}
std::string reject_embedding(const KernelQuery& q) { return reject(q, in::embedding_int8::scale); }
std::string reject_product(const KernelQuery& q) {
  namespace at = in::linear_int8;
  if (q.in(at::x).shape.rows() > most_rows) return "more than 8 rows are faster as a matrix product";
  if (q.in(at::x).numel() == 0) return "an empty operand";
  return reject(q, at::scale);
}

}  // namespace

Kernel linear_int8_kernel() {
  return {"linear_int8", "cuda.linear_int8.few_rows",      reject_product, nullptr,
          nullptr,       CREST_DEVICE_CODE(launch_product)};
}
Kernel linear_gelu_int8_kernel() {
  return {"linear_gelu_int8",
          "cuda.linear_gelu_int8.few_rows",
          reject_product,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_product)};
}
Kernel dequantize_kernel() {
  return {
      "dequantize", "cuda.dequantize.warp", reject_dequantize, nullptr, nullptr, CREST_DEVICE_CODE(launch_dequantize)};
}
Kernel embedding_int8_kernel() {
  return {"embedding_int8", "cuda.embedding_int8.warp",         reject_embedding, nullptr,
          nullptr,          CREST_DEVICE_CODE(launch_embedding)};
}

}  // namespace crest::cuda
