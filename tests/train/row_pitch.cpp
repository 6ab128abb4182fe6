// Logits with a row pitch (a vocabulary of 97 on a GPU, or on its emulation) train as logits
// without one: only the order of a row's sums differs.
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

struct Case {
  std::string precision, policy;
  bool llama;
};

class RowPitch : public testing::TestWithParam<Case> {};

}  // namespace

TEST_P(RowPitch, TrainsAsRowsWithout) {
  const auto& [precision, policy, llama] = GetParam();
  const Device device = gpu();
  if (device.kind != "cuda") GTEST_SKIP() << "no GPU: CREST_TEST_DEVICE=cuda names one";
  const bool half_type = precision.ends_with("16");  // with matrix products slow on the emulation
  for (auto [chunk, fusion] : {std::pair{"off", "on"}, {"30", "off"}}) {
    if (half_type && fusion == std::string(llama ? "off" : "on")) continue;
    SCOPED_TRACE(std::string("chunks ") + chunk + ", fusion " + fusion);
    Recipe r = tiny_recipe(llama);
    r.model.tied = !llama;
    r.pad_vocab = 1, r.precision = precision, r.policy = policy, r.fusion = fusion,
    r.pass_settings["loss-chunk"] = chunk;
    Recipe n = r;
    n.disabled_passes = {"row_pitch"};
    constexpr int steps = 2;
    Trained x = train(r, steps, 1e-3, device), y = train(n, steps, 1e-3, device);
    // Tolerances as for recipes with and without chunks (settings.cpp). On a GPU in TF32, rows with
    // a pitch use tensor cores, and unaligned rows do not.
    const bool coarse = precision != "fp32";
    const double allowed = coarse ? 2e-3 : 1e-5;
    EXPECT_NEAR(x.losses[0], y.losses[0], 1e-5 * y.losses[0]) << "the first forward pass";
    EXPECT_NEAR(x.norms[0], y.norms[0], (coarse ? 1e-3 : 1e-5) * y.norms[0]);
    for (size_t s = 0; s < steps; ++s) EXPECT_NEAR(x.losses[s], y.losses[s], allowed * y.losses[s]) << "step " << s;
    EXPECT_NEAR(x.validation, y.validation, allowed * y.validation);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, RowPitch,
                         testing::Values(Case{"fp32", "pure", true}, Case{"tf32", "pure", false},
                                         Case{"bf16", "autocast", true}, Case{"fp16", "pure", false}),
                         [](auto& info) { return info.param.precision + "_" + info.param.policy; });
