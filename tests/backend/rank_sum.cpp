// Ranks on a shared GPU: the kernel for sums over them, and their collectives.
#include "backend/cuda/rank_sum.h"

#include <gtest/gtest.h>

#include <thread>

#include "backend/runtime.h"
#include "core/random.h"
#include "device/communicators.h"
#include "gpu.h"
#include "measure/collectives.h"

namespace crest::test {

// In the order of the ranks, in fp32 (f64 in f64), rounded once; nothing behind the last element
// changes.
TEST(RankSum, AddsInTheOrderOfRanks) {
  NEEDS_GPU();
  auto device = gpu();
  auto runtime = make_runtime(device, nullptr);
  auto stream = std::move(make_thread_communicators(1, device)[0]);  // with the default stream as its stream
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (int ranks : {1, 2, 3, 7})
      for (int64_t n : {int64_t(1), int64_t(4), int64_t(1023), int64_t(5000)})
        for (int64_t shift : {0, 1})  // elements: not aligned
          for (bool mean : {false, true}) {
            SCOPED_TRACE(testing::Message() << name(dtype) << " " << ranks << " ranks " << n << " + " << shift);
            int64_t size = int64_t(size_of(dtype)), bytes = (n + shift + 1) * size;
            std::vector<std::vector<char>> host;
            cuda::RankPointers data;
            std::vector<double> expected(size_t(n), 0);
            for (int r = 0; r < ranks; ++r) {
              auto& h = host.emplace_back(size_t(bytes));
              for (int64_t i = 0; i < n + shift + 1; ++i)
                store_element(h.data(), dtype, i, random_bits(3, uint64_t(r), uint64_t(i)) % 1000 * 1e-3 - 0.3);
              for (int64_t i = 0; i < n; ++i) {
                double x = load_element(h.data(), dtype, i + shift), sum = r == 0 ? x : expected[size_t(i)] + x;
                expected[size_t(i)] = dtype == DType::f64 ? sum : double(float(sum));
              }
              auto* memory = static_cast<char*>(runtime->allocate(bytes));
              runtime->write(memory, h.data(), bytes);
              data.of[data.count++] = memory + shift * size;
            }
            runtime->synchronize();
            cuda::sum_ranks(nullptr, data, data, dtype, n, mean);
            stream->synchronize();
            std::vector<char> got(static_cast<size_t>(bytes)), want(static_cast<size_t>(bytes));
            for (int r = 0; r < ranks; ++r) {
              auto* memory = static_cast<char*>(data.of[r]) - shift * size;
              want = host[size_t(r)];
              for (int64_t i = 0; i < n; ++i)
                store_element(want.data(), dtype, i + shift,
                              !mean                 ? expected[size_t(i)]
                              : dtype == DType::f64 ? expected[size_t(i)] / ranks
                                                    : double(float(expected[size_t(i)]) / float(ranks)));
              runtime->read(got.data(), memory, bytes);
              EXPECT_EQ(got, want) << "rank " << r;
              runtime->release(memory, bytes);
            }
          }
}

TEST(RankSum, EveryCollectiveOfRanksThatShareADevice) {
  NEEDS_GPU();
  Device device = gpu();
  if (device.emulated) GTEST_SKIP() << "ranks that share the emulation communicate in host memory";
  for (int ranks : {1, 2, 3}) {
    auto communicators = make_thread_communicators(ranks, device);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        Communicator& own = *communicators[size_t(r)];
        try {
          auto runtime = make_runtime(device, nullptr);
          for (DType dtype : {DType::f32, DType::bf16, DType::f16})
            for (Collective c : all_collectives) {
              std::vector<int64_t> sizes = {1, 60, 4099, ranks * int64_t(300'003)};
              CollectiveMeasure bench(own, *runtime, c, dtype, sizes.back());
              for (int64_t bytes : sizes) bench.check(bytes);
            }
        } catch (const std::exception& e) {
          ADD_FAILURE() << "rank " << r << ": " << e.what();
          own.leave();
        }
      });
    for (auto& t : threads) t.join();
  }
}

}  // namespace crest::test
