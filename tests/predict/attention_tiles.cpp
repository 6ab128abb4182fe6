// Tiles of attention and their share of the time.
#include "predict/attention_tiles.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "bench/phase_runner.h"
#include "device/data_sheet.h"
#include "plan/recipe_settings.h"
#include "predict/predicted_step.h"

namespace crest::test {

namespace {

bool sees(const AttentionShape& s, int64_t query, int64_t key) {
  // The first of several ranks has the first and the last chunk of a sequence.
  if (s.queries < s.keys && query >= s.queries / 2) query += s.keys - s.queries;
  return key <= query && (s.window == 0 || key > query - s.window);
}

// Pairs of whole tiles over pairs that see each other, counted one by one. Forward, the last tile
// of queries is full and a tile costs a pair more. In the gradient, the keys of a group of heads
// cost half a pair more.
double counted(const AttentionShape& s, int64_t tile_queries) {
  std::set<std::pair<int64_t, int64_t>> tiles;
  std::set<int64_t> items;
  int64_t pairs = 0;
  const int64_t end = (s.queries + 63) / 64 * 64,
                before = s.gradient ? 0 : (end + tile_queries - 1) / tile_queries * tile_queries - end;
  for (int64_t q = 0; q < s.queries; ++q)
    for (int64_t k = 0; k < s.keys; ++k)
      if (sees(s, q, k)) {
        const int64_t tile = (q + before) / tile_queries;
        ++pairs, tiles.emplace(tile, k / 128);
        items.insert(s.gradient ? k / 128 : tile);
      }
  const double starts = double(items.size()) * (s.gradient ? 0.5 * double(s.kv_heads) / double(s.heads) : 1);
  return (double(tiles.size()) + starts) * double(tile_queries * 128) / double(pairs);
}

}  // namespace

TEST(AttentionTiles, AreCountedWhole) {
  for (bool gradient : {false, true})
    for (int64_t head_dim : {64, 128}) {
      const int64_t size = gradient ? (head_dim > 64 ? 64 : 128) : head_dim > 64 ? 128 : 192;
      for (AttentionShape s : {AttentionShape{2, 256, 256, 4, 2},
                               {1, 1000, 1000, 3, 1},
                               {1, 768, 1536, 4, 4},
                               {1, 1024, 1024, 2, 2, 0, 300}}) {
        s.head_dim = head_dim, s.gradient = gradient;
        EXPECT_NEAR(tile_factor(s, 0), counted(s, size), 1e-9)
            << s.queries << " " << s.window << " " << gradient << " " << head_dim;
      }
    }
}

TEST(AttentionTiles, OfALongSequenceAreItsFlops) {
  const auto factor = [](int64_t tokens) { return tile_factor({1, tokens, tokens, 32, 8, 64}, 132); };
  EXPECT_GT(factor(1024), 1.4);
  EXPECT_LT(factor(32768), 1.05);
  EXPECT_GE(factor(32768), 1);
  EXPECT_NEAR(tile_factor({1, 65536, 131072, 32, 8, 64}, 132), 1, 0.02) << "shared by two ranks";
}

// 8 key heads of 16 tiles are fewer than the multiprocessors: the longest takes twice the mean.
TEST(AttentionTiles, LeaveMultiprocessorsIdle) {
  const AttentionShape few = {1, 2048, 2048, 32, 8, 64, 0, true}, many = {16, 2048, 2048, 32, 8, 64, 0, true};
  EXPECT_GT(tile_factor(few, 132) / tile_factor(few, 0), 1.4);
  EXPECT_LT(tile_factor(few, 132) / tile_factor(few, 0), 2.1);
  EXPECT_LT(tile_factor(many, 132) / tile_factor(many, 0), 1.02);
  EXPECT_EQ(tile_factor({}, 132), 1) << "not an attention";
}

// Sizes as in the Program, of one rank.
TEST(AttentionShape, IsInTheRowsOfAStep) {
  const Device device = described_device(find_data_sheet("h200"));
  auto rows = [&](GivenSettings given) {
    given["model"] = {"llama-1B"}, given["precision"] = {"bf16"};
    Recipe r;
    settings_of(r).apply(given);
    r.model.layers = 1;
    return step_rows(compile_phase(resolve(r, device), device, BenchPhase::step, {.verify = false}));
  };
  auto check = [](const Profile& p, AttentionShape want) {
    int found = 0;
    for (auto& row : p.instrs) {
      if (!row.attention.known()) continue;
      want.gradient = row.op.ends_with("_grad");
      EXPECT_TRUE(row.attention == want) << row.op;
      EXPECT_TRUE(tiled_attention(row) == want) << row.kernel;
      const double t = double(want.keys), pairs = t * (t + 1) / 2 * double(want.queries) / t;
      EXPECT_NEAR(row.flops / row.calls, (want.gradient ? 10.0 : 4.0) * double(want.batch * want.heads) * 64 * pairs,
                  1);
      ++found;
    }
    EXPECT_EQ(found, 2);
  };
  check(rows({{"batch", {"3"}}, {"seq", {"512"}}}), {3, 512, 512, 32, 8, 64});
  check(rows({{"batch", {"1"}}, {"seq", {"1024"}}, {"mesh", {"context=2"}}}), {1, 512, 1024, 32, 8, 64});
  check(rows({{"batch", {"1"}}, {"seq", {"512"}}, {"mesh", {"tensor=2"}}}), {1, 512, 512, 16, 4, 64});
}

TEST(AttentionShape, CountsForKernelsWithKnownTiles) {
  ProfileInstr row;
  row.attention = {1, 512, 512, 2, 2, 64};
  for (const char* kernel : {"cuda.attention.sm90.d64", "cuda.attention_rows_grad.sm90.d128", "cuda.attention.cudnn"}) {
    row.kernel = kernel;
    EXPECT_TRUE(tiled_attention(row).known()) << kernel;
  }
  for (const char* kernel : {"cuda.flash.mma", "cpu.attention.simd", "cuda.attention.generic"}) {
    row.kernel = kernel;
    EXPECT_FALSE(tiled_attention(row).known()) << kernel;
  }
}

}  // namespace crest::test
