// embedding: rows of a table by token id, dropped out or not. A warp copies a row. The table begins
// with the row of id `first_id`.
#include "backend/cuda/device/dropout.h"
#include "backend/cuda/dropout.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int warps = 8, at_once = 4;  // vectors under way in a lane

// W elements of a row at a time, W = 1 where rows are not aligned.
template <class T, class O, int W>
__global__ void embedding_rows(const int32_t* ids, const T* table, O* out, int64_t rows, int64_t first_id,
                               int64_t vocab, int64_t cols, DropoutRows dropout) {
  wait_for_predecessors();
  int64_t row = int64_t(blockIdx.x) * warps + threadIdx.x / 32;
  if (row >= rows) return;
  const int64_t id = ids[row] - first_id;
  const bool known = id >= 0 && id < vocab;
  const T* from = table + (known ? id * cols : 0);
  O* to = out + row * cols;
  const DropoutSpan span(dropout, row, cols);
  for (int64_t first = threadIdx.x % 32 * W; first < cols; first += 32 * W * at_once) {
    Vec<T, W> v[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      int64_t c = first + k * 32 * W;
      if (c < cols && known)
        v[k] = load_vec<W>(from + c);
      else
        for (int e = 0; e < W; ++e) v[k].x[e] = narrow<T>(0.f);
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      int64_t c = first + k * 32 * W;
      Vec<O, W> o;
      for (int e = 0; e < W; ++e) o.x[e] = narrow<O>(widen(v[k].x[e]));
      if (c >= cols) continue;
      if (span) span.drop(o, uint64_t(c));
      store_vec(to + c, o);
    }
  }
}

void launch_embedding(const KernelCall& c) {
  const Value &table = c.in_value(in::embedding::table), &out = c.out_value(out::embedding::y);
  int64_t rows = c.in_value(in::embedding::ids).numel(), vocab = table.shape[0], cols = table.shape.back();
  with_type(table.dtype, [&](auto t) {
    with_type(out.dtype, [&](auto o) {
      using T = decltype(t);
      using O = decltype(o);
      constexpr int W = 16 / int(std::max(sizeof(T), sizeof(O)));
      auto kernel = cols % W == 0 && aligned({c.in[in::embedding::table], c.out[out::embedding::y]})
                        ? embedding_rows<T, O, W>
                        : embedding_rows<T, O, 1>;
      launch(c, kernel, blocks_for(rows, warps), warps * 32, 0, c.input<int32_t>(in::embedding::ids),
             c.input<T>(in::embedding::table), c.output<O>(out::embedding::y), rows, c.part_begin(vocab), vocab, cols,
             dropout_rows(c, in::embedding::scalars, out));
    });
  });
}

}  // namespace

Kernel embedding_kernel() {
  return {
      "embedding", "cuda.embedding.warp", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_embedding)};
}

}  // namespace crest::cuda
