// Documents side by side in rows, and the loss masks beside shards.
#include "data/packing.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "core/random.h"
#include "data/helpers.h"
#include "data/loader.h"

using namespace crest;
using namespace crest::test;

namespace {

constexpr uint32_t end_of_text = 999;

// Documents of the given lengths (with their end token); every other token is its position in the
// stream. `trained` marks the counted tokens; without it there is no mask.
TokenStream make_documents(const DataFolder& dir, const std::vector<size_t>& lengths,
                           const std::function<bool(size_t)>& trained = {}, size_t shard = 100) {
  ShardWriter w(dir.path(), "train", 1000, shard, bool(trained));
  size_t position = 0;
  for (size_t n : lengths)
    for (size_t i = 0; i < n; ++i, ++position) {
      uint32_t token = i + 1 == n ? end_of_text : uint32_t(position % 999);
      w.append(std::array{token}, trained ? trained(position) : true);
    }
  w.finish();
  std::vector<ShardReader> shards;
  for (auto& name : w.file_names()) shards.emplace_back(dir / name);
  return {"train", std::move(shards)};
}

std::vector<size_t> random_lengths(size_t count, size_t most) {
  std::vector<size_t> lengths;
  for (size_t i = 0; i < count; ++i) lengths.push_back(1 + random_bits(5, 0, i) % most);
  return lengths;
}

}  // namespace

TEST(Packing, EveryTargetIsInOneRowOnceAndRowsAreFull) {
  for (int64_t seq : {7, 16, 40}) {
    DataFolder dir;
    auto lengths = random_lengths(300, 30);
    TokenStream s = make_documents(dir, lengths);
    Packing p(s, end_of_text, seq);
    std::vector<int> seen(s.total_tokens());
    uint64_t slots = 0;
    for (uint64_t r = 0; r < p.rows(); ++r) {
      uint64_t used = 0;
      for (auto& piece : p.row(r)) {
        used += piece.slots;
        for (uint32_t i = 0; i < piece.slots; ++i) ++seen[piece.begin + i + 1];
      }
      EXPECT_LE(used, uint64_t(seq));
      EXPECT_GT(used, 0u);
      slots += used;
    }
    size_t at = 0, cut = 0, documents = 0;
    for (size_t n : lengths) {
      EXPECT_EQ(seen[at], 0) << "the first token of a document has nothing before it";
      for (size_t i = 1; i < n; ++i) ASSERT_EQ(seen[at + i], 1) << at + i;
      at += n, cut += n > size_t(seq) + 1, documents += n > 1;
    }
    EXPECT_EQ(p.cut(), cut);
    EXPECT_EQ(p.documents(), documents);
    EXPECT_NEAR(p.filled(), double(slots) / double(p.rows() * uint64_t(seq)), 1e-12);
    // Best fit decreasing: few rows more than the tokens need.
    EXPECT_LE(p.rows(), (slots + uint64_t(seq) - 1) / uint64_t(seq) + 2) << seq;
  }
}

TEST(Packing, SamplesAreWholeDocumentsWithPositions) {
  DataFolder dir;
  TokenStream s = make_documents(dir, {4, 6, 1, 3, 12, 2});
  auto p = std::make_shared<const Packing>(s, end_of_text, 8);
  Loader l(s, p, 3);
  ASSERT_EQ(l.samples_per_epoch(), p->rows());
  std::vector<int32_t> x(8), y(8), positions(8);
  std::map<int32_t, int> targets;
  for (uint64_t g = 0; g < p->rows(); ++g) {
    l.sample(g, x.data(), y.data(), positions.data());
    for (size_t i = 0; i < 8; ++i) {
      if (y[i] < 0) {
        EXPECT_EQ(x[i], int32_t(end_of_text));
        EXPECT_EQ(positions[i], 0) << "padding sees nothing";
        continue;
      }
      ++targets[y[i]];
      if (positions[i] > 0) {
        EXPECT_EQ(positions[i], positions[i - 1] + 1);
        EXPECT_EQ(y[i - 1], x[i]);
      }
    }
  }
  // Documents of 4, 6, 3, 12 and 2 tokens; the one of 12 is cut after 8 slots.
  EXPECT_EQ(targets[end_of_text], 5);
  EXPECT_EQ(targets.size(), 1u + 2 + 4 + 1 + 10);
  // Epochs are orders of the same rows, and the samples a function of seed and number.
  std::vector<uint64_t> order, next;
  for (uint64_t g = 0; g < p->rows(); ++g) order.push_back(l.window_of(g)), next.push_back(l.window_of(g + p->rows()));
  std::sort(order.begin(), order.end()), std::sort(next.begin(), next.end());
  EXPECT_EQ(order, next);
  Loader again(s, std::make_shared<const Packing>(s, end_of_text, 8), 3);
  std::vector<int32_t> x2(8), y2(8);
  l.sample(1, x.data(), y.data()), again.sample(1, x2.data(), y2.data());
  EXPECT_EQ(x, x2);
  EXPECT_EQ(y, y2);
}

TEST(Packing, ReadAheadGivesTheSameBatches) {
  DataFolder dir;
  TokenStream s = make_documents(dir, random_lengths(60, 9));
  Loader l(s, std::make_shared<const Packing>(s, end_of_text, 12), 3);
  Prefetcher ahead(l, [](uint64_t i) { return micro_batch_samples(i, 0, 1, 0, 1, 2); }, 0, 6, {3, 2});
  std::vector<int32_t> x(24), y(24), positions(24);
  for (uint64_t i = 0; i < 6; ++i) {
    const Batch& b = ahead.next();
    SampleReader(l).batch(b.samples, x.data(), y.data(), positions.data());
    EXPECT_EQ(b.tokens, x);
    EXPECT_EQ(b.targets, y);
    EXPECT_EQ(b.positions, positions);
  }
}

TEST(Packing, PiecesWithoutATargetThatCountsAreLeftOut) {
  DataFolder dir;
  // Document 0: nothing counts. Document 1 (tokens 5 .. 24): its last four. Document 2: all.
  TokenStream s = make_documents(dir, {5, 20, 4}, [](size_t i) { return i >= 21; });
  Packing p(s, end_of_text, 8);
  uint64_t slots = 0;
  for (uint64_t r = 0; r < p.rows(); ++r)
    for (auto& piece : p.row(r)) {
      slots += piece.slots;
      EXPECT_GE(piece.begin, 5u + 8);
    }
  EXPECT_EQ(slots, 8u + 3 + 3);  // of 19 slots of document 1 the first 8 are prompt only
  EXPECT_EQ(p.documents(), 2u);
  DataFolder other;
  TokenStream nothing = make_documents(other, {5, 5}, [](size_t) { return false; });
  auto none = std::make_shared<const Packing>(nothing, end_of_text, 8);
  EXPECT_EQ(none->rows(), 0u);
  EXPECT_ERROR(Loader(nothing, none, 1), "no document with a token to train on");
}

TEST(LossMask, TargetsThatDoNotCountAreNegative) {
  DataFolder dir;
  TokenStream s = make_documents(
      dir, {300}, [](size_t i) { return i % 3 == 0; }, 70);
  EXPECT_TRUE(s.masked());
  Loader l(s, 25, 1, SampleOrder::sequential);
  EXPECT_TRUE(l.masked());
  std::vector<int32_t> x(25), y(25);
  for (uint64_t g = 0; g < l.samples_per_epoch(); ++g) {
    l.sample(g, x.data(), y.data());
    for (uint64_t i = 0; i < 25; ++i) {
      uint64_t target = g * 25 + i + 1;
      EXPECT_EQ(x[i], int32_t(target - 1));
      EXPECT_EQ(y[i], target % 3 == 0 ? int32_t(target) : -1) << target;
    }
  }
}

TEST(LossMask, DamagedMasksAreNamed) {
  DataFolder dir;
  make_documents(dir, {250}, [](size_t i) { return i > 9; });
  auto path = dir / "train-000001.mask";
  std::string good = read_file(path), bad = good;
  auto open = [&] {
    ShardReader r(dir / "train-000001.bin");
    std::vector<uint8_t> m(100);
    r.read_mask(0, 100, m.data());
  };
  open();
  write_file(path, good.substr(0, 1100));
  EXPECT_ERROR(open(), "the mask has 1100 bytes");
  write_file(path, good + "x");
  EXPECT_ERROR(open(), "the mask has 1125 bytes");
  write_file(path, "some text");
  EXPECT_ERROR(open(), "not a loss mask");
  bad[4] = 7;
  write_file(path, bad);
  EXPECT_ERROR(open(), "mask version 7");
  bad = good, bad[8] = 99;
  write_file(path, bad);
  EXPECT_ERROR(open(), "the mask has 99 tokens, but its shard has 100");
  bad = good, bad[1024 + 50] = 2;
  write_file(path, bad);
  EXPECT_ERROR(open(), "the mask of token 50 is 2");
  std::filesystem::remove(path);
  open();  // a shard without a mask is one of text
  std::vector<ShardReader> shards;
  for (const char* name : {"train-000000.bin", "train-000001.bin"}) shards.emplace_back(dir / name);
  EXPECT_ERROR(TokenStream("train", std::move(shards)), "no loss mask, but others of its split have one");
}
