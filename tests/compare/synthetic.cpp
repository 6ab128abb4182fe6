#include "compare/synthetic.h"

#include <algorithm>
#include <cmath>

#include "backend/device_json.h"
#include "core/random.h"
#include "device/find.h"
#include "plan/compile.h"
#include "plan/recipe_settings.h"
#include "program/op.h"

namespace crest::test {

namespace {

double rate_of(const std::string& arithmetic) {
  if (arithmetic == "bf16" || arithmetic == "fp16") return 700e12;
  return arithmetic == "tf32" ? 350e12 : 50e12;
}

const char* arithmetic_of(const CompiledProgram& c, const Instr& instr) {
  DType type = DType::f32;
  for (ValueId v : instr.in)
    if (v != no_value && is_half(c.program.at(v).dtype)) type = c.program.at(v).dtype;
  return type == DType::bf16 ? "bf16" : type == DType::f16 ? "fp16" : instr.attrs.has("tf32") ? "tf32" : "fp32";
}

ProfileInstr row_of(const CompiledProgram& c, size_t i, int calls, const Synthetic& how, const Profile& p) {
  const Instr& instr = c.program.code[i];
  ProfileInstr r;
  r.program = c.spec.name, r.index = int(i);
  r.op = instr.op->name, r.kernel = c.kernels[i]->name;
  r.phase = name(instr.phase), r.stream = name(instr.stream), r.op_class = name(instr.op->op_class);
  r.scopes = instr.origin.scopes(), r.layer = instr.origin.layer();
  const Value& result = c.program.at(instr.out[0]);
  r.type = std::string(name(result.dtype)) + "[" + result.shape.text() + "]";
  r.arithmetic = arithmetic_of(c, instr);
  r.calls = calls;
  Cost cost = instr.op->cost(c.program, instr);
  r.flops = cost.flops * calls, r.bytes = cost.bytes() * calls;
  r.floor_ms = 1e3 * std::max(r.flops / p.rate(r.arithmetic), r.bytes / p.rate("bandwidth"));
  r.ms = r.floor_ms * how.slowdown(r) + 1e-4;
  return r;
}

void add_memory(Profile& p, const CompiledSession& s) {
  ProfileMemory& m = p.memory;
  m.planned_bytes = s.planned_bytes(), m.persistent_bytes = s.persistent_bytes, m.transient_bytes = s.transient_bytes;
  m.measured_peak_bytes = m.planned_bytes;
  for (auto& b : s.persistent) m.persistent.push_back({b.name, std::string(name(b.category)), b.offset, b.bytes});
  for (auto& c : s.programs)
    for (auto& b : c.memory.blocks) {
      const Instr& maker = c.program.code[size_t(b.first)];
      ProfileBlock block;
      block.name = b.name, block.program = c.spec.name, block.category = name(b.category);
      block.phase = name(maker.phase), block.scope = maker.origin.text(), block.layer = maker.origin.layer();
      block.offset = b.offset, block.bytes = b.bytes, block.first = b.first, block.last = b.last;
      m.blocks.push_back(block);
    }
}

}  // namespace

Recipe recipe_of(const std::string& model, int64_t batch, int64_t seq) {
  Recipe r;
  r.model = load_model_config(model);
  r.batch = batch, r.seq = seq, r.precision = "bf16", r.recompute = "none";
  return r;
}

Profile make_profile(const Synthetic& how) {
  Device device = find_device(how.device, 4);
  Recipe recipe = resolve(how.recipe, device);
  SessionUse use;
  use.train = use.update = true;
  CompileOptions quick;
  quick.verify = false;
  CompiledSession s = compile(recipe, device, session_programs(recipe, use), quick);
  Profile p;
  p.recipe = recipe_to_json(recipe), p.device = device_to_json(device);
  p.method = "timers", p.tokens = recipe.tokens_per_step();
  p.clock_mhz = how.clock_mhz;
  for (const char* name : {"bf16", "fp16", "tf32", "fp32"})
    p.rates.push_back({name, rate_of(name) * how.rate_factor, "made up"});
  p.rates.push_back({"bandwidth", 4e12 * how.rate_factor, "made up"});
  std::vector<int> calls(s.programs.size());
  for (auto& call : training_step(s)) {
    ++calls[size_t(call.segment)];
    p.calls.push_back(s.programs[size_t(call.segment)].spec.name);
  }
  double at = 0;
  for (size_t k = 0; k < s.programs.size(); ++k)
    for (size_t i = 0; i < s.programs[k].program.code.size() && calls[k]; ++i) {
      p.instrs.push_back(row_of(s.programs[k], i, calls[k], how, p));
      ProfileInterval interval;
      interval.instr = int(p.instrs.size()) - 1, interval.start_ms = at, interval.ms = p.instrs.back().ms;
      at += interval.ms + how.idle_ms;
      p.busy_ms += interval.ms, p.idle_ms += how.idle_ms, p.launches += calls[k];
      p.intervals.push_back(interval);
    }
  p.span_ms = at;
  for (int i = 0; i < how.samples; ++i) {
    double wobble = double(random_bits(7, 0, uint64_t(i)) % 1000) / 1000 - 0.5;
    p.step_ms.push_back((p.span_ms + how.residual_ms) * (1 + how.noise * wobble));
    p.profiled_ms.push_back(p.span_ms * 1.01);
  }
  add_memory(p, s);
  return p;
}

RunRecord record_of(const Profile& profile, const std::string& name) {
  RunRecord r;
  r.name = name, r.uid = name + "-uid", r.kind = "profile", r.status = "done", r.phase = profile.phase;
  r.recipe = profile.recipe, r.device = profile.device, r.environment = profile.environment;
  r.documents["profile"] = to_json(profile);
  return r;
}

RunRecord make_record(const Synthetic& how, const std::string& name) { return record_of(make_profile(how), name); }

}  // namespace crest::test
