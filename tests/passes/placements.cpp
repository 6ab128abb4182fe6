// Each collective of a Program is needed exactly once. Without it, or with it twice, the check of
// placements (or an older rule of Programs) fails.
#include "program/placements.h"

#include <gtest/gtest.h>

#include <set>

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "ops/index.h"
#include "passes/optimizers.h"
#include "passes/tiny.h"
#include "program/op.h"
#include "program/verify.h"

using namespace crest;
using namespace crest::test;

namespace {

struct Case {
  std::string name;
  Recipe recipe;
  ProgramKind kind;
  bool last;
};

// The level: --shard, or `forward`: --gather forward.
void share(Recipe& r, std::string level) {
  if (level == "forward") r.pass_settings["gather"] = level, level = "gradients";
  r.pass_settings["reduce"] = level == "optimizer" ? "flat" : "bucket";
  r.pass_settings["shard"] = level, r.pass_settings["bucket"] = "500B";
}

const char* const levels[] = {"optimizer", "gradients", "weights", "forward"};

// Of each optimizer with sharding at each level.
std::vector<Case> updates() {
  std::vector<Case> list;
  std::vector<Optimizer> optimizers = elementwise_optimizers();
  optimizers.push_back(muon_optimizers().at(0));
  for (const Optimizer& optimizer : optimizers)
    for (const char* level : levels) {
      Recipe r = tiny_recipe();
      r.data_parallel = 2, r.precision = "bf16", r.fusion = "on", r.optimizer = optimizer.name;
      share(r, level), r.pass_settings["state-block"] = "64";
      list.push_back({r.optimizer + " " + level, r, ProgramKind::update, true});
    }
  return list;
}

std::vector<Case> cases() {
  std::vector<Case> list = updates();
  for (bool llama : {false, true})
    for (const char* reduce : {"each", "flat", "overlap", "bucket", "optimizer", "gradients", "weights", "forward"})
      for (int64_t micro_steps : {1, 2})
        for (const char* precision : {"fp32", "bf16"}) {
          Recipe r = tiny_recipe(llama);
          r.data_parallel = 2, r.grad_accumulation = micro_steps, r.precision = precision, r.fusion = "on";
          r.pass_settings["bucket"] = "500B";
          if (std::find(std::begin(levels), std::end(levels), std::string(reduce)) != std::end(levels))
            share(r, reduce);
          else
            r.pass_settings["reduce"] = reduce;
          if (micro_steps == 2) r.recompute = "full", r.policy = "autocast";
          std::string name = r.model.name + " " + reduce + " " + precision;
          list.push_back({name, r, ProgramKind::train, true});
          if (micro_steps == 2) list.push_back({name + " first", r, ProgramKind::train, false});
          list.push_back({name + " update", r, ProgramKind::update, true});
          list.push_back({name + " validation", r, ProgramKind::validation, true});
        }
  return list;
}

// The same with parts of the model on each rank.
std::vector<Case> tensor_cases() {
  std::vector<Case> list;
  const Mesh two = {{Axis::tensor, 2}}, square = {{Axis::data, 2}, {Axis::tensor, 2}};
  for (bool llama : {false, true})
    for (const char* reduce : {"each", "flat", "bucket", "optimizer", "gradients", "weights", "forward"})
      for (const Mesh& mesh : {two, square}) {
        Recipe r = tensor_recipe(llama);
        const bool shards = std::find(std::begin(levels), std::end(levels), std::string(reduce)) != std::end(levels);
        if (shards && mesh == two) continue;  // no data ranks
        r.mesh = mesh, r.data_parallel = mesh.ranks(), r.fusion = llama || shards ? "on" : "off";
        r.precision = llama ? "fp32" : "bf16", r.attention = llama ? "naive" : "flash";
        r.grad_accumulation = 2, r.recompute = mesh == two ? "none" : "full";
        r.pass_settings["bucket"] = "500B";
        if (shards)
          share(r, reduce);
        else
          r.pass_settings["reduce"] = reduce;
        const std::string name = r.model.name + " " + reduce + " " + mesh.text();
        list.push_back({name + " first", r, ProgramKind::train, false});
        list.push_back({name, r, ProgramKind::train, true});
        list.push_back({name + " update", r, ProgramKind::update, true});
        list.push_back({name + " validation", r, ProgramKind::validation, true});
      }
  for (bool llama : {false, true}) {
    Recipe r = tensor_recipe(llama);
    r.mesh = llama ? square : two, r.data_parallel = r.mesh.ranks(), r.fusion = "on", r.recompute = "full";
    r.pass_settings["tensor-overlap"] = "rows";
    list.push_back({r.model.name + " overlap", r, ProgramKind::train, true});
  }
  return list;
}

// The same with chunks of the sequences on each rank.
std::vector<Case> context_cases() {
  std::vector<Case> list;
  const Mesh two = {{Axis::context, 2}}, square = {{Axis::data, 2}, {Axis::context, 2}},
             heads = {{Axis::context, 2}, {Axis::tensor, 2}};
  for (bool llama : {false, true})
    for (const char* reduce : {"each", "bucket", "optimizer", "gradients", "weights", "forward"})
      for (const Mesh& mesh : {two, square, heads}) {
        Recipe r = tensor_recipe(llama);
        const bool shards = std::find(std::begin(levels), std::end(levels), std::string(reduce)) != std::end(levels);
        r.mesh = mesh, r.data_parallel = mesh.ranks(), r.fusion = llama || shards ? "on" : "off";
        r.precision = llama ? "fp32" : "bf16", r.grad_accumulation = 2, r.recompute = mesh == two ? "none" : "full";
        r.pass_settings["bucket"] = "500B";
        if (shards)
          share(r, reduce);
        else
          r.pass_settings["reduce"] = reduce;
        if (mesh == square) r.pass_settings["packing"] = "documents";
        const std::string name = r.model.name + " " + reduce + " " + mesh.text();
        list.push_back({name + " first", r, ProgramKind::train, false});
        list.push_back({name, r, ProgramKind::train, true});
        list.push_back({name + " update", r, ProgramKind::update, true});
        list.push_back({name + " validation", r, ProgramKind::validation, true});
      }
  return list;
}

Program compiled(const Case& c) {
  Program p = forward_program(c.recipe, c.kind);
  bool first = !c.last || c.recipe.grad_accumulation == 1;
  run_passes(p, {c.recipe, c.kind, first, c.last});
  return p;
}

bool refused(Program p) {
  try {
    verify(p, "mutation");
    verify_placements(p, "mutation");
  } catch (const Error&) {
    return true;
  }
  return false;
}

bool leaves_else(Program a, const Program& b) {
  verify_placements(a, "mutation");
  return std::any_of(axes_outermost_first.begin(), axes_outermost_first.end(),
                     [&](Axis axis) { return handover(a, axis).leaves != handover(b, axis).leaves; });
}

// The collective once more, behind itself, on its own results where it works in place.
void repeat(Program& p, size_t i) {
  Instr again = p.code[i];
  bool scatters = std::string_view(again.op->name) == "reduce_scatter";
  for (size_t o = 0; o < again.out.size(); ++o) {
    Value v = p.at(again.out[o]);
    v.name += ".again";
    auto id = ValueId(p.values.size());
    if (v.layout.storage == again.out[o]) v.layout.storage = id;
    p.values.push_back(v);
    if (!scatters || again.in.size() > 1) {
      for (ValueId& in : again.in)
        if (in != no_value && p.at(in).layout.storage == p.at(again.out[o]).layout.storage &&
            p.at(in).layout.offset == p.at(again.out[o]).layout.offset)
          in = again.out[o];
      for (size_t k = i + 1; k < p.code.size(); ++k)
        for (ValueId& in : p.code[k].in)
          if (in == again.out[o]) in = id;
      for (ValueId& out : p.outputs)
        if (out == again.out[o]) out = id;
    }
    again.out[o] = id;
  }
  p.code.insert(p.code.begin() + std::ptrdiff_t(i) + 1, again);
}

// How many collectives were left out, repeated and moved.
int check_mutations(const std::vector<Case>& cases) {
  int checked = 0;
  for (const Case& c : cases) {
    Program p = compiled(c);
    EXPECT_FALSE(refused(p)) << c.name;
    for (size_t i = 0; i < p.code.size(); ++i) {
      const Instr instr = p.code[i];
      if (instr.op->op_class != OpClass::communication) continue;
      SCOPED_TRACE(c.name + ", instruction " + std::to_string(i) + ", " + instr.op->name);
      Program without = p;
      without.code.erase(without.code.begin() + std::ptrdiff_t(i));
      // Readers get the input, as if the pass had not made the instruction.
      for (size_t o = 0; o < instr.out.size(); ++o) {
        ValueId input = std::string_view(instr.op->name) == "all_gather"
                            ? instr.in[std::min(size_t(in::all_gather::into), instr.in.size() - 1)]
                            : instr.in[o];
        without.at(instr.out[o]).placement = {};
        if (p.at(input).shape == p.at(instr.out[o]).shape) {
          for (auto& later : without.code) std::replace(later.in.begin(), later.in.end(), instr.out[o], input);
          std::replace(without.outputs.begin(), without.outputs.end(), instr.out[o], input);
        }
      }
      EXPECT_TRUE(refused(without)) << "removed";
      const std::string_view op = instr.op->name;
      const bool copies =
          op == "gather_rows" || op == "gather_parts" || op == "gather_tokens" || op.ends_with("_piece");
      if (!copies) {  // once more is a waste, but no mistake
        Program twice = p;
        repeat(twice, i);
        verify(twice, "repeated");  // a valid Program: only the placements are wrong
        EXPECT_TRUE(refused(twice)) << "repeated";
      }
      Program moved = p;
      moved.code[i].attrs.set("axes", axes_of(instr) == Axes(Axis::tensor) ? "data" : "tensor");
      // A micro step before the last may leave the wrong placement. Then the next micro step
      // refuses it.
      EXPECT_TRUE(refused(moved) || (!c.last && leaves_else(moved, p))) << "on another axis";
      ++checked;
    }
  }
  return checked;
}

}  // namespace

TEST(Placements, AMissingRepeatedOrMovedCollectiveIsAnError) { EXPECT_GT(check_mutations(cases()), 300); }

TEST(Placements, SoItIsAlongTheTensorAxis) { EXPECT_GT(check_mutations(tensor_cases()), 300); }
TEST(Placements, SoItIsAlongTheContextAxis) { EXPECT_GT(check_mutations(context_cases()), 300); }

// A rank's instruction must say that it counts from its own part. Otherwise it would count like the
// first rank.
TEST(Placements, WhatForgetsItsPartIsRefused) {
  std::set<std::string> forgot;
  const Mesh parts = {{Axis::tensor, 2}}, chunks = {{Axis::context, 2}};
  for (const char* fusion : {"off", "on"})
    for (const char* attention : {"flash", "naive", "rows"}) {
      Recipe r = tensor_recipe(false);
      const bool rows = std::string(attention) == "rows";
      if (rows) attention = "flash";
      r.mesh = rows ? chunks : parts, r.data_parallel = 2, r.model.dropout = 0.25;
      r.fusion = fusion, r.attention = attention;
      Program p = forward_program(r, ProgramKind::train);
      auto any_kernel = [](const Program&, const Instr&) { return std::string("any"); };  // dropout joins others
      run_passes(p, {r, ProgramKind::train, true, true, any_kernel});
      for (size_t i = 0; i < p.code.size(); ++i) {
        const Instr& instr = p.code[i];
        if (!instr.attrs.has("axes") || instr.op->exchange || instr.op->op_class == OpClass::communication) continue;
        SCOPED_TRACE("instruction " + std::to_string(i) + ", " + instr.op->name);
        Program without = p, moved = p;
        without.code[i].attrs.erase("axes"), moved.code[i].attrs.set("axes", "data");
        EXPECT_TRUE(refused(without));
        EXPECT_TRUE(refused(moved));
        forgot.insert(instr.op->name);
      }
    }
  for (const char* op :
       {"embedding", "embedding_grad", "loss_stats", "cross_entropy", "cross_entropy_grad", "dropout", "attention",
        "attention_grad", "attention_rows", "attention_rows_grad", "add_norm", "norm_grad"})
    EXPECT_EQ(forgot.count(op), 1u) << op;
}
