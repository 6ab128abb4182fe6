// One matrix product on the CPU through oneDNN. The formulation for each orientation was measured:
// docs/results/cpu_gemm.md.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "core/dtype.h"
#include "host/isa.h"

namespace crest {

// c[m,n] = a[m,k] b[k,n] (+ bias[n]) (+ c), rows lda / ldb /
// ldc elements apart. A transposed operand is stored [k,m] or
// [n,k]. ab: f32 or bf16; c and bias: f32 or the dtype of ab.
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
  // Bytes of workspace of run(), without the packed panels allocated by oneDNN's sgemm.
  virtual size_t workspace() const = 0;
  // The implementation, in oneDNN's words: "brg_matmul:avx512_core_bf16"; "sgemm", without a name
  // of its own.
  virtual std::string implementation() const = 0;
  // Whether run() allocates memory besides its workspace.
  virtual bool allocates() const { return false; }
  // May be called from several threads at once with different workspaces. Inside an OpenMP region
  // the shape's threads must be 1.
  virtual void run(const void* a, const void* b, const void* bias, void* c, void* workspace) const = 0;
};

struct FoundGemm {
  std::shared_ptr<const Gemm> gemm;  // null when it is refused
  std::string refused;               // why oneDNN does not multiply this; empty when it does
};

// Made once per shape and shared by the whole process. It keeps the last most_gemms of them, since
// a search over batch sizes requests thousands of shapes; kernels hold theirs.
inline constexpr size_t most_gemms = 1024;
size_t kept_gemms();
FoundGemm find_gemm(const GemmShape&);
// The same for a device of any class. bf16 products of a class foreign to this process cannot be
// made here: they have an estimated workspace and do not run.
FoundGemm find_gemm(const GemmShape&, const Device&);
// The estimate, on a class with hardware for bf16: copies of operands, rows and columns rounded up
// to 64, and the most oneDNN 2.6 takes for a thread (docs/results/cpu_gemm.md).
size_t estimated_workspace(const GemmShape&, Isa);

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
