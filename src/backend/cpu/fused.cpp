// Fused bodies and single pointwise operations: every instruction is one vector loop over an
// L1-resident tile.
#include <cstring>

#include "backend/cpu/common.h"
#include "backend/cpu/fused_plan.h"

namespace crest::cpu {
namespace {

FusedPlan plan_of(const Program& program, const Instr& instr, std::string& why) {
  std::vector<const Instr*> code;
  if (!instr.body) {
    code.push_back(&instr);
    return compile_fused(program, code, instr.in, instr.out, why);
  }
  for (const Instr& i : instr.body->code) code.push_back(&i);
  return compile_fused(*instr.body, code, instr.body->inputs, instr.body->outputs, why);
}

std::string reject(const KernelQuery& q) {
  if (std::string why = check_all_float(q); !why.empty()) return why;
  std::string why;
  plan_of(q.program, q.instr, why);
  return why;
}

size_t sums_bytes(const FusedPlan& p) { return float_lines(p.columns) * size_t(p.chunks() + 1) * p.sums.size(); }
size_t slots_bytes(const FusedPlan& p) { return float_lines(p.tile) * size_t(p.slots); }

size_t workspace(const KernelQuery& q) {
  std::string why;
  FusedPlan p = plan_of(q.program, q.instr, why);
  return slots_bytes(p) * size_t(q.device.threads) + sums_bytes(p);
}

std::shared_ptr<void> prepare(const KernelQuery& q) {
  std::string why;
  return std::make_shared<FusedPlan>(plan_of(q.program, q.instr, why));
}

// Runs elements begin .. end-1 of the shape; sums: [p.sums][columns] floats of this part.
void run_range(const KernelCall& c, const FusedPlan& p, int64_t begin, int64_t end, char* slots, float* sums) {
  const PointwiseFunctions& f = CREST_SIMD_PICK(pointwise_functions);
  int64_t stride = int64_t(float_lines(p.tile)), sum_stride = int64_t(float_lines(p.columns) / 4);
  for (int64_t e = begin; e < end; e += p.tile) {
    int64_t n = std::min(p.tile, end - e);
    auto at = [&](FusedPlan::Operand o) -> float* {
      if (o.kind == FusedPlan::Operand::slot) return reinterpret_cast<float*>(slots + o.index * stride);
      void* base = o.kind == FusedPlan::Operand::input ? c.in[o.index] : c.out[o.index];
      return static_cast<float*>(base) + e;
    };
    auto load = p.loads.begin();
    auto load_until = [&](int step) {
      for (; load != p.loads.end() && load->before <= step; ++load) {
        DType t = p.input_dtypes[size_t(load->input)];
        const char* from = static_cast<const char*>(c.in[load->input]) + e * int64_t(size_of(t));
        f.load(reinterpret_cast<float*>(slots + load->slot * stride), from, t, n);
      }
    };
    for (size_t i = 0; i < p.steps.size(); ++i) {
      const FusedPlan::Step& s = p.steps[i];
      load_until(int(i));
      s.run(at(s.out), at(s.a), at(s.b), n, s.value);
    }
    load_until(int(p.steps.size()));
    for (const FusedPlan::Store& s : p.stores) {
      DType t = p.output_dtypes[size_t(s.output)];
      f.store(static_cast<char*>(c.out[s.output]) + e * int64_t(size_of(t)), t, at(s.from), n);
    }
    for (size_t i = 0; i < p.sums.size(); ++i)
      f.column_sums(sums + int64_t(i) * sum_stride, at(p.sums[i].from), e, n, p.columns);
  }
}

void launch(const KernelCall& c) {
  const FusedPlan& p = *static_cast<const FusedPlan*>(c.prepared);
  char* sums = static_cast<char*>(c.workspace);
  char* slots = sums + sums_bytes(p);
  if (p.sums.empty()) {
    int threads = threads_for(c.threads, p.numel * int64_t(p.steps.size() + 1), 16384);
    int64_t lines = (p.numel + 63) / 64;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; ++t)
      run_range(c, p, part_begin(lines, t, threads) * 64, std::min(part_begin(lines, t + 1, threads) * 64, p.numel),
                slots + size_t(t) * slots_bytes(p), nullptr);
    return;
  }
  // Column sums are formed per fixed chunk of rows and combined in order: bitwise identical
  // for any number of threads.
  int64_t rows = p.numel / p.columns, chunks = p.chunks(), stride = int64_t(float_lines(p.columns) / 4);
  int64_t count = int64_t(p.sums.size());
  float* parts = reinterpret_cast<float*>(sums);
  float* totals = parts + chunks * count * stride;
  int threads = threads_for(c.threads, p.numel * int64_t(p.steps.size() + 1), 16384);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t)
    for (int64_t k = part_begin(chunks, t, threads); k < part_begin(chunks, t + 1, threads); ++k) {
      float* mine = parts + k * count * stride;
      std::memset(mine, 0, size_t(count * stride) * 4);
      run_range(c, p, part_begin(rows, k, chunks) * p.columns, part_begin(rows, k + 1, chunks) * p.columns,
                slots + size_t(t) * slots_bytes(p), mine);
    }
  const PointwiseFunctions& f = CREST_SIMD_PICK(pointwise_functions);
  constexpr int64_t piece = 64;  // columns
  int64_t pieces = (p.columns + piece - 1) / piece;
  threads = threads_for(c.threads, chunks * count * p.columns, 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t item = 0; item < count * pieces; ++item) {
    int64_t i = item / pieces, begin = item % pieces * piece, n = std::min(piece, p.columns - begin);
    const FusedPlan::ColumnSum& s = p.sums[size_t(i)];
    float* total = totals + i * stride;
    std::memcpy(total + begin, parts + i * stride + begin, size_t(n) * 4);
    for (int64_t k = 1; k < chunks; ++k)
      f.column_sums(total + begin, parts + (k * count + i) * stride + begin, 0, n, n);
    store_floats(c.out[s.output], p.output_dtypes[size_t(s.output)], begin, begin + n, total,
                 s.acc >= 0 ? c.in[s.acc] : nullptr);
  }
}

Kernel kernel(const char* op, const char* name) { return {op, name, reject, workspace, prepare, launch}; }

}  // namespace

Kernel fused_kernel() { return kernel("fused", "cpu.fused.tiles"); }
#define CREST_POINTWISE_KERNEL(op, inputs, outputs) \
  Kernel op##_kernel() { return kernel(#op, "cpu." #op ".simd"); }
CREST_POINTWISE_OPS(CREST_POINTWISE_KERNEL)
#undef CREST_POINTWISE_KERNEL

}  // namespace crest::cpu
