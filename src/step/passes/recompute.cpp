// Setting --recompute: instead of keeping forward results, the backward half repeats their
// instructions right before the first use. Repeated instructions may read kept values only.
// activation repeats element-wise operations (GELU, SwiGLU); the fusion pass joins them with their
// gradient's kernel. pointwise also repeats norms. selective also repeats attention (Korthikanti et
// al. 2022). full keeps only values between layers (Chen et al. 2016), and with fp8 the 8-bit
// inputs of repeated matmuls. layers= gives each layer its own level.
#include "passes/recompute.h"

#include <algorithm>
#include <unordered_map>

#include "core/error.h"
#include "ops/fused.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class Recompute {
 public:
  Recompute(Program& program, const std::vector<std::string>& levels) : program_(program) {
    for (auto& level : levels)
      levels_.push_back(
          Level(std::find(recompute_levels.begin(), recompute_levels.end(), level) - recompute_levels.begin()));
  }

  void run() {
    find_candidates();
    find_saved();
    decide();
    find_rows();
    rebuild();
  }

 private:
  enum Level { none, activation, pointwise, selective, full };

  Level level(const Instr& instr) const {
    int layer = instr.origin.layer();
    return layer < 0 || size_t(layer) >= levels_.size() ? none : levels_[size_t(layer)];
  }

  void find_candidates() {
    producer_ = program_.producers();
    crosses_.assign(program_.values.size(), false);
    for (auto& instr : program_.code) {
      if (instr.phase != Phase::forward) continue;
      for (ValueId v : instr.in)
        if (v != no_value && producer_[size_t(v)] >= 0 &&
            program_.code[size_t(producer_[size_t(v)])].origin.layer() != instr.origin.layer())
          crosses_[size_t(v)] = true;
    }
  }

  bool candidate(const Instr& instr) const {
    Level repeats = level(instr);
    if (instr.phase != Phase::forward || repeats == none) return false;
    for (ValueId v : instr.out) {
      const Value& value = program_.at(v);
      if (value.role != Role::activation || crosses_[size_t(v)]) return false;
    }
    if (repeats == full) return true;
    if (repeats != selective)
      return instr.op->pointwise || (repeats == pointwise && instr.op->op_class == OpClass::normalization);
    return instr.op->cheap || instr.op->pointwise || instr.op->op_class == OpClass::attention ||
           instr.op->op_class == OpClass::movement || is(instr, "matmul");
  }

  // Whether it makes the 8-bit rows of a weight (--fp8-weights again). Made again, they are bitwise
  // identical: the tables hold this weight's magnitude by then, so the scale does not change.
  bool makes_weight_rows(const Instr& instr) const {
    return instr.phase == Phase::forward && level(instr) == full && quantizes_rows(instr) &&
           !instr.attrs.integer("columns", 0) && producer_[size_t(instr.in[0])] < 0 &&
           program_.at(instr.out[0]).role == Role::activation;
  }

  // Finds forward values read in the backward half.
  void find_saved() {
    saved_.assign(program_.values.size(), false);
    for (auto& instr : program_.code) {
      if (instr.phase != Phase::backward) continue;
      for (ValueId v : instr.in)
        if (v != no_value && producer_[size_t(v)] >= 0 &&
            program_.code[size_t(producer_[size_t(v)])].phase == Phase::forward)
          saved_[size_t(v)] = true;
    }
  }

  // Whether the backward half can have a value without keeping more. One sweep in code order is
  // enough.
  void decide() {
    available_.assign(program_.values.size(), false);
    repeat_.assign(program_.code.size(), false);
    for (size_t v = 0; v < program_.values.size(); ++v) available_[v] = producer_[v] < 0;
    for (size_t i = 0; i < program_.code.size(); ++i) {
      const Instr& instr = program_.code[i];
      if (instr.phase != Phase::forward) continue;
      bool inputs = true;
      for (ValueId v : instr.in) inputs &= v == no_value || available_[size_t(v)];
      bool all = level(instr) == full;
      repeat_[i] = candidate(instr) && (inputs || all);
      for (ValueId v : instr.out)
        available_[size_t(v)] = repeat_[i] || saved_[size_t(v)] || (all && crosses_[size_t(v)]);
    }
  }

  // Finds the weights with rows to be made again, by layer.
  void find_rows() {
    std::vector<bool> seen(program_.code.size(), false);
    for (auto& instr : program_.code)
      if (instr.phase == Phase::backward)
        for (ValueId v : instr.in) find_rows(v, seen);
  }
  void find_rows(ValueId v, std::vector<bool>& seen) {
    if (v == no_value || producer_[size_t(v)] < 0) return;
    const auto i = size_t(producer_[size_t(v)]);
    const Instr& instr = program_.code[i];
    const bool rows = makes_weight_rows(instr) && v == instr.out[0];
    if (seen[i] || (!rows && !repeat_[i])) return;
    seen[i] = true;
    if (rows)
      rows_[instr.origin.layer()].push_back(i);
    else
      for (ValueId in : instr.in) find_rows(in, seen);
  }

  void rebuild() {
    Rewriter w(program_);
    for (auto& instr : w.old) {
      if (instr.phase != Phase::backward) {
        keep(w, instr);
        continue;
      }
      // All rows of a layer come before its backward half. In between, they would separate the
      // quantizations of two gradients that one kernel can make.
      for (size_t i : rows_[instr.origin.layer()]) again(w, w.old[i].out[0]);
      Instr changed = instr;
      for (ValueId& v : changed.in) v = again(w, v);
      keep(w, std::move(changed));
    }
    w.finish();
  }

  void keep(Rewriter& w, Instr instr) {
    for (ValueId v : instr.out)
      if (const ValueId s = program_.at(v).layout.storage; s != v) versions_[s] = {v, v};
    w.keep(std::move(instr));
  }

  // The value, or its clone (made on first use).
  ValueId again(Rewriter& w, ValueId v) {
    if (v == no_value || size_t(v) >= producer_.size() || producer_[size_t(v)] < 0) return v;
    size_t i = size_t(producer_[size_t(v)]);
    auto it = clones_.find(v);
    if (it != clones_.end()) return it->second;
    if (makes_weight_rows(w.old[i])) return v == w.old[i].out[0] ? rows_again(w, w.old[i]) : v;
    if (!repeat_[i]) return v;
    Instr clone = w.old[i];
    clone.phase = Phase::recompute;
    for (ValueId& in : clone.in) in = again(w, in);
    std::vector<ValueId> originals = clone.out;
    std::vector<ValueId> out = w.build(clone).append(clone);
    for (size_t o = 0; o < out.size(); ++o) clones_[originals[o]] = out[o];
    return clones_.at(v);
  }

  // Repeats the rows only. The scale stays, and the tables get another version.
  ValueId rows_again(Rewriter& w, const Instr& quantize) {
    Instr clone = quantize;
    clone.phase = Phase::recompute;
    std::vector<ValueId> storages;
    for (ValueId v : quantize.out) storages.push_back(program_.at(v).layout.storage);
    for (ValueId& in : clone.in)
      if (auto it = versions_.find(program_.at(in).layout.storage); it != versions_.end()) in = it->second.now;
    const std::vector<ValueId> out = w.build(clone).append(clone);
    for (size_t o = 0; o < out.size(); ++o)
      if (storages[o] != quantize.out[o]) {
        Version& version = versions_.at(storages[o]);
        w.replace(version.old, out[o]);
        version.now = out[o];
      }
    return clones_[quantize.out[0]] = out[0];
  }

  struct Version {
    ValueId old, now;  // the newest in the old code, and in the new one
  };

  Program& program_;
  std::vector<Level> levels_;  // by layer
  std::vector<int> producer_;
  std::vector<bool> crosses_, saved_, available_, repeat_;
  std::unordered_map<ValueId, ValueId> clones_;
  std::unordered_map<ValueId, Version> versions_;      // by storage, of values changed in place
  std::unordered_map<int, std::vector<size_t>> rows_;  // instructions of a layer
};

}  // namespace

void recompute(Program& program, const PassContext& context) {
  const std::string& value = context.recipe.recompute;
  if (context.kind != ProgramKind::train || value == "none" || value == "auto") return;
  Recompute(program, recompute_by_layer(value, context.recipe.model.layers)).run();
}

static Setting with_check(Setting row) {
  row.set = [](const Setting& s, void* object, const SettingValue& value) {
    const std::string& text = std::get<std::string>(value);
    if (std::string wrong = wrong_recompute(text); !wrong.empty()) fail_usage(wrong, s.flag(), allowed(s));
    static_cast<Recipe*>(object)->recompute = text;
  };
  return row;
}

const std::vector<Setting>& recompute_settings() {
  static const std::vector<Setting> rows = {with_check(setting<&Recipe::recompute>(
      {.name = "recompute",
       .group = "Precision and memory",
       .help = "what the backward pass recomputes instead of storing: nothing (none), GELU and SwiGLU (activation), "
               "also norms (pointwise), also attention (selective), everything (full). auto: pointwise with fusion, "
               "else none. budget: the fastest choice by prediction within this memory. layers: levels by layer, "
               "from the first, such as layers=full:4+pointwise:8",
       .choices = {"auto", "none", "activation", "pointwise", "selective", "full", "budget=SIZE",
                   "layers=LEVEL:N+LEVEL:N"},
       .common = true,
       .effects = {{Effect::work, Effect::anywhere, {}, "recompute"},
                   {Effect::work, Effect::amount, {}, "backward", true}},
       .smaller = {"activation", "pointwise", "selective", "full"}}))};
  return rows;
}

}  // namespace crest
