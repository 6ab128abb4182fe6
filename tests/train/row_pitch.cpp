// Logits whose rows have a pitch (a vocabulary of 97 on a GPU, or on its emulation) train as those
// whose rows have none: only the order of a row's sums differs.
#include <gtest/gtest.h>

#include "train/harness.h"

using namespace crest;

namespace {

Device gpu() {
#if CREST_HAVE_CUDA
  return crest::test::test_device(2);
#else
  return crest::test::emulated_gpu(2);
#endif
}

class RowPitch : public testing::TestWithParam<std::tuple<std::string, std::string, bool>> {};

}  // namespace

TEST_P(RowPitch, TrainsAsRowsWithout) {
  auto [precision, policy, llama] = GetParam();
  const Device device = gpu();
  if (device.kind != "cuda") GTEST_SKIP() << "no GPU: CREST_TEST_DEVICE=cuda names one";
  for (std::string chunk : {"off", "30"})
    for (std::string fusion : {"on", "off"}) {
      SCOPED_TRACE(chunk + " fusion " + fusion);
      Recipe r = tiny_recipe(llama);
      r.model.tied = !llama;
      r.pad_vocab = 1, r.precision = precision, r.policy = policy, r.fusion = fusion, r.levers["loss-chunk"] = chunk;
      Recipe n = r;
      n.disabled_passes = {"row_pitch"};
      constexpr int steps = 2;
      Trained x = train(r, steps, 1e-3, device), y = train(n, steps, 1e-3, device);
      // As the same recipes with and without chunks (levers.cpp).
      const bool half = precision.ends_with("16");
      const double allowed = half ? 2e-3 : 1e-5;
      EXPECT_NEAR(x.losses[0], y.losses[0], 1e-5 * y.losses[0]) << "the first forward pass";
      EXPECT_NEAR(x.norms[0], y.norms[0], (half ? 1e-3 : 1e-5) * y.norms[0]);
      for (size_t s = 0; s < steps; ++s) EXPECT_NEAR(x.losses[s], y.losses[s], allowed * y.losses[s]) << "step " << s;
      EXPECT_NEAR(x.validation, y.validation, allowed * y.validation);
    }
}

INSTANTIATE_TEST_SUITE_P(Recipes, RowPitch,
                         testing::Combine(testing::Values("fp32", "tf32", "bf16", "fp16"),
                                          testing::Values("pure", "autocast"), testing::Bool()),
                         [](auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param) +
                                  (std::get<2>(info.param) ? "_llama" : "_gpt2");
                         });
