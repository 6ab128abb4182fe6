#include "profile/profile_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "program/op.h"

namespace crest {

namespace {

// Matrix units multiply in the type of their operands. Everything else computes in fp32, whatever
// its storage type.
std::string arithmetic_of(const Program& p, const Instr& i) {
  if (i.op->crosses_memories()) return std::string(host_link_rate);
  bool matrix = i.op->op_class == OpClass::contraction || i.op->op_class == OpClass::attention;
  if (!matrix || i.in.empty()) return "fp32";
  if (i.attrs.integer("tf32", 0)) return "tf32";
  DType t = p.at(i.in[0]).dtype;
  if (is_fp8(t)) return "fp8";
  return t == DType::bf16 ? "bf16" : t == DType::f16 ? "fp16" : "fp32";
}

// The update covers the whole model, as one instruction or one per parameter.
int layer_of(const Instr& i) { return i.phase == Phase::update ? -1 : i.origin.layer(); }

// Inputs are (d_o,) qkv of attention, and (d_o,) q, kv of attention_rows, which is causal.
AttentionShape attention_of(const Program& p, const Instr& i) {
  const std::string_view op = i.op->name;
  const bool rows = op.starts_with("attention_rows"), gradient = op.ends_with("_grad");
  const bool whole = (op == "attention" || op == "attention_grad") && i.attrs.integer("causal", 0);
  if (!rows && !whole) return {};
  const Shape& q = p.at(i.in[gradient ? 1 : 0]).shape;
  AttentionShape s{.batch = q[0], .queries = q[1], .keys = q[1], .gradient = gradient};
  if (rows) s.keys = p.at(i.in[gradient ? 2 : 1]).shape[1];
  s.heads = i.attrs.integer("heads"), s.kv_heads = i.attrs.integer("kv_heads");
  s.head_dim = q[2] / (rows ? s.heads : s.heads + 2 * s.kv_heads);
  if (const int64_t window = i.attrs.integer("window", 0); window < s.keys) s.window = window;
  return s;
}

ProfileInstr row_of(const CompiledProgram& c, size_t index, int calls) {
  const Instr& i = c.program.code[index];
  Cost cost = i.op->cost(c.program, i);
  ProfileInstr r;
  r.program = c.spec.name;
  r.index = int(index);
  r.op = i.op->name;
  if (i.body && i.op->op_class != OpClass::optimizer)  // an update's body has a part for each weight
    for (auto& inner : i.body->code) r.parts.emplace_back(inner.op->name);
  r.kernel = c.kernels[index]->name;
  r.phase = name(i.phase);
  r.stream = name(i.stream);
  r.op_class = name(i.op->op_class);
  r.scopes = i.origin.scopes();
  r.layer = layer_of(i);
  if (!i.out.empty()) {
    const Value& v = c.program.at(i.out[0]);
    r.type = fmt::format("{}[{}]", name(v.dtype), v.shape.text());
  }
  r.attention = attention_of(c.program, i);
  r.arithmetic = arithmetic_of(c.program, i);
  if (r.kernel == "cuda.linear_fp8.dequantized") r.arithmetic = "bf16";  // the kernel converts its operands
  r.calls = calls;
  r.flops = cost.flops * calls;
  r.bytes = cost.bytes() * calls;
  return r;
}

void add_blocks(Profile& profile, const CompiledProgram& c) {
  std::vector<int> producers = c.program.producers();
  for (auto& b : c.memory.blocks) {
    const Instr& first = c.program.code[size_t(b.first)];
    // No instruction has gradient storage as its result, but its tensors are written at the start
    // of their blocks.
    bool written = b.category == Category::gradients && c.spec.kind == ProgramKind::train;
    bool from_host = b.storage != no_value && producers[size_t(b.storage)] < 0 && !written;
    ProfileBlock row;
    row.name = b.name;
    row.program = c.spec.name;
    row.category = name(b.category);
    row.phase = name(first.phase);
    row.scope = from_host ? "input" : first.origin.text();
    row.layer = from_host ? -1 : layer_of(first);
    row.offset = b.offset, row.bytes = b.bytes;
    row.first = b.first, row.last = b.last;
    profile.memory.blocks.push_back(row);
  }
}

}  // namespace

void describe_session(Profile& profile, const CompiledSession& session, const std::vector<int>& calls) {
  std::map<int, int> count;
  std::vector<int> order;  // Programs in order of their first call
  for (int call : calls) {
    if (count[call]++ == 0) order.push_back(call);
    profile.calls.push_back(session.programs[size_t(call)].spec.name);
  }
  for (int p : order) {
    const CompiledProgram& c = session.programs[size_t(p)];
    for (size_t i = 0; i < c.program.code.size(); ++i) profile.instrs.push_back(row_of(c, i, count[p]));
    add_blocks(profile, c);
  }
  ProfileMemory& m = profile.memory;
  m.planned_bytes = session.planned_bytes();
  m.persistent_bytes = session.persistent_bytes;
  m.transient_bytes = session.transient_bytes;
  m.host_bytes = session.host_bytes;
  for (size_t i = 0; i < session.persistent.size(); ++i) {
    const PersistentBlock& b = session.persistent[i];
    int64_t end = i + 1 < session.persistent.size() ? session.persistent[i + 1].offset : session.persistent_bytes;
    m.persistent.push_back({b.name, std::string(name(b.category)), b.offset, end - b.offset});
  }
}

std::set<std::string> rates_needed(const Profile& profile) {
  std::set<std::string> names = {"bandwidth"};
  for (auto& r : profile.instrs) names.insert(r.arithmetic);
  return names;
}

void set_floors(Profile& profile) {
  double bandwidth = profile.rate("bandwidth");
  for (auto& r : profile.instrs) {
    double rate = profile.rate(r.arithmetic);
    double link = crosses_host_link(r) ? rate : bandwidth;
    double compute = rate > 0 ? r.flops / rate : 0, memory = link > 0 ? r.bytes / link : 0;
    r.floor_ms = 1e3 * std::max(compute, memory);
  }
}

nlohmann::ordered_json program_document(const CompiledSession& s, const std::vector<int>& calls) {
  Profile profile;
  describe_session(profile, s, calls);
  nlohmann::ordered_json all = to_json(profile);
  for (auto& row : all["instrs"]) row.erase("ms"), row.erase("floor_ms");
  return {{"calls", all["calls"]}, {"instrs", all["instrs"]}};
}

}  // namespace crest
