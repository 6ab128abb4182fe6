// Every read in an update depends, by operands, on every earlier write of the same memory: the
// order of the code does not protect it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "passes/tiny.h"
#include "program/op.h"
#include "program/waits.h"

using namespace crest;
using namespace crest::test;

namespace {

// Whether an instruction only gives other names to memory.
bool views(const Program& p, const Instr& instr) {
  Infer infer(p, instr);
  instr.op->infer(infer);
  return std::all_of(infer.outs.begin(), infer.outs.end(), [](auto& o) { return o.alias >= 0 && !o.consumes; });
}

// By instruction, the instructions with its inputs.
std::vector<std::vector<bool>> needed_by(const Program& p) {
  const std::vector<int> producers = p.producers();
  std::vector<std::vector<bool>> all(p.code.size(), std::vector<bool>(p.code.size()));
  for (size_t i = 0; i < p.code.size(); ++i)
    for (ValueId v : p.code[i].in)
      if (const int made = v == no_value ? -1 : producers[size_t(v)]; made >= 0) {
        all[i][size_t(made)] = true;
        for (size_t j = 0; j < i; ++j) all[i][j] = all[i][j] || all[size_t(made)][j];
      }
  return all;
}

// Expects every read of an earlier write to
// depend on it; returns their number.
int check_reads(const Program& p) {
  const auto needed = needed_by(p);
  int reads = 0;
  for (size_t i = 0; i < p.code.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      if (views(p, p.code[i]) || views(p, p.code[j])) continue;
      for (ValueId v : p.code[i].in)
        for (ValueId w : p.code[j].out) {
          if (v == no_value || p.at(v).layout.storage != p.at(w).layout.storage) continue;
          const Extent a = extent_of(p.at(v)), b = extent_of(p.at(w));
          if (a.begin >= b.end || b.begin >= a.end) continue;
          ++reads;
          EXPECT_TRUE(needed[i][j]) << "instruction " << i << " (" << p.code[i].op->name << ") reads %" << p.at(v).name
                                    << ", but does not depend on instruction " << j << " (" << p.code[j].op->name
                                    << "), which wrote %" << p.at(w).name;
        }
    }
  return reads;
}

}  // namespace

TEST(Dependences, OfAnUpdateAreStated) {
  int in_pieces = 0;
  for (const char* optimizer : {"adamw", "adamw-8bit", "adamw-unfused", "adafactor-momentum", "muon"})
    for (const char* weights : {"again", "update"})
      for (const char* offload : {"none", "optimizer"})
        for (int64_t ranks : {1, 2}) {
          Recipe r = tiny_recipe();
          r.optimizer = optimizer, r.fusion = "on", r.precision = "fp8", r.data_parallel = ranks;
          r.model.width = 16, r.model.head_dim = 8;
          r.pass_settings["fp8-weights"] = weights;
          const bool muon = std::string(optimizer) == "muon" && std::string(weights) == "again";
          if (ranks == 2 && (muon || std::string(optimizer) == "adamw")) r.pass_settings["shard"] = "optimizer";
          r.pass_settings["offload"] = offload, r.pass_settings["offload-piece"] = "2kB";
          SCOPED_TRACE(testing::Message()
                       << optimizer << " " << weights << " offload " << offload << " ranks " << ranks);
          const Program p = update_program(r);
          EXPECT_GT(check_reads(p), 0);
          in_pieces +=
              std::any_of(p.code.begin(), p.code.end(), [](auto& i) { return i.op->name == std::string("join_rows"); });
        }
  EXPECT_GT(in_pieces, 0);
}
