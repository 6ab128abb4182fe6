// Column sums of dy[rows, n]. Few rows: one kernel. Many: strips of columns times ranges of rows
// fill the device once and leave partial sums [ranges, n] in the workspace; a second launch of the
// same kernel sums its columns.
#include "backend/cuda/column_sums.h"
#include "backend/cuda/device/column_sum.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

// Block (s, r): columns of strip s, rows [r * rows_per_block, (r + 1) * rows_per_block) -> row r of
// out[.., n] (+ acc).
template <class S, class T, class Out, int V>
__global__ void __launch_bounds__(256, 4)
    column_sums(const T* x, int64_t rows, int64_t n, int64_t rows_per_block, const Out* acc, Out* out) {
  wait_for_predecessors();
  int64_t first = int64_t(blockIdx.x) * S::columns, begin = blockIdx.y * rows_per_block;
  int64_t column = first + S::column_lane() * V;
  float sum[V] = {};
  if (column < n) S::add_rows(x, n, begin, min(begin + rows_per_block, rows), column, sum);
  float total = S::reduce(sum);
  int64_t mine = first + threadIdx.x;
  if (threadIdx.x >= S::columns || mine >= n) return;
  out[blockIdx.y * n + mine] = narrow<Out>(acc ? total + widen(acc[mine]) : total);
}

// Strips of 8 x 16 bytes are whole cache lines; of 4 x 16 bytes they spread few rows over more
// blocks. V = 1 is for odd n.
template <int V>
using Lines = Strip<V == 1 ? 32 : 8, V == 1 ? 8 : 32, V>;
template <int V>
using Halves = Strip<V == 1 ? 32 : 4, V == 1 ? 8 : 64, V>;

constexpr int64_t one_launch_rows = 1024;  // up to here a second launch would cost more than it saves
constexpr int64_t least_rows = 256;        // of a block: 8 loads a thread
constexpr int64_t blocks_per_multiprocessor = 4;

// How the rows are shared out; a function of shape and device only.
struct Split {
  int64_t ranges, rows_per_block;
};

Split split_rows(int64_t rows, int64_t n, size_t element, const Device& device) {
  if (rows <= one_launch_rows) return {1, rows};
  int64_t strip = 8 * 16 / int64_t(element), strips = (n + strip - 1) / strip;
  int64_t fill = std::max<int64_t>(1, device.multiprocessors * blocks_per_multiprocessor / strips);
  int64_t ranges = std::min(fill, (rows + least_rows - 1) / least_rows), each = (rows + ranges - 1) / ranges;
  return {(rows + each - 1) / each, each};
}

template <int V, class T, class Out>
void launch_columns(const KernelCall& c, const Split& s, int64_t rows, int64_t n, const T* x, const Out* acc,
                    Out* out) {
  using L = Lines<V>;
  using H = Halves<V>;
  if (s.ranges == 1) {
    launch(c, column_sums<H, T, Out, V>, blocks_for(n, H::columns), H::threads, 0, x, rows, n, rows, acc, out);
    return;
  }
  auto* partial = static_cast<float*>(c.workspace);
  launch(c, column_sums<L, T, float, V>, dim3(blocks_for(n, L::columns), unsigned(s.ranges)), L::threads, 0, x, rows, n,
         s.rows_per_block, nullptr, partial);
  constexpr int P = V == 1 ? 1 : 4;
  using Second = Halves<P>;
  launch(c, column_sums<Second, float, Out, P>, blocks_for(n, Second::columns), Second::threads, 0, partial, s.ranges,
         n, s.ranges, acc, out);
}

void launch_bias_grad(const KernelCall& c) {
  const Value& dy = c.in_value(in::bias_grad::dy);
  int64_t n = dy.shape.back(), rows = dy.shape.rows();
  Split split = split_rows(rows, n, size_of(dy.dtype), *c.device);
  with_type(dy.dtype, [&](auto t) {
    with_type(c.out_value(out::bias_grad::db).dtype, [&](auto o) {
      using T = decltype(t);
      using Out = decltype(o);
      constexpr int V = Vec<T>::size;
      auto* acc = c.has(in::bias_grad::acc) ? c.input<Out>(in::bias_grad::acc) : nullptr;
      if (n % V == 0 && aligned({c.in[in::bias_grad::dy]}))
        launch_columns<V>(c, split, rows, n, c.input<T>(in::bias_grad::dy), acc, c.output<Out>(out::bias_grad::db));
      else
        launch_columns<1>(c, split, rows, n, c.input<T>(in::bias_grad::dy), acc, c.output<Out>(out::bias_grad::db));
    });
  });
}

size_t workspace(const KernelQuery& q) {
  const Value& dy = q.in(in::bias_grad::dy);
  Split split = split_rows(dy.shape.rows(), dy.shape.back(), size_of(dy.dtype), q.device);
  return split.ranges == 1 ? 0 : size_t(split.ranges * dy.shape.back()) * sizeof(float);
}

}  // namespace

#if CREST_HAS_DEVICE_CODE
void launch_column_sums(const KernelCall& c, const float* partial, int64_t rows, int64_t n, DType type, const void* acc,
                        void* out) {
  with_type(type, [&](auto o) {
    using Out = decltype(o);
    using S = Halves<4>;
    launch(c, column_sums<S, float, Out, 4>, blocks_for(n, S::columns), S::threads, 0, partial, rows, n, rows,
           static_cast<const Out*>(acc), static_cast<Out*>(out));
  });
}
#endif

Kernel bias_grad_kernel() {
  return {"bias_grad", "cuda.bias_grad", reject_unless_float, workspace, nullptr, CREST_DEVICE_CODE(launch_bias_grad)};
}

}  // namespace crest::cuda
