#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"

namespace crest::cuda {

namespace {

// y = x * value; a thread reads 16 bytes at a time.
template <class T>
__global__ void scale_forward(const T* x, T* y, int64_t n, float value) {
  constexpr int N = Vec<T>::size;
  int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i + N <= n) {
    Vec<T> v = load_vec<N>(x + i);
    for (int k = 0; k < N; ++k) v.x[k] = narrow<T>(widen(v.x[k]) * value);
    store_vec(y + i, v);
  } else {
    for (; i < n; ++i) y[i] = narrow<T>(widen(x[i]) * value);
  }
}

void launch_scale(const KernelCall& c) {
  int64_t n = c.in_value(0).numel();
  with_type(c.in_value(0).dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, scale_forward<T>, blocks_for(n, 256 * Vec<T>::size), 256, 0, c.input<T>(0), c.output<T>(0), n,
           c.instr.attrs.number("value"));
  });
}

}  // namespace

Kernel scale_kernel() { return {"scale", "cuda.scale", reject_unless_float, nullptr, nullptr, launch_scale}; }

}  // namespace crest::cuda
