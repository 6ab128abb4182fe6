// y[i] = f(a[i], b[i]) over flat arrays: 16-byte vectors, several of them in flight in every
// thread.
#pragma once
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"

namespace crest::cuda {

constexpr int pointwise_threads = 256;

template <class Out, class In, int N, class F>
__device__ inline void pointwise_vector(const Vec<In, N>& a, const Vec<In, N>& b, Out* y, F f) {
  float r[N];
  for (int k = 0; k < N; ++k) r[k] = f(widen(a.x[k]), widen(b.x[k]));
  store_floats(y, r);
}

// A block takes Unroll * pointwise_threads vectors of N elements. All of a thread's inputs are read
// before its first output is written, so y may be a or b. Without `binary`, f does not use its
// second argument and b is not read.
template <int N, int Unroll, bool binary, class In, class Out, class F>
__global__ void __launch_bounds__(pointwise_threads) pointwise(const In* a, const In* b, Out* y, int64_t n, F f) {
  wait_for_predecessors();
  constexpr int64_t step = int64_t(pointwise_threads) * N;
  int64_t first = blockIdx.x * (Unroll * step) + int64_t(threadIdx.x) * N;
  Vec<In, N> x[Unroll], z[Unroll];
  int whole = 0;  // vectors of this thread within n
#pragma unroll
  for (int u = 0; u < Unroll; ++u) {
    int64_t i = first + u * step;
    if (i + N > n) continue;
    whole = u + 1;
    x[u] = load_vec<N>(a + i);
    z[u] = x[u];
    if constexpr (binary) z[u] = load_vec<N>(b + i);
  }
#pragma unroll
  for (int u = 0; u < Unroll; ++u)
    if (u < whole) pointwise_vector(x[u], z[u], y + first + u * step, f);
  if (whole == Unroll) return;
  for (int64_t i = first + whole * step; i < n && i < first + whole * step + N; ++i) {
    float p = widen(a[i]);
    y[i] = narrow<Out>(f(p, binary ? widen(b[i]) : p));
  }
}

// y[i] = f(a[i], b[i]) for i < n; b null: f(a[i], anything).
template <bool binary, class In, class Out, class F>
void launch_pointwise(const KernelCall& c, const In* a, const In* b, Out* y, int64_t n, F f) {
  if (n == 0) return;
  constexpr int N = 16 / int(sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out)), unroll = binary ? 2 : 4;
  auto start = [&](auto kernel, int64_t per_block) {
    launch(c, kernel, blocks_for(n, per_block), pointwise_threads, 0, a, b, y, n, f);
  };
  constexpr int64_t elements = int64_t(pointwise_threads) * N;
  if (!aligned({a, b, y}))
    start(pointwise<1, unroll, binary, In, Out, F>, int64_t(pointwise_threads) * unroll);
  else if (n < 2 * c.device->multiprocessors * elements * unroll)  // blocks for all come before loads in flight
    start(pointwise<N, 1, binary, In, Out, F>, elements);
  else
    start(pointwise<N, unroll, binary, In, Out, F>, elements * unroll);
}

}  // namespace crest::cuda
