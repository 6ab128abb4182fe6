// Fused bodies and single pointwise operations: every instruction is one vector loop over an
// L1-resident tile. Values to quantize are written first, to the workspace if they are no output,
// and quantized from there.
#include <algorithm>
#include <cstring>

#include "backend/body.h"
#include "backend/cpu/common.h"
#include "backend/cpu/fp8.h"
#include "backend/cpu/fused_plan.h"
#include "ops/fused.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

// A body apart from its quantization.
struct Fused {
  FusedPlan plan;
  std::vector<const Instr*> quantizers;
  std::vector<ValueId> outputs;   // of the body, made by the plan
  std::vector<int> instr_output;  // the instruction's output for each of them; -1: kept in the workspace
  size_t kept_bytes(const Program& body) const {
    size_t n = 0;
    for (size_t o = 0; o < outputs.size(); ++o)
      if (instr_output[o] < 0) n += lines(size_t(body.at(outputs[o]).bytes()));
    return n;
  }
};

Fused fused_of(const Program& program, const Instr& instr, std::string& why) {
  Fused f;
  std::vector<const Instr*> code;
  if (!instr.body) {
    code.push_back(&instr);
    f.plan = compile_fused(program, code, instr.in, instr.out, why);
    return f;
  }
  const Program& body = *instr.body;
  std::vector<ValueId> quantized, made;
  for (const Instr& i : body.code) {
    if (quantizes(i)) {
      f.quantizers.push_back(&i);
      quantized.push_back(i.in[0]);
      made.insert(made.end(), i.out.begin(), i.out.end());
    } else {
      code.push_back(&i);
    }
  }
  auto has = [](const std::vector<ValueId>& list, ValueId v) {
    return std::find(list.begin(), list.end(), v) != list.end();
  };
  for (size_t o = 0; o < body.outputs.size(); ++o)
    if (!has(made, body.outputs[o])) f.outputs.push_back(body.outputs[o]), f.instr_output.push_back(int(o));
  for (ValueId v : quantized)
    if (!has(f.outputs, v) && !has(body.inputs, v)) f.outputs.push_back(v), f.instr_output.push_back(-1);
  if (code.empty()) why = "the body only quantizes";
  if (why.empty()) f.plan = compile_fused(body, code, body.inputs, f.outputs, why);
  return f;
}

std::string reject(const KernelQuery& q) {
  std::string why;
  Fused f = fused_of(q.program, q.instr, why);
  if (!why.empty()) return why;
  if (f.quantizers.empty()) return check_all_float(q);
  const Program& body = *q.instr.body;
  for (const Instr* i : f.quantizers)
    for (size_t k = 0; k < i->in.size(); ++k)
      if (const Value& v = body.at(i->in[k]); v.dtype != DType::i64) {
        if (why = check_float(v); !why.empty()) return why;
        if (k > 0 && v.dtype != DType::f32) return "takes scales of f32";
      }
  for (ValueId v : f.outputs)
    if (why = check_float(body.at(v)); !why.empty()) return why;
  return "";
}

size_t sums_bytes(const FusedPlan& p) { return float_lines(p.columns) * size_t(p.chunks() + 1) * p.sums.size(); }
size_t slots_bytes(const FusedPlan& p) { return float_lines(p.tile) * size_t(p.slots); }
size_t tiles_bytes(const FusedPlan& p, int threads) { return slots_bytes(p) * size_t(threads) + sums_bytes(p); }

size_t workspace(const KernelQuery& q) {
  std::string why;
  Fused f = fused_of(q.program, q.instr, why);
  size_t tiles = tiles_bytes(f.plan, q.device.threads);
  if (f.quantizers.empty()) return tiles;
  const Program& body = *q.instr.body;
  return f.kept_bytes(body) + std::max(tiles, quantize_scratch(body.at(f.quantizers[0]->in[0]), q.device.threads));
}

std::shared_ptr<void> prepare(const KernelQuery& q) {
  std::string why;
  return std::make_shared<Fused>(fused_of(q.program, q.instr, why));
}

// Where a launch has the inputs and outputs of a plan, and its tiles.
struct Memory {
  void* const* in;
  void* const* out;
  char* tiles;
};

// Runs elements begin .. end-1 of the shape; sums: [p.sums][columns] floats of this part.
void run_range(const Memory& c, const FusedPlan& p, int64_t begin, int64_t end, char* slots, float* sums) {
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

void run_plan(const KernelCall& call, const FusedPlan& p, const Memory& c) {
  char* sums = c.tiles;
  char* slots = sums + sums_bytes(p);
  if (p.sums.empty()) {
    int threads = threads_for(call.threads, p.numel * int64_t(p.steps.size() + 1), 16384);
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
  int threads = threads_for(call.threads, p.numel * int64_t(p.steps.size() + 1), 16384);
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
  threads = threads_for(call.threads, chunks * count * p.columns, 1 << 15);
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

void quantize_in_body(const KernelCall& c, const Fused& f, const Memory& memory) {
  const Program& body = *c.instr.body;
  auto address = [&](ValueId v) -> void* {
    for (size_t o = 0; o < f.outputs.size(); ++o)
      if (f.outputs[o] == v) return memory.out[o];
    return address_in_body(c, v);
  };
  float unread_scale = 0;
  for (const Instr* i : f.quantizers) {
    std::vector<void*> in, out;
    for (ValueId v : i->in) in.push_back(address(v));
    for (ValueId v : i->out) out.push_back(address(v));
    if (i->op == &op_quantize && !out[out::quantize::scale]) out[out::quantize::scale] = &unread_scale;
    launch_quantizer({body, *i, in.data(), out.data(), memory.tiles, nullptr, c.threads, c.groups, nullptr, c.device});
  }
}

void launch(const KernelCall& c) {
  const Fused& f = *static_cast<const Fused*>(c.prepared);
  if (f.quantizers.empty()) return run_plan(c, f.plan, {c.in, c.out, static_cast<char*>(c.workspace)});
  std::vector<void*> out;
  char* kept = static_cast<char*>(c.workspace);
  for (size_t o = 0; o < f.outputs.size(); ++o) {
    out.push_back(f.instr_output[o] < 0 ? kept : c.out[f.instr_output[o]]);
    if (f.instr_output[o] < 0) kept += lines(size_t(c.instr.body->at(f.outputs[o]).bytes()));
  }
  const Memory memory = {c.in, out.data(), kept};
  run_plan(c, f.plan, memory);
  quantize_in_body(c, f, memory);
}

Kernel kernel(const char* op, const char* name) { return {op, name, reject, workspace, prepare, launch}; }

}  // namespace

Kernel fused_kernel() { return kernel("fused", "cpu.fused.tiles"); }
#define CREST_POINTWISE_KERNEL(op, inputs, outputs) \
  Kernel op##_kernel() { return kernel(#op, "cpu." #op ".simd"); }
CREST_POINTWISE_OPS(CREST_POINTWISE_KERNEL)
#undef CREST_POINTWISE_KERNEL

}  // namespace crest::cpu
