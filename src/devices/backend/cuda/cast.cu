#include "backend/cuda/device/pointwise.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

struct Same {
  __device__ float operator()(float a, float) const { return a; }
};

constexpr int row_threads = 256, unroll = 4;

// A block takes a row in vectors of N elements. A thread reads exactly the elements it writes: y
// may be x if both have one pitch.
template <int N, class In, class Out>
__global__ void __launch_bounds__(row_threads)
    cast_rows(const In* x, Out* y, int64_t cols, int64_t x_pitch, int64_t y_pitch) {
  wait_for_predecessors();
  x += blockIdx.x * x_pitch, y += blockIdx.x * y_pitch;
  constexpr int64_t step = int64_t(row_threads) * N;
  for (int64_t first = int64_t(threadIdx.x) * N; first < cols; first += unroll * step) {
    Vec<In, N> v[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (int64_t i = first + u * step; i + N <= cols) v[u] = load_vec<N>(x + i);
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      int64_t i = first + u * step;
      if (i + N <= cols)
        pointwise_vector(v[u], v[u], y + i, Same());
      else
        for (; i < cols; ++i) y[i] = narrow<Out>(widen(x[i]));
    }
  }
}

template <class In, class Out>
void launch_rows(const KernelCall& c, const In* x, Out* y) {
  const Value &from = c.in_value(in::cast::x), &to = c.out_value(out::cast::y);
  constexpr int N = 16 / int(sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));
  int64_t rows = from.shape.rows(), cols = from.shape.back();
  if (rows == 0 || cols == 0) return;
  bool vectors = aligned({x, y}) && from.pitch() % N == 0 && to.pitch() % N == 0;
  launch(c, vectors ? cast_rows<N, In, Out> : cast_rows<1, In, Out>, unsigned(rows), row_threads, 0, x, y, cols,
         from.pitch(), to.pitch());
}

void launch_cast(const KernelCall& c) {
  const Value &x = c.in_value(in::cast::x), &y = c.out_value(out::cast::y);
  with_type(x.dtype, [&](auto from) {
    with_type(y.dtype, [&](auto to) {
      using In = decltype(from);
      using Out = decltype(to);
      if (x.contiguous() && y.contiguous())
        launch_pointwise<false>(c, c.input<In>(in::cast::x), static_cast<const In*>(nullptr),
                                c.output<Out>(out::cast::y), x.numel(), Same());
      else
        launch_rows(c, c.input<In>(in::cast::x), c.output<Out>(out::cast::y));
    });
  });
}

std::string reject(const KernelQuery& q) {
  const Value& x = q.in(in::cast::x);
  bool flat = x.contiguous() && q.out(out::cast::y).contiguous();
  if (!flat && x.shape.rows() >= int64_t(1) << 31) return "2^31 rows";
  return reject_unless_float_rows(q);
}

}  // namespace

Kernel cast_kernel() { return {"cast", "cuda.cast.vector", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_cast)}; }

}  // namespace crest::cuda
