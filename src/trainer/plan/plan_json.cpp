#include "plan/plan_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <variant>

#include "core/json.h"
#include "model/parameters.h"
#include "program/op.h"

namespace crest {

using Json = nlohmann::ordered_json;

// The keys that differ between layers. all: also the keys in every model.
static Json layer_to_json(const LayerConfig& m, const LayerConfig& from, bool all) {
  Json j = Json::object();
  if (m.norm_position != from.norm_position) j["norm_position"] = names_of<NormPosition>()[size_t(m.norm_position)];
  if (m.qk_norm != from.qk_norm) j["qk_norm"] = names_of<QkNorm>()[size_t(m.qk_norm)];
  if (m.norm_weight != from.norm_weight) j["norm_weight"] = m.norm_weight;
  if (m.norm_bias != from.norm_bias) j["norm_bias"] = m.norm_bias;
  if (m.parallel_residual != from.parallel_residual) j["parallel_residual"] = m.parallel_residual;
  if (m.rope != from.rope) j["rope"] = m.rope;
  if (m.rotary_dim != from.rotary_dim) j["rotary_dim"] = m.rotary_dim;
  if (m.attention_scale != from.attention_scale) j["attention_scale"] = m.attention_scale;
  if (m.residual_scale != from.residual_scale) j["residual_scale"] = m.residual_scale;
  if (!all) return j;
  if (m.window != from.window) j["window"] = m.window;
  if (m.rope_theta != from.rope_theta) j["rope_theta"] = m.rope_theta;
  if (m.activation != from.activation) j["activation"] = name(m.activation);
  if (m.norm != from.norm) j["norm"] = names_of<NormKind>()[size_t(m.norm)];
  return j;
}

Json model_to_json(const ModelConfig& m) {
  Json j = {{"name", m.name},
            {"vocab", m.vocab},
            {"context", m.context},
            {"layers", m.layers},
            {"heads", m.heads},
            {"kv_heads", m.kv_heads},
            {"width", m.width},
            {"head_dim", m.head_dim},
            {"ff", m.ff},
            {"norm", m.norm == NormKind::layer ? "layer" : "rms"},
            {"position", m.position == PositionKind::learned ? "learned" : "rope"},
            {"activation", name(m.activation)},
            {"bias", m.bias},
            {"tied", m.tied},
            {"dropout", m.dropout},
            {"parameters", parameter_count(m)}};
  // Only if true: most models do not have them.
  if (m.qkv_bias) j["qkv_bias"] = true;
  if (m.attention_bias) j["attention_bias"] = true;
  if (m.mlp_bias) j["mlp_bias"] = true;
  if (m.window) j["window"] = m.window;
  if (const int64_t full = first_full_layers(m)) j["full_layers"] = full;
  if (m.embedding_scale != 1) j["embedding_scale"] = m.embedding_scale;
  if (m.embedding_norm) j["embedding_norm"] = true;
  if (m.logit_scale != 1) j["logit_scale"] = m.logit_scale;
  if (m.logit_cap != 0) j["logit_cap"] = m.logit_cap;
  // Lists every kind of layer, unless only the windows of the first layers differ (full_layers).
  j.update(layer_to_json(m, LayerConfig(), false));
  if (m.others.empty() || j.contains("full_layers")) return j;
  j["pattern"] = m.pattern;
  for (auto& other : m.others) j["other_layers"].push_back(layer_to_json(other, m, true));
  return j;
}

Json categories_to_json(const CategoryBytes& bytes) {
  Json json = Json::object();
  for (int i = 0; i < category_count; ++i) json[std::string(name(Category(i)))] = bytes[size_t(i)];
  return json;
}

std::vector<BlockRow> largest_blocks(const CompiledSession& session, int rows) {
  std::vector<BlockRow> list;
  std::map<std::pair<std::string_view, int64_t>, size_t> known;  // by name and bytes
  for (auto& b : session.largest().memory.blocks) {
    auto [it, added] = known.emplace(std::pair(std::string_view(b.name), b.bytes), list.size());
    if (added) {
      list.push_back({b});
      continue;
    }
    BlockRow& row = list[it->second];
    ++row.count;
    row.block.first = std::min(row.block.first, b.first), row.block.last = std::max(row.block.last, b.last);
  }
  std::stable_sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.block.bytes > b.block.bytes; });
  list.resize(std::min(list.size(), size_t(rows)));
  return list;
}

static Json peak_to_json(const CompiledProgram& c) {
  const MemoryPlan& m = c.memory;
  if (m.peak_instr < 0) return nullptr;
  const Instr& i = c.program.code[size_t(m.peak_instr)];
  return {{"program", c.spec.name},
          {"instruction", m.peak_instr},
          {"op", i.op->name},
          {"origin", i.origin.text()},
          {"phase", name(i.phase)},
          {"live_bytes", m.live_peak},
          {"by_category", categories_to_json(m.at_peak)}};
}

Json memory_to_json(const CompiledSession& s, int rows) {
  Json blocks = Json::array();
  for (auto& [b, count] : largest_blocks(s, rows))
    blocks.push_back({{"name", b.name},
                      {"count", count},
                      {"bytes", b.bytes},
                      {"offset", b.offset},
                      {"first_instruction", b.first},
                      {"last_instruction", b.last},
                      {"category", name(b.category)}});
  Json communicators = Json::array();
  for (const CommunicatorMemory& c : s.communicators)
    communicators.push_back(
        {{"axes", c.axes.text()}, {"ranks", c.ranks}, {"peers", c.peers}, {"bytes", c.bytes}, {"source", "estimate"}});
  return {{"planned_bytes", s.planned_bytes()},
          {"persistent_bytes", s.persistent_bytes},
          {"transient_bytes", s.transient_bytes},
          {"host_bytes", s.host_bytes},
          {"host_activation_bytes", s.host_activations},
          {"ranks", s.recipe.all_ranks()},
          {"kept_bytes", s.kept_bytes()},
          {"by_category", categories_to_json(s.by_category())},
          {"communicators", communicators},
          {"peak", peak_to_json(s.largest())},
          {"largest_blocks", blocks}};
}

Json programs_to_json(const CompiledSession& s) {
  Json programs = Json::array();
  for (auto& c : s.programs)
    programs.push_back(
        {{"name", c.spec.name}, {"instructions", c.program.code.size()}, {"transient_bytes", c.memory.bytes}});
  return programs;
}

Json plan_document(const CompiledSession& s) {
  constexpr int blocks = 20;
  return {{"model", model_to_json(s.recipe.model)},
          {"memory", memory_to_json(s, blocks)},
          {"programs", programs_to_json(s)}};
}

namespace {

std::vector<int64_t> dims(const Shape& s) {
  std::vector<int64_t> d;
  for (int i = 0; i < s.rank(); ++i) d.push_back(s[i]);
  return d;
}

Json value_json(const CompiledProgram& c, ValueId id) {
  const Value& v = c.program.at(id);
  Json j = {{"name", v.name},
            {"dtype", name(v.dtype)},
            {"shape", dims(v.shape)},
            {"role", name(v.role)},
            {"lifetime", name(v.lifetime)},
            {"space", name(v.space)},
            {"storage", c.program.at(v.layout.storage).name},
            {"storage_offset", v.layout.offset},
            {"strides", dims(v.layout.strides)},
            {"bytes", v.bytes()}};
  int block = c.memory.block_of_value[size_t(v.layout.storage)];
  if (block >= 0) j["arena_offset"] = c.memory.blocks[size_t(block)].offset;
  return j;
}

Json instr_json(const Program& p, const Instr& i) {
  auto names = [&](const std::vector<ValueId>& ids) {
    Json list = Json::array();
    for (ValueId v : ids) list.push_back(v == no_value ? Json() : Json(p.at(v).name));
    return list;
  };
  Json attrs = Json::object();
  for (auto& e : i.attrs.entries()) std::visit([&](auto& x) { attrs[std::string(e.key)] = x; }, e.value);
  Cost cost = i.op->cost(p, i);
  Json j = {{"op", i.op->name},
            {"in", names(i.in)},
            {"out", names(i.out)},
            {"attrs", attrs},
            {"phase", name(i.phase)},
            {"lane", name(i.stream)},
            {"origin", i.origin.scopes()},
            {"flops", cost.flops},
            {"bytes_read", cost.bytes_read},
            {"bytes_written", cost.bytes_written}};
  if (i.body) {
    j["body"] = Json::array();
    for (auto& inner : i.body->code) j["body"].push_back(instr_json(*i.body, inner));
  }
  return j;
}

}  // namespace

std::string program_json(const CompiledProgram& c) {
  Json j = {{"name", c.spec.name}, {"kind", name(c.spec.kind)}, {"batch", c.spec.batch}, {"seq", c.spec.seq}};
  j["values"] = Json::array();
  for (size_t v = 0; v < c.program.values.size(); ++v) j["values"].push_back(value_json(c, ValueId(v)));
  j["instructions"] = Json::array();
  for (size_t i = 0; i < c.program.code.size(); ++i) {
    Json row = instr_json(c.program, c.program.code[i]);
    row["kernel"] = c.kernels[i]->name;
    row["workspace_bytes"] = c.workspace[i];
    j["instructions"].push_back(row);
  }
  Json blocks = Json::array();
  for (auto& b : c.memory.blocks)
    blocks.push_back({{"name", b.name},
                      {"category", name(b.category)},
                      {"offset", b.offset},
                      {"bytes", b.bytes},
                      {"first", b.first},
                      {"last", b.last}});
  j["memory"] = {{"arena_bytes", c.memory.bytes},
                 {"live_peak_bytes", c.memory.live_peak},
                 {"peak_instruction", c.memory.peak_instr},
                 {"blocks", blocks}};
  j["passes"] = Json::array();
  for (auto& t : c.timings) j["passes"].push_back({{"name", t.name}, {"seconds", t.seconds}});
  return j.dump();
}

}  // namespace crest
