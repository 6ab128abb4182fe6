#include "backend/cuda/rank_sum.h"

#include "backend/cuda/device/any_float.h"
#include "backend/cuda/launch_stream.h"

namespace crest::cuda {

#if CREST_HAS_DEVICE_CODE
namespace {

constexpr int threads = 256, quad = 4;

template <int V>
__global__ void __launch_bounds__(threads)
    sum_of_ranks(RankPointers in, RankPointers out, DType dtype, int64_t n, float divisor) {
  wait_for_predecessors();
  int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * V;
  if (i >= n) return;
  float sum[V];
  sum_any(in.of, in.count, dtype, i, sum);
#pragma unroll
  for (int e = 0; e < V; ++e) sum[e] /= divisor;
  for (int r = 0; r < out.count; ++r) store_any(out.of[r], dtype, i, sum);
}

// Of norms: a few elements.
__global__ void __launch_bounds__(threads)
    sum_of_ranks_f64(RankPointers in, RankPointers out, int64_t n, double divisor) {
  wait_for_predecessors();
  int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i >= n) return;
  double sum = static_cast<const double*>(in.of[0])[i];
  for (int r = 1; r < in.count; ++r) sum += static_cast<const double*>(in.of[r])[i];
  for (int r = 0; r < out.count; ++r) static_cast<double*>(out.of[r])[i] = sum / divisor;
}

}  // namespace

void sum_ranks(void* stream, const RankPointers& in, const RankPointers& out, DType dtype, int64_t n, bool mean) {
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16 && dtype != DType::f64)
    fail_internal("ranks of one GPU sum f64, f32, bf16 and f16 only", std::string(name(dtype)));
  if (n <= 0) return;
  const char* what = "sum over ranks";
  if (dtype == DType::f64)
    return launch_on_stream(stream, what, sum_of_ranks_f64, blocks_for(n, threads), threads, in, out, n,
                            mean ? double(in.count) : 1.0);
  bool quads = n % quad == 0;
  for (auto* list : {&in, &out})
    for (int r = 0; r < list->count; ++r) quads &= aligned({list->of[r]}, quad * size_of(dtype));
  auto* kernel = quads ? sum_of_ranks<quad> : sum_of_ranks<1>;
  launch_on_stream(stream, what, kernel, blocks_for(n, threads * (quads ? quad : 1)), threads, in, out, dtype, n,
                   mean ? float(in.count) : 1.0f);
}
#else
void sum_ranks(void*, const RankPointers&, const RankPointers&, DType, int64_t, bool) {
  fail_internal("a build without CUDA was asked to sum over ranks");
}
#endif

}  // namespace crest::cuda
