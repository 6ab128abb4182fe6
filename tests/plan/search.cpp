// The search of the largest micro batch.
#include "plan/search.h"

#include <gtest/gtest.h>

#include "device/find.h"
#include "plan/choose_kernels.h"

using namespace crest;

// The search finds the same batch as trying every batch, also where memory is no straight line.
TEST(PlanSearch, IsTheLargestBatchThatFits) {
  Device device = find_device("cpu", 2);
  SessionUse use;
  use.train = use.update = use.validation = true;
  struct Case {
    const char *recompute, *attention;
    int stages;  // with slots, which grow with the batch as well
  };
  for (auto [recompute, attention, stages] :
       {Case{"none", "flash", 1}, Case{"none", "naive", 1}, Case{"full", "flash", 1}, Case{"full", "naive", 1},
        Case{"none", "flash", 2}, Case{"full", "flash", 4}}) {
    Recipe r;
    r.model = load_model_config("nano");
    r.precision = "fp32", r.recompute = recompute, r.attention = attention;
    if (stages > 1) r.mesh = Mesh{{Axis::pipeline, stages}}, r.data_parallel = stages, r.grad_accumulation = 4;
    auto planned = [&](int64_t batch) {
      r.batch = batch;
      return compile(r, device, session_programs(r, use), {.verify = false}).planned_bytes();
    };
    int64_t one = planned(1), many = planned(23);
    for (int64_t limit : {one - 1, one, one + 1, planned(2), planned(2) - 1, many, many - 1, many + 1000, many * 20}) {
      int64_t best = largest_batch(r, device, use, limit);
      if (best > 0) {
        EXPECT_LE(planned(best), limit) << recompute << " " << attention << " limit " << limit;
      }
      EXPECT_GT(planned(best + 1), limit) << recompute << " " << attention << " limit " << limit;
      // The same from a session compiled for another batch.
      r.batch = 7;
      CompiledSession s = compile(r, device, session_programs(r, use));
      EXPECT_EQ(largest_batch(s, use, limit), best) << recompute << " " << attention << " limit " << limit;
    }
  }
}

// A batch with one more chunk of the loss needs less memory than the batch before it.
TEST(PlanSearch, FindsBatchesBehindOnesThatDoNotFit) {
  Device device = find_device("cpu", 2);
  const SessionUse use{.train = true, .update = true};
  constexpr int64_t most = 56;
  for (const char* chunk : {"512", "480"}) {
    Recipe r;
    r.model = load_model_config("nano");
    r.model.layers = 1;
    r.precision = "fp32", r.seq = 32, r.pass_settings["loss-chunk"] = chunk;
    r = resolve(r, device);
    std::vector<int64_t> bytes{0};
    for (r.batch = 1; r.batch <= most; ++r.batch)
      bytes.push_back(compile(r, device, session_programs(r, use)).planned_bytes());
    r.batch = 1;
    int behind = 0;
    for (int64_t limit = bytes[1]; limit < bytes[33]; limit += (bytes[33] - bytes[1]) / 20) {
      int64_t best = most;
      while (bytes[size_t(best)] > limit) --best;
      behind += *std::max_element(bytes.begin(), bytes.begin() + best) > limit;
      EXPECT_EQ(largest_batch(r, device, use, limit), best) << "chunks of " << chunk << ", limit " << limit;
    }
    EXPECT_GE(behind, 5) << "limits that a batch below the largest one exceeds";
  }
}
