#include "data/loader.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <set>
#include <thread>

#include "data/helpers.h"
#include "wait.h"

using namespace crest;
using namespace crest::test;

// A stream with token i % 1000 at position i, in shards of unequal size.
static TokenStream make_stream(const DataFolder& dir, size_t n) {
  std::vector<uint32_t> tokens(n);
  for (size_t i = 0; i < n; ++i) tokens[i] = uint32_t(i % 1000);
  ShardWriter w(dir.path(), "train", 1000, 777);
  w.append(tokens);
  w.finish();
  std::vector<ShardReader> shards;
  for (auto& name : w.file_names()) shards.emplace_back(dir / name, 1000);
  return {"train", std::move(shards)};
}

TEST(Permutation, IsABijectionForEverySmallSizeAndKey) {
  for (uint64_t n = 1; n <= 130; ++n)
    for (uint64_t key = 0; key < 5; ++key) {
      Permutation p(n, key);
      std::vector<bool> seen(n);
      for (uint64_t i = 0; i < n; ++i) {
        ASSERT_LT(p(i), n);
        ASSERT_FALSE(seen[p(i)]) << n << " " << key;
        seen[p(i)] = true;
      }
    }
  Permutation large(1000003, 42);
  std::vector<bool> seen(1000003);
  for (uint64_t i = 0; i < 1000003; ++i) {
    uint64_t v = large(i);
    ASSERT_FALSE(seen[v]);
    seen[v] = true;
  }
}

TEST(Permutation, LooksUniform) {
  // Mean position of the first tenth; the standard error of a uniform sample of 1000 from 10000 is
  // 87.
  Permutation p(10000, 7);
  double sum = 0;
  for (uint64_t i = 0; i < 1000; ++i) sum += double(p(i));
  EXPECT_NEAR(sum / 1000, 5000, 5 * 87);
  int fixed = 0;
  for (uint64_t i = 0; i < 10000; ++i) fixed += p(i) == i;
  EXPECT_LE(fixed, 10);  // Poisson with mean 1
}

TEST(Stream, ReadsAcrossShards) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 5000);
  EXPECT_EQ(s.total_tokens(), 5000u);
  std::vector<int32_t> out(5000);
  for (uint64_t start : {0, 776, 777, 778, 1500, 4990}) {
    size_t n = std::min<size_t>(2000, 5000 - start);
    s.read(start, n, out.data());
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], int32_t((start + i) % 1000)) << start;
  }
  s.read(5000, 0, out.data());
  EXPECT_ERROR(s.read(4999, 2, out.data()), "it has 5000");
}

TEST(Loader, EveryEpochVisitsEveryWindowOnceAndEpochsDiffer) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 5000);
  Loader l(s, 16, 1234);
  uint64_t n = l.samples_per_epoch();
  EXPECT_EQ(n, 4999u / 16);
  std::vector<uint64_t> orders[3];
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    for (uint64_t i = 0; i < n; ++i) orders[epoch].push_back(l.window_of(epoch * n + i));
    std::set<uint64_t> unique(orders[epoch].begin(), orders[epoch].end());
    EXPECT_EQ(unique.size(), n);
    EXPECT_EQ(*unique.rbegin(), n - 1);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  Loader other_seed(s, 16, 1235);
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < n; ++i) order.push_back(other_seed.window_of(i));
  EXPECT_NE(order, orders[0]);
}

TEST(Loader, TargetsAreTheNextTokens) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 5000);
  Loader l(s, 33, 5);
  std::vector<int32_t> x(33), y(33);
  for (uint64_t g = 0; g < l.samples_per_epoch(); ++g) {
    l.sample(g, x.data(), y.data());
    uint64_t start = l.window_of(g) * 33;
    for (size_t i = 0; i < 33; ++i) {
      ASSERT_EQ(x[i], int32_t((start + i) % 1000));
      ASSERT_EQ(y[i], int32_t((start + i + 1) % 1000));
    }
  }
}

TEST(Loader, SamplesDoNotDependOnBatchRankOrWorld) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 5000);
  const int64_t seq = 8;
  auto step_tokens = [&](uint64_t step, uint64_t micro_steps, uint64_t world, uint64_t batch) {
    Loader l(s, seq, 99);
    std::vector<int32_t> all;
    for (uint64_t micro_step = 0; micro_step < micro_steps; ++micro_step)
      for (uint64_t rank = 0; rank < world; ++rank) {
        auto samples = micro_batch_samples(step, micro_step, micro_steps, rank, world, batch);
        std::vector<int32_t> x(batch * seq), y(batch * seq);
        SampleReader(l).batch(samples, x.data(), y.data());
        all.insert(all.end(), x.begin(), x.end());
        all.insert(all.end(), y.begin(), y.end());
      }
    std::sort(all.begin(), all.end());
    return all;
  };
  for (uint64_t step : {0, 1, 50}) {  // 50 * 24 is past the first epoch of 624
    auto whole = step_tokens(step, 1, 1, 24);
    EXPECT_EQ(whole, step_tokens(step, 3, 1, 8));
    EXPECT_EQ(whole, step_tokens(step, 1, 4, 6));
    EXPECT_EQ(whole, step_tokens(step, 4, 3, 2));
  }
}

TEST(Loader, SequentialOrderForValidation) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 1000);
  Loader l(s, 10, 3, SampleOrder::sequential);
  EXPECT_EQ(l.samples_per_epoch(), 99u);
  for (uint64_t g = 0; g < 250; ++g) EXPECT_EQ(l.window_of(g), g % 99);
}

TEST(Loader, ShortSplitsAreErrors) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 100);
  Loader exact(s, 99, 0);
  EXPECT_EQ(exact.samples_per_epoch(), 1u);
  EXPECT_ERROR(Loader(s, 100, 0), "has 100 tokens, but a sequence of 100 needs at least 101");
  EXPECT_ERROR(Loader(s, 0, 0), "--seq");
  EXPECT_ERROR(Loader(TokenStream(), 4, 0), "has 0 tokens");
}

TEST(Prefetcher, GivesTheSameBatchesAsTheLoader) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 5000);
  Loader l(s, 8, 1);
  Prefetcher p(
      l, [](uint64_t i) { return micro_batch_samples(i, 0, 1, 1, 2, 4); }, 5, 60);
  for (uint64_t i = 5; i < 60; ++i) {
    const Batch& b = p.next();
    EXPECT_EQ(b.index, i);
    EXPECT_EQ(b.samples.front(), i * 8 + 4);
    std::vector<int32_t> x(32), y(32);
    SampleReader(l).batch(b.samples, x.data(), y.data());
    ASSERT_EQ(b.tokens, x);
    ASSERT_EQ(b.targets, y);
  }
  EXPECT_ERROR(p.next(), "the last one is 59");
}

TEST(Prefetcher, ErrorsOfTheThreadAreThrownAtTheirBatch) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 5000);
  Loader l(s, 8, 1, SampleOrder::sequential);
  Prefetcher p(l, [](uint64_t i) {
    if (i == 3) fail("planted");
    return std::vector<uint64_t>{i};
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(p.next().index, uint64_t(i));
  EXPECT_ERROR(p.next(), "planted");
  EXPECT_ERROR(p.next(), "planted");

  std::filesystem::resize_file(dir / "train-000001.bin", 1024 + 20);
  Prefetcher broken(
      l, [](uint64_t i) { return std::vector<uint64_t>{i}; }, 90);
  EXPECT_ERROR(for (int i = 0; i < 20; ++i) broken.next(), "cut short");
}

TEST(Prefetcher, HasStoppedReadingOnceItIsDestroyed) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 5000);
  Loader l(s, 8, 1);
  for (uint64_t taken = 0; taken < 4; ++taken) {
    std::atomic<uint64_t> begun = 0, ended = 0;
    std::atomic<bool> leaving = false;
    {
      auto samples = [&](uint64_t i) {
        ++begun;
        while (i >= taken && !leaving) std::this_thread::yield();
        for (int turn = 0; turn < 100 && i >= taken; ++turn) std::this_thread::yield();
        ++ended;
        return std::vector<uint64_t>{i};
      };
      Prefetcher p(l, samples, 0, UINT64_MAX, {3, 2});
      for (uint64_t i = 0; i < taken; ++i) p.next();
      EXPECT_TRUE(wait_until([&] { return begun > taken; }));
      leaving = true;
    }
    EXPECT_EQ(begun, ended);
  }
}

TEST(Prefetcher, ThreadsReadAheadInOrder) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 5000);
  Loader l(s, 8, 1);
  for (ReadAhead ahead : {ReadAhead{1, 3}, ReadAhead{4, 1}, ReadAhead{5, 3}}) {
    Prefetcher p(
        l, [](uint64_t i) { return micro_batch_samples(i, 0, 1, 0, 1, 3); }, 2, 200, ahead);
    for (uint64_t i = 2; i < 200; ++i) {
      const Batch& b = p.next();
      ASSERT_EQ(b.index, i);
      std::vector<int32_t> x(24), y(24);
      SampleReader(l).batch(b.samples, x.data(), y.data());
      ASSERT_EQ(b.tokens, x);
      ASSERT_EQ(b.targets, y);
    }
    EXPECT_ERROR(p.next(), "the last one is 199");
  }
}

// The prefetcher reads exactly as many batches ahead as requested.
TEST(Prefetcher, ReadsAsFarAheadAsAsked) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 5000);
  Loader l(s, 8, 1);
  std::atomic<uint64_t> asked = 0, taken = 0, too_far = 0;
  auto samples = [&](uint64_t i) {
    ++asked;
    if (i >= taken + 3) too_far = i;
    return std::vector<uint64_t>{i};
  };
  Prefetcher p(l, samples, 0, UINT64_MAX, {3, 2});
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(wait_until([&] { return asked >= taken + 3; })) << taken;
    ++taken;
    p.next();
  }
  EXPECT_EQ(too_far, 0u);
}

TEST(Prefetcher, AnErrorOfOneThreadOfManyKeepsItsPlace) {
  DataFolder dir;
  TokenStream s = make_stream(dir, 5000);
  Loader l(s, 8, 1, SampleOrder::sequential);
  auto samples = [](uint64_t i) {
    if (i == 7) fail("planted");
    return std::vector<uint64_t>{i};
  };
  Prefetcher p(l, samples, 0, UINT64_MAX, {4, 3});
  for (int i = 0; i < 7; ++i) EXPECT_EQ(p.next().index, uint64_t(i));
  EXPECT_ERROR(p.next(), "planted");
  EXPECT_ERROR(p.next(), "planted");
}
