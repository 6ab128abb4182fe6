// The matmuls of SwiGLU for compute capability 9.0 behind a C interface, for scripts/gpu/swiglu.py. Build:
//   scripts/gpu/swiglu.sh build DIR
#include "backend/cuda/gemm_sm90_gelu_grad.h"
#include "backend/cuda/gemm_sm90_pingpong.h"

using namespace crest;
using namespace crest::cuda::sm90;

bool crest::cuda::waits_for_predecessors(const void*) { return false; }  // nothing overlaps here

namespace {

constexpr int group = 8, blocks = 132;

EncodeTiled encode() {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
  return reinterpret_cast<EncodeTiled>(f);
}

}  // namespace

// x[m,k], w[n,k], w_up[n,k] -> a, g, u [m,n]
extern "C" int swiglu(const void* x, const void* w, const void* w_up, void* a, void* g, void* u, int m, int n, int k,
                      void* stream) {
  GemmCall call = {.a = x, .b = w, .c = a, .second = g, .b_2 = w_up, .third = u};
  using Tile = PingPongTile<bfloat16, After::swiglu, false, false>;
  return start_pingpong<Tile>(call, m, n, k, group, encode(), blocks, {stream});
}

// dy[m,k], w[k,n], g, u [m,n] -> dg, du, a [m,n]
extern "C" int swiglu_grad(const void* dy, const void* w, const void* g, const void* u, void* dg, void* du, void* a,
                           int m, int n, int k, void* stream) {
  GemmCall call = {.a = dy, .b = w, .x = g, .c = dg, .second = du, .x_2 = u, .third = a};
  return start_swiglu_grad<bfloat16>(call, m, n, k, group, encode(), blocks, {stream});
}

// dg[m,k], w[k,n], du[m,k], w_up[k,n] -> dx[m,n]
extern "C" int dx_sum(const void* dg, const void* w, const void* du, const void* w_up, void* dx, int m, int n, int k,
                      void* stream) {
  GemmCall call = {.a = dg, .b = w, .c = dx, .a_2 = du, .b_2 = w_up};
  using Tile = PingPongTile<bfloat16, After::plain, false, true, 2>;
  return start_pingpong<Tile>(call, m, n, k, group, encode(), blocks, {stream});
}
