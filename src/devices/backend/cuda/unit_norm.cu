// A matrix divided by its Frobenius norm.
#include "backend/cuda/device/any_float.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256, quad = 4;

unsigned norm_blocks(const Value& x, const Device& device) {
  return std::min(blocks_for(x.numel(), threads * 4), unsigned(device.multiprocessors) * 4);
}

template <int V>
__global__ void __launch_bounds__(threads) part_squares(const void* x, DType t, int64_t n, float* part) {
  wait_for_predecessors();
  float sum = 0;
  int64_t stride = int64_t(gridDim.x) * threads * V;
  for (int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * V; i < n; i += stride) {
    float v[V];
    load_any(x, t, i, v);
#pragma unroll
    for (int e = 0; e < V; ++e) sum += v[e] * v[e];
  }
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

// Every block adds up the parts in the same order.
template <int V>
__global__ void __launch_bounds__(threads)
    divide(const void* x, DType from, void* y, DType to, int64_t n, const float* part, int parts, float eps) {
  wait_for_predecessors();
  float sum = 0;
  for (int b = int(threadIdx.x); b < parts; b += threads) sum += part[b];
  float factor = 1 / (sqrtf(block_sum<threads>(sum)) + eps);
  int64_t stride = int64_t(gridDim.x) * threads * V;
  for (int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * V; i < n; i += stride) {
    float v[V];
    load_any(x, from, i, v);
#pragma unroll
    for (int e = 0; e < V; ++e) v[e] *= factor;
    store_any(y, to, i, v);
  }
}

size_t workspace(const KernelQuery& q) { return norm_blocks(q.in(in::unit_norm::x), q.device) * sizeof(float); }

void launch_norm(const KernelCall& c) {
  const Value &x = c.in_value(in::unit_norm::x), &y = c.out_value(out::unit_norm::y);
  unsigned blocks = norm_blocks(x, *c.device);
  auto* part = static_cast<float*>(c.workspace);
  bool quads = x.numel() % quad == 0 && aligned({c.in[in::unit_norm::x]}, quad * size_of(x.dtype)) &&
               aligned({c.out[out::unit_norm::y]}, quad * size_of(y.dtype));
  launch(c, quads ? part_squares<quad> : part_squares<1>, blocks, threads, 0, c.in[in::unit_norm::x], x.dtype,
         x.numel(), part);
  launch(c, quads ? divide<quad> : divide<1>, blocks, threads, 0, c.in[in::unit_norm::x], x.dtype,
         c.out[out::unit_norm::y], y.dtype, x.numel(), part, int(blocks), float(c.instr.attrs.number("eps")));
}

}  // namespace

Kernel unit_norm_kernel() {
  return {"unit_norm", "cuda.unit_norm", reject_unless_float, workspace, nullptr, CREST_DEVICE_CODE(launch_norm)};
}

}  // namespace crest::cuda
