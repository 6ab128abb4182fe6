// Each copy of an offloaded update is needed exactly once, in its place. Without it, with it twice,
// or with the destination of another copy, the Program is refused.
#include <gtest/gtest.h>

#include "core/error.h"
#include "passes/tiny.h"
#include "program/op.h"
#include "program/verify.h"

using namespace crest;
using namespace crest::test;

namespace {

bool refused_copy(const Program& p) {
  try {
    verify(p, "mutation");
  } catch (const Error&) {
    return true;
  }
  return false;
}

std::vector<Recipe> recipes() {
  std::vector<Recipe> list;
  for (const char* optimizer : {"adamw", "adamw-8bit", "adamw-unfused", "adafactor-momentum", "muon"})
    for (const char* fusion : {"on", "off"})
      for (int64_t ranks : {1, 2}) {
        Recipe r = tiny_recipe();
        r.optimizer = optimizer, r.fusion = fusion, r.precision = "bf16", r.data_parallel = ranks;
        r.pass_settings["offload"] = "optimizer", r.pass_settings["offload-piece"] = "2kB";
        const bool shards = std::string(optimizer) == "adamw" || std::string(optimizer) == "muon";
        if (ranks == 2 && std::string(fusion) == "on" && shards) r.pass_settings["shard"] = "optimizer";
        list.push_back(r);
      }
  return list;
}

}  // namespace

TEST(Copies, RemovedOrRepeatedOnesAreFound) {
  int copies = 0;
  for (const Recipe& r : recipes()) {
    Program p = update_program(r);
    EXPECT_FALSE(refused_copy(p));
    for (size_t i = 0; i < p.code.size(); ++i) {
      if (!p.code[i].op->crosses_memories()) continue;
      SCOPED_TRACE(testing::Message() << r.optimizer << " fusion " << r.fusion << " instruction " << i << " "
                                      << p.code[i].op->name);
      ++copies;
      Program without = p, twice = p;
      without.code.erase(without.code.begin() + ptrdiff_t(i));
      EXPECT_TRUE(refused_copy(without));
      twice.code.insert(twice.code.begin() + ptrdiff_t(i), p.code[i]);
      EXPECT_TRUE(refused_copy(twice));
    }
  }
  EXPECT_GT(copies, 200);
}

// Activations travel by values of their own: without a copy, its reader has nothing to read.
TEST(Copies, OfActivationsAreNeededOnce) {
  int copies = 0;
  for (const char* fusion : {"on", "off"}) {
    Recipe r = tiny_recipe(true);
    r.model.layers = 2, r.fusion = fusion, r.pass_settings["offload"] = "activations=all";
    Program p = forward_program(r, ProgramKind::train);
    run_passes(p, {r, ProgramKind::train});
    for (size_t i = 0; i < p.code.size(); ++i) {
      if (!p.code[i].op->crosses_memories()) continue;
      SCOPED_TRACE(testing::Message() << "fusion " << fusion << " instruction " << i << " " << p.code[i].op->name);
      ++copies;
      Program without = p, twice = p, early = p;
      without.code.erase(without.code.begin() + ptrdiff_t(i));
      EXPECT_TRUE(refused_copy(without));
      twice.code.insert(twice.code.begin() + ptrdiff_t(i), p.code[i]);
      EXPECT_TRUE(refused_copy(twice));
      std::rotate(early.code.begin(), early.code.begin() + ptrdiff_t(i), early.code.begin() + ptrdiff_t(i) + 1);
      EXPECT_TRUE(refused_copy(early));
    }
  }
  EXPECT_GT(copies, 16);
}

TEST(Copies, ToAnothersPlaceAreFound) {
  for (const Recipe& r : recipes()) {
    Program p = update_program(r);
    std::vector<size_t> out;
    for (size_t i = 0; i < p.code.size(); ++i)
      if (p.code[i].op->name == std::string("copy_out")) out.push_back(i);
    for (size_t k = 0; k + 1 < out.size(); ++k) {
      Program swapped = p;
      Instr &a = swapped.code[out[k]], &b = swapped.code[out[k + 1]];
      if (p.at(a.in[1]).dtype != p.at(b.in[1]).dtype || !(p.at(a.in[1]).shape == p.at(b.in[1]).shape)) continue;
      std::swap(a.in[1], b.in[1]), std::swap(a.out, b.out);
      EXPECT_TRUE(refused_copy(swapped)) << r.optimizer << " " << k;
    }
  }
}
