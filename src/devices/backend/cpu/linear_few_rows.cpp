// linear and linear_gelu of a few rows (decoding), also with 8-bit weights: dot products that read
// the weights once, at the speed of memory, without packing or converting them.
#include "backend/cpu/common.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/simd/few_rows.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

constexpr int64_t most_rows = 8;  // docs/results/cpu_gemm.md

std::string reject_rows(int64_t rows) {
  return rows > most_rows ? "more than 8 rows are faster as a matrix product" : "";
}

std::string reject(const KernelQuery& q) {
  if (std::string why = check_linear(q); !why.empty()) return why;
  return reject_rows(linear_shape(q).rows);
}

std::string reject_int8(const KernelQuery& q) {
  namespace at = in::linear_int8;
  for (const Value* v : {&q.in(at::x), &q.out(0)})
    if (std::string why = check_float(*v); !why.empty()) return why;
  if (q.has(at::b))
    if (std::string why = check_same(q.in(at::b), q.in(at::x)); !why.empty()) return why;
  if (q.in(at::scale).dtype != DType::f32) return "takes scales of f32";
  if (q.in(at::x).numel() == 0 || q.in(at::w).numel() == 0) return "empty operands";
  return reject_rows(q.in(at::x).shape.rows());
}

// x as floats.
size_t workspace(const KernelQuery& q) {
  const Value& x = q.in(in::linear::x);
  return x.dtype == DType::f32 ? 0 : float_lines(x.numel());
}

// Shared by all; b: the operand of the bias.
void run(const KernelCall& c, FewRowsArgs a, size_t b) {
  const Value &x = c.in_value(in::linear::x), &w = c.in_value(in::linear::w);
  a.rows = x.shape.rows(), a.n = w.shape[0], a.k = w.shape[1];
  a.dtype = x.dtype, a.w_dtype = w.dtype;
  a.x = floats_of(c.in[in::linear::x], x.dtype, x.numel(), static_cast<float*>(c.workspace));
  if (c.has(b)) a.bias = c.in[b], a.bias_dtype = c.in_value(b).dtype;
  a.w = c.in[in::linear::w], a.y = c.out[out::linear::y];
  const FewRowsFunctions& f = CREST_SIMD_PICK(few_rows_functions);
  // One thread sums each output and reads consecutive rows of w.
  constexpr int64_t grain = 16;
  int64_t items = (a.n + grain - 1) / grain;
  int threads = threads_for(c.threads, a.n * a.k, 16384);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t)
    f.outputs(a, part_begin(items, t, threads) * grain, std::min(a.n, part_begin(items, t + 1, threads) * grain));
}

void launch(const KernelCall& c) { run(c, {}, in::linear::b); }
void launch_gelu(const KernelCall& c) {
  FewRowsArgs a{};
  a.gelu = true;
  if (c.instr.out.size() > 1) a.h = c.out[out::linear_gelu::h];
  run(c, a, in::linear_gelu::b);
}
void launch_int8(const KernelCall& c) {
  FewRowsArgs a{};
  a.scale = c.input<float>(in::linear_int8::scale);
  a.gelu = c.instr.op == &op_linear_gelu_int8;
  run(c, a, in::linear_int8::b);
}

}  // namespace

Kernel linear_few_rows_kernel() { return {"linear", "cpu.linear.few_rows", reject, workspace, nullptr, launch}; }
Kernel linear_gelu_few_rows_kernel() {
  return {"linear_gelu", "cpu.linear_gelu.few_rows", reject, workspace, nullptr, launch_gelu};
}
Kernel linear_int8_kernel() {
  return {"linear_int8", "cpu.linear_int8.few_rows", reject_int8, workspace, nullptr, launch_int8};
}
Kernel linear_gelu_int8_kernel() {
  return {"linear_gelu_int8", "cpu.linear_gelu_int8.few_rows", reject_int8, workspace, nullptr, launch_int8};
}

}  // namespace crest::cpu
