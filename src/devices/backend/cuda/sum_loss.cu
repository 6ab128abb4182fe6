// sum_loss: one block; double partial sums, added in a fixed tree.
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 1024;

__global__ void __launch_bounds__(threads)
    sum_rows(const float* loss, float* out, bool accumulate, int64_t vectors, int64_t n, double scale) {
  wait_for_predecessors();
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
  int64_t n = c.in_value(in::sum_loss::loss).numel();
  launch(c, sum_rows, 1, threads, 0, c.input<float>(in::sum_loss::loss), c.output<float>(out::sum_loss::sum),
         c.has(in::sum_loss::acc), aligned({c.in[in::sum_loss::loss]}) ? n / 4 : 0, n, c.instr.attrs.number("scale"));
}

std::string reject(const KernelQuery& q) {
  if (q.has(in::sum_loss::acc) && q.out(out::sum_loss::sum).layout.storage != q.in(in::sum_loss::acc).layout.storage)
    return "adds to the accumulator in place";
  if (q.in(in::sum_loss::loss).dtype != DType::f32 || !q.in(in::sum_loss::loss).contiguous())
    return "takes contiguous f32 losses";
  return "";
}

}  // namespace

Kernel sum_loss_kernel() {
  return {"sum_loss", "cuda.sum_loss.block", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_sum)};
}

}  // namespace crest::cuda
