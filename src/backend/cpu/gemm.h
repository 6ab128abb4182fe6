// One matrix product on the CPU through oneDNN. Which formulation runs for which orientation was measured:
// docs/results/cpu_gemm.md.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/dtype.h"

namespace crest {

// c[m,n] = a[m,k] b[k,n] (+ bias[n]) (+ c), rows lda / ldb / ldc elements apart. A transposed operand is stored [k,m]
// or [n,k]. ab: f32 or bf16 (bf16 only where bf16_gemm_available()); c: f32 or the dtype of ab; bias: f32 or that of
// ab.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  DType ab = DType::f32, c = DType::f32;
  bool a_transposed = false, b_transposed = false;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool has_bias = false;
  DType bias = DType::f32;
  bool accumulate = false;  // adds to c; not together with a bias
  int threads = 1;
  auto operator<=>(const GemmShape&) const = default;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // Scratch bytes of run() besides what oneDNN's sgemm allocates for its packed panels.
  virtual size_t workspace() const = 0;
  // May be called from several threads at once with different workspaces. Inside an OpenMP region the shape's threads
  // must be 1.
  virtual void run(const void* a, const void* b, const void* bias, void* c, void* workspace) const = 0;
};

// Made once per shape and shared by the whole process. Throws an error that names the shape when oneDNN refuses it.
std::shared_ptr<const Gemm> find_gemm(const GemmShape&);

// Whether bf16 operands are multiplied as they are (native dot products or matrix units); otherwise convert them to
// f32.
bool bf16_gemm_available();

// Sets the number of OpenMP threads of the calling thread for a scope.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int threads);
  ~OpenMpThreads();
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  int before_;
};

}  // namespace crest
