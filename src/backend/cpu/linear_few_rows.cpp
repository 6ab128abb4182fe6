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

// x as floats.
size_t workspace(const KernelQuery& q) {
  LinearShape s = linear_shape(q);
  return s.dtype == DType::f32 ? 0 : float_lines(s.rows * s.k);
}

std::shared_ptr<void> prepare(const KernelQuery& q) { return std::make_shared<LinearShape>(linear_shape(q)); }

void run(const KernelCall& c, bool gelu) {
  const LinearShape& s = *static_cast<const LinearShape*>(c.prepared);
  FewRowsArgs a{};
  a.rows = s.rows, a.n = s.n, a.k = s.k, a.dtype = s.dtype, a.gelu = gelu;
  a.x = floats_of(c.in[in::linear::x], s.dtype, s.rows * s.k, static_cast<float*>(c.workspace));
  if (s.has_bias) a.bias = c.in[in::linear::b], a.bias_dtype = s.bias;
  a.w = c.in[in::linear::w], a.y = c.out[out::linear::y];
  if (gelu && c.instr.out.size() > 1) a.h = c.out[out::linear_gelu::h];
  const FewRowsFunctions& f = CREST_SIMD_PICK(few_rows_functions);
  // Every output is summed by one thread, which reads rows of w that follow each other.
  constexpr int64_t grain = 16;
  int64_t items = (s.n + grain - 1) / grain;
  int threads = threads_for(c.threads, s.n * s.k, 16384);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t)
    f.outputs(a, part_begin(items, t, threads) * grain, std::min(s.n, part_begin(items, t + 1, threads) * grain));
}

void launch(const KernelCall& c) { run(c, false); }
void launch_gelu(const KernelCall& c) { run(c, true); }

}  // namespace

Kernel linear_few_rows_kernel() { return {"linear", "cpu.linear.few_rows", reject, workspace, prepare, launch}; }
Kernel linear_gelu_few_rows_kernel() {
  return {"linear_gelu", "cpu.linear_gelu.few_rows", reject, workspace, prepare, launch_gelu};
}

}  // namespace crest::cpu
