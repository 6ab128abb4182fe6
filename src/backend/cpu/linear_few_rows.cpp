// linear and linear_gelu of a few rows (decoding): dot products that read the weights once, as fast
// as memory gives them, without packing or converting them.
#include "backend/cpu/common.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/simd/few_rows.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

constexpr int64_t most_rows = 8;  // docs/results/cpu_gemm.md

std::string reject(const KernelQuery& q) {
  if (std::string why = check_linear(q); !why.empty()) return why;
  if (linear_shape(q).rows > most_rows) return "more than 8 rows are faster as a matrix product";
  return {};
}

// x and the bias as floats.
size_t x_bytes(const LinearShape& s) { return float_lines(s.rows * s.k); }
size_t workspace(const KernelQuery& q) {
  LinearShape s = linear_shape(q);
  return x_bytes(s) + (s.has_bias ? float_lines(s.n) : 0);
}

std::shared_ptr<void> prepare(const KernelQuery& q) { return std::make_shared<LinearShape>(linear_shape(q)); }

void run(const KernelCall& c, bool gelu) {
  const LinearShape& s = *static_cast<const LinearShape*>(c.prepared);
  auto* floats = static_cast<float*>(c.workspace);
  FewRowsArgs a{};
  a.rows = s.rows, a.n = s.n, a.k = s.k, a.dtype = s.dtype, a.gelu = gelu;
  a.x = floats_of(c.in[in::linear::x], s.dtype, s.rows * s.k, floats);
  if (s.has_bias) a.bias = floats_of(c.in[in::linear::b], s.bias, s.n, floats + x_bytes(s) / 4);
  a.w = c.in[in::linear::w], a.y = c.out[out::linear::y];
  if (gelu && c.instr.out.size() > 1) a.h = c.out[out::linear_gelu::h];
  const FewRowsFunctions& f = CREST_SIMD_PICK(few_rows_functions);
  constexpr int64_t grain = 64;  // outputs; every one is summed by one thread
  int64_t items = (s.n + grain - 1) / grain;
  int threads = threads_for(c.threads, s.n * s.k, 16384);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < items; ++i) f.outputs(a, i * grain, std::min(s.n, (i + 1) * grain));
}

void launch(const KernelCall& c) { run(c, false); }
void launch_gelu(const KernelCall& c) { run(c, true); }

}  // namespace

Kernel linear_few_rows_kernel() { return {"linear", "cpu.linear.few_rows", reject, workspace, prepare, launch}; }
Kernel linear_gelu_few_rows_kernel() {
  return {"linear_gelu", "cpu.linear_gelu.few_rows", reject, workspace, prepare, launch_gelu};
}

}  // namespace crest::cpu
