// Crest's own matrix product on f32, bf16 and f16: both operands are packed
// into panels of floats in the caches (simd/gemm.h). Packing converts
// half-precision operands, and results get bias, GELU, earlier sums and
// their type in registers. Where it runs: docs/results/cpu_gemm.md.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "host/isa.h"

namespace crest::cpu {

// c[m,n] = a[m,k] b[k,n] (+ bias[n]) (+ add), or its GELU, in dense rows. A transposed operand is
// stored [k,m] or [n,k].
struct PackedShape {
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  DType ab = DType::f32, c = DType::f32;
};

struct PackedOperands {
  const void *a = nullptr, *b = nullptr;
  const float* bias = nullptr;
  const void* add = nullptr;  // as c, may be c itself; not together with a bias or gelu
  void* c = nullptr;
  bool gelu = false;
  void* h = nullptr;  // gelu: the product, as c; null: not wanted
};

// Bytes of workspace of packed_gemm() with the vector kernels `vectors`.
size_t packed_gemm_workspace(const PackedShape&, Isa vectors = running_vector_isa());
// Every element of c is summed in the same order for any number of threads.
void packed_gemm(const PackedShape&, const PackedOperands&, void* workspace, int threads);

}  // namespace crest::cpu
