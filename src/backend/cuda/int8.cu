// linear_int8, embedding_int8: weights of int8 with a scale for each row. A warp computes an output
// for up to 8 rows of x and reads its row of the weights once: what decoding needs. Many rows read
// them again for each 8.
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int warps = 8;

// W bytes of w at a time, W = 1 where rows are not aligned.
template <class T, class B, int R, int W>
__global__ void linear_int8_rows(const T* x, const int8_t* w, const float* scale, const B* b, T* y, int64_t rows,
                                 int64_t n, int64_t k) {
  wait_for_predecessors();
  const int64_t j = int64_t(blockIdx.x) * warps + threadIdx.x / 32, first = int64_t(blockIdx.y) * R;
  if (j >= n) return;
  const int8_t* row = w + j * k;
  float sum[R] = {};
#pragma unroll 4
  for (int64_t i = threadIdx.x % 32 * W; i < k; i += 32 * W) {
    float v[W];
    if constexpr (W == 4) {
      const uint32_t packed = *reinterpret_cast<const uint32_t*>(row + i);
#pragma unroll
      for (int e = 0; e < W; ++e) v[e] = float(int8_t(packed >> 8 * e & 0xff));
    } else {
      v[0] = float(row[i]);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (first + r >= rows) break;
      const Vec<T, W> in = load_vec<W>(x + (first + r) * k + i);
#pragma unroll
      for (int e = 0; e < W; ++e) sum[r] += widen(in.x[e]) * v[e];
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (first + r >= rows) break;
    const float total = warp_sum(sum[r]);
    if (threadIdx.x % 32 == 0) y[(first + r) * n + j] = narrow<T>(total * scale[j] + (b ? widen(b[j]) : 0.f));
  }
}

template <class T, class B, int R>
void launch_rows(const KernelCall& c, const B* b) {
  namespace at = in::linear_int8;
  const Value &x = c.in_value(at::x), &w = c.in_value(at::w);
  const int64_t rows = x.shape.rows(), n = w.shape[0], k = w.shape[1];
  const bool vectors = k % 4 == 0 && aligned({c.in[at::x], c.in[at::w]});
  auto kernel = vectors ? linear_int8_rows<T, B, R, 4> : linear_int8_rows<T, B, R, 1>;
  launch(c, kernel, dim3(blocks_for(n, warps), blocks_for(rows, R)), warps * 32, 0, c.input<T>(at::x),
         c.input<int8_t>(at::w), c.input<float>(at::scale), b, c.output<T>(0), rows, n, k);
}

void launch_linear(const KernelCall& c) {
  namespace at = in::linear_int8;
  const int64_t rows = c.in_value(at::x).shape.rows();
  with_type(c.in_value(at::x).dtype, [&](auto t) {
    using T = decltype(t);
    auto run = [&](const auto* b) {
      using B = std::remove_const_t<std::remove_pointer_t<decltype(b)>>;
      if (rows == 1)
        launch_rows<T, B, 1>(c, b);
      else
        launch_rows<T, B, 8>(c, b);
    };
    if (!c.has(at::b)) return run(static_cast<const T*>(nullptr));
    with_type(c.in_value(at::b).dtype, [&](auto u) { run(c.input<decltype(u)>(at::b)); });
  });
}

template <class T>
__global__ void embedding_int8_rows(const int32_t* ids, const int8_t* table, const float* scale, T* out, int64_t rows,
                                    int64_t vocab, int64_t cols) {
  wait_for_predecessors();
  const int64_t row = int64_t(blockIdx.x) * warps + threadIdx.x / 32;
  if (row >= rows) return;
  const int64_t id = ids[row];
  const bool known = id >= 0 && id < vocab;
  const float s = known ? scale[id] : 0.f;
  const int8_t* from = table + (known ? id * cols : 0);
  for (int64_t i = threadIdx.x % 32; i < cols; i += 32) out[row * cols + i] = narrow<T>(s * float(from[i]));
}

void launch_embedding(const KernelCall& c) {
  namespace at = in::embedding_int8;
  const Value& table = c.in_value(at::table);
  const int64_t rows = c.in_value(at::ids).numel();
  with_type(c.out_value(0).dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, embedding_int8_rows<T>, blocks_for(rows, warps), warps * 32, 0, c.input<int32_t>(at::ids),
           c.input<int8_t>(at::table), c.input<float>(at::scale), c.output<T>(0), rows, table.shape[0],
           table.shape.back());
  });
}

std::string reject_linear(const KernelQuery& q) {
  namespace at = in::linear_int8;
  if (q.in(at::scale).dtype != DType::f32) return "takes scales of f32";
  if (q.in(at::x).shape.rows() > int64_t(65535) * 8) return "too many rows for a grid";
  if (std::string why = reject_value(q.in(at::x)); !why.empty()) return why;
  if (q.has(at::b))
    if (std::string why = reject_value(q.in(at::b)); !why.empty()) return why;
  return reject_value(q.out(0));
}

std::string reject_embedding(const KernelQuery& q) {
  if (q.in(in::embedding_int8::scale).dtype != DType::f32) return "takes scales of f32";
  return reject_value(q.out(0));
}

}  // namespace

Kernel linear_int8_kernel() {
  return {"linear_int8", "cuda.linear_int8.warp", reject_linear, nullptr, nullptr, CREST_DEVICE_CODE(launch_linear)};
}
Kernel embedding_int8_kernel() {
  return {"embedding_int8", "cuda.embedding_int8.warp",         reject_embedding, nullptr,
          nullptr,          CREST_DEVICE_CODE(launch_embedding)};
}

}  // namespace crest::cuda
