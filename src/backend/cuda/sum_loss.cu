// sum_loss: one block; double partial sums, added in a fixed tree.
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"

namespace crest::cuda {

namespace {

constexpr int threads = 1024;

__global__ void __launch_bounds__(threads)
    sum_rows(const float* loss, float* out, bool accumulate, int64_t vectors, int64_t n, double scale) {
  __shared__ double part[threads];
  double sums[4] = {};
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += threads) {
    Vec<float> v = load_vec<4>(loss + i * 4);
    for (int e = 0; e < 4; ++e) sums[e] += double(v.x[e]);
  }
  for (int64_t i = vectors * 4 + threadIdx.x; i < n; i += threads) sums[0] += double(loss[i]);
  part[threadIdx.x] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (unsigned d = threads / 2; d > 0; d /= 2) {
    __syncthreads();
    if (threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
  }
  if (threadIdx.x == 0) out[0] = float(part[0] * scale + (accumulate ? double(out[0]) : 0));
}

void launch_sum(const KernelCall& c) {
  int64_t n = c.in_value(0).numel();
  launch(c, sum_rows, 1, threads, 0, c.input<float>(0), c.output<float>(0), c.has(1), aligned({c.in[0]}) ? n / 4 : 0, n,
         c.instr.attrs.number("scale"));
}

std::string reject(const KernelQuery& q) {
  if (q.has(1) && q.out(0).layout.storage != q.in(1).layout.storage) return "adds to the accumulator in place";
  if (q.in(0).dtype != DType::f32 || !q.in(0).contiguous()) return "takes contiguous f32 losses";
  return "";
}

}  // namespace

Kernel sum_loss_kernel() { return {"sum_loss", "cuda.sum_loss.block", reject, nullptr, nullptr, launch_sum}; }

}  // namespace crest::cuda
