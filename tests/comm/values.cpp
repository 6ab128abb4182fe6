// Every collective of every communicator gives the right values.
#include <gtest/gtest.h>

#include <thread>

#include "backend/runtime.h"
#include "comm/gloo.h"
#include "comm/local.h"
#include "core/random.h"
#include "device/find.h"
#include "loopback.h"
#include "measure/collectives.h"
#include "ranks.h"

namespace crest::test {

namespace {

// Bytes: one element, odd ones, and in fp32 chunks of several segments with a rest.
std::vector<int64_t> sizes_of(DType dtype, int ranks) {
  if (dtype != DType::f32) return {1, 4099};
  return {1, 60, 4099, 65537, ranks * int64_t(1'100'003)};
}

void check_all(Communicator& comm, DType dtype) {
  Device device = find_device("cpu", 1);
  auto runtime = make_runtime(device, nullptr);
  std::vector<int64_t> sizes = sizes_of(dtype, comm.size());
  for (Collective c : all_collectives) {
    CollectiveMeasure bench(comm, *runtime, c, dtype, sizes.back());
    for (int64_t bytes : sizes) bench.check(bytes);
  }
}

void check_mean_and_shift(Communicator& comm) {
  std::vector<float> x(1001, float(comm.rank()));
  comm.all_reduce(x.data(), DType::f32, int64_t(x.size()), true);
  for (float v : x) ASSERT_FLOAT_EQ(v, float(comm.size() - 1) / 2);
  int n = comm.size(), next = (comm.rank() + 1) % n, previous = (comm.rank() + n - 1) % n;
  std::vector<int32_t> out(700'001, comm.rank()), in(out.size(), -1);  // more than two segments
  comm.send_receive(out.data(), next, in.data(), previous, int64_t(out.size() * sizeof out[0]));
  EXPECT_EQ(in, std::vector<int32_t>(out.size(), previous));
}

// The sum of these numbers depends on the order of addition.
std::vector<float> values_of(int rank, int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = float(int32_t(random_bits(5, uint64_t(rank), i))) * (i % 3 == 0 ? 1e-9f : i % 3 == 1 ? 1.0f : 1e-3f);
  return x;
}

// In fp32, in rank order: ((x0 + x1) + x2) + ...
void check_order(Communicator& comm) {
  int ranks = comm.size();
  for (int64_t n : {int64_t(1), int64_t(7), int64_t(4099), int64_t(700'003)}) {
    std::vector<float> expected = values_of(0, n), data = values_of(comm.rank(), n);
    for (int r = 1; r < ranks; ++r) {
      std::vector<float> more = values_of(r, n);
      for (size_t i = 0; i < more.size(); ++i) expected[i] += more[i];
    }
    comm.all_reduce(data.data(), DType::f32, n, false);
    ASSERT_EQ(data, expected) << n;
    int64_t part = n / ranks;
    if (part == 0) continue;
    data = values_of(comm.rank(), n);
    std::vector<float> own(static_cast<size_t>(part));
    comm.reduce_scatter(data.data(), own.data(), DType::f32, part);
    auto first = expected.begin() + std::ptrdiff_t(part * comm.rank());
    ASSERT_EQ(own, std::vector<float>(first, first + std::ptrdiff_t(part))) << n;
  }
  // 16-bit floats: added in fp32, rounded once.
  std::vector<bfloat16> half(1001), sum(1001);
  std::vector<float> wide(half.size());
  for (int r = 0; r < ranks; ++r) {
    std::vector<float> values = values_of(r, int64_t(half.size()));
    for (size_t i = 0; i < half.size(); ++i) {
      bfloat16 x = to_bfloat16(values[i]);
      wide[i] += to_float(x);
      if (r == comm.rank()) half[i] = x;
    }
  }
  for (size_t i = 0; i < half.size(); ++i) sum[i] = to_bfloat16(wide[i]);
  comm.all_reduce(half.data(), DType::bf16, int64_t(half.size()), false);
  for (size_t i = 0; i < half.size(); ++i) ASSERT_EQ(half[i].bits, sum[i].bits) << i;
}

}  // namespace

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, GlooGivesTheRightValues) {
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem();
  NEEDS_LOOPBACK();
  auto errors = with_ranks(GetParam(), [&](Control& control) {
    auto comm = make_gloo_communicator(control, GetParam(), "test", 60, 60);
    for (DType t : {DType::f32, DType::bf16, DType::f16, DType::f64}) check_all(*comm, t);
    check_mean_and_shift(*comm);
    check_order(*comm);
    comm->barrier();
  });
  for (auto& e : errors) EXPECT_EQ(e, "");
}

TEST_P(Ranks, LocalGivesTheRightValues) {
  auto comms = make_local_communicators(GetParam());
  std::vector<std::thread> threads;
  for (auto& comm : comms)
    threads.emplace_back([&] {
      for (DType t : {DType::f32, DType::bf16}) check_all(*comm, t);
      check_mean_and_shift(*comm);
      check_order(*comm);
    });
  for (auto& t : threads) t.join();
}

INSTANTIATE_TEST_SUITE_P(Of, Ranks, testing::Values(1, 2, 3, 4));

// Groups of a part of the ranks, one after the other.
TEST(Gloo, TheFirstRanksCanBeAGroup) {
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem();
  NEEDS_LOOPBACK();
  auto errors = with_ranks(4, [](Control& control) {
    for (int ranks : {2, 3, 4}) {
      if (control.rank() >= ranks) continue;
      auto comm = make_gloo_communicator(control, ranks, std::to_string(ranks), 60, 60);
      check_mean_and_shift(*comm);
      comm->barrier();
    }
  });
  for (auto& e : errors) EXPECT_EQ(e, "");
}

// A communicator with one wrong element on rank 1.
class Broken final : public Communicator {
 public:
  explicit Broken(Communicator& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void all_reduce(void* data, DType dtype, int64_t n, bool mean) override {
    inner_.all_reduce(data, dtype, n, mean);
    if (rank() == 1) store_element(data, dtype, 17, 100);
  }
  void all_gather(const void* in, void* out, DType dtype, int64_t n) override { inner_.all_gather(in, out, dtype, n); }
  void reduce_scatter(void* in, void* out, DType dtype, int64_t n) override {
    inner_.reduce_scatter(in, out, dtype, n);
  }
  void broadcast(void* data, DType dtype, int64_t n, int root) override { inner_.broadcast(data, dtype, n, root); }
  void send_receive(const void* out, int to, void* in, int from, int64_t bytes) override {
    inner_.send_receive(out, to, in, from, bytes);
  }
  void barrier() override { inner_.barrier(); }

 private:
  Communicator& inner_;
};

TEST(Check, AWrongValueIsFoundAndAllRanksSayWhere) {
  auto comms = make_local_communicators(3);
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (auto& comm : comms)
    threads.emplace_back([&] {
      Device device = find_device("cpu", 1);
      auto runtime = make_runtime(device, nullptr);
      Broken broken(*comm);
      try {
        CollectiveMeasure(broken, *runtime, Collective::all_reduce, DType::f32, 4000).check(4000);
      } catch (const Error& e) {
        errors[size_t(comm->rank())] = e.problem();
      }
    });
  for (auto& t : threads) t.join();
  for (auto& e : errors) EXPECT_NE(e.find("element 17 of rank 1 is 100"), std::string::npos) << e;
}

TEST(Local, ARankThatLeavesLetsNobodyWait) {
  auto comms = make_local_communicators(3);
  std::vector<int> lost(3);
  std::vector<std::thread> threads;
  for (auto& comm : comms)
    threads.emplace_back([&] {
      float x = 1;
      comm->all_reduce(&x, DType::f32, 1, false);
      EXPECT_EQ(x, 3);
      if (comm->rank() == 1) return comm->leave();
      try {
        comm->all_reduce(&x, DType::f32, 1, false);
      } catch (const PeerLost&) {
        lost[size_t(comm->rank())] = 1;
        comm->leave();
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(lost, (std::vector<int>{1, 0, 1}));
}

TEST(Measure, TimesAllSizesWithTheSameNumberOfSamplesOnEveryRank) {
  auto comms = make_local_communicators(2);
  std::vector<CollectiveTime> times(2);
  std::vector<std::thread> threads;
  for (auto& comm : comms)
    threads.emplace_back([&] {
      Device device = find_device("cpu", 1);
      auto runtime = make_runtime(device, nullptr);
      CollectiveMeasure bench(*comm, *runtime, Collective::broadcast, DType::f32, 4096);
      StoppingRule rule = {.warmup = 1, .min_samples = 6, .max_samples = 20, .max_seconds = 0.05};
      times[size_t(comm->rank())] = bench.run(4096, rule);
      EXPECT_GT(measure_link(*comm, *runtime, 4096), 0);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(times[0].bytes, 4096);
  EXPECT_GE(times[0].seconds.count(), 6u);
  EXPECT_EQ(times[0].seconds.values(), times[1].seconds.values());
  EXPECT_EQ(times[0].calls, times[1].calls);
}

}  // namespace crest::test
