// Every setting on and off trains the same model within its stated rounding.
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "train/harness.h"

using namespace crest;

namespace {

constexpr int compared_steps = 5;

// fp32 settings change only the order of sums. Five AdamW steps amplify the rounding of gradients
// near zero, since the update is g / |g| there. Weights stay within a small fraction of lr.
constexpr double reorder = 2e-4;

void expect_same(const Recipe& a, const Recipe& b, double loss_tolerance = 1e-5, double weights = reorder) {
  Trained x = train(a, compared_steps), y = train(b, compared_steps);
  for (int s = 0; s < compared_steps; ++s)
    EXPECT_NEAR(x.losses[size_t(s)], y.losses[size_t(s)], loss_tolerance * y.losses[size_t(s)]) << "step " << s;
  EXPECT_LT(distance(x, y), weights);
  EXPECT_NEAR(x.validation, y.validation, loss_tolerance * y.validation);
}

}  // namespace

class TrainingSettings : public testing::TestWithParam<bool> {
 protected:
  Recipe base() const { return tiny_recipe(GetParam()); }
};

TEST_P(TrainingSettings, TrainingLearns) {
  Recipe r = base();
  Trained t = train(r, 60, 3e-3);
  EXPECT_GT(t.losses.front(), 4.3);
  EXPECT_LT(t.losses.back(), 0.75 * t.losses.front());
}

TEST_P(TrainingSettings, NaiveAttention) {
  Recipe r = base(), n = base();
  n.attention = "naive";
  expect_same(n, r);
}

TEST_P(TrainingSettings, FusionOff) {
  Recipe r = base(), n = base();
  n.fusion = "off";
  expect_same(n, r);
}

TEST_P(TrainingSettings, FusionOffNaive) {
  Recipe r = base(), n = base();
  n.fusion = "off", n.attention = "naive";
  expect_same(n, r);
}

TEST_P(TrainingSettings, UnpaddedVocabulary) {
  Recipe r = base(), n = base();
  n.pad_vocab = 1;
  expect_same(n, r);
}

TEST_P(TrainingSettings, Recompute) {
  for (std::string mode : {"activation", "pointwise", "selective", "full", "layers=full:1+selective"})
    for (std::string attention : {"flash", "naive"})
      for (std::string fusion : {"on", "off"}) {
        SCOPED_TRACE(mode + attention + fusion);
        Recipe r = base(), n = base();
        r.attention = n.attention = attention;
        r.fusion = n.fusion = fusion;
        r.model.dropout = n.model.dropout = 0.2;
        n.recompute = mode;
        expect_same(n, r);
      }
}

TEST_P(TrainingSettings, RecomputeByLayer) {
  Recipe r = base(), n = base();
  r.model.dropout = n.model.dropout = 0.2;
  n.recompute = "layers=full:1+selective";
  expect_same(n, r);
}

// 68 tokens in chunks of sizes that divide 68, and that do not.
TEST_P(TrainingSettings, LossInPieces) {
  for (std::string tokens : {"1", "7", "34", "67"})
    for (std::string fusion : {"on", "off"}) {
      SCOPED_TRACE(tokens + fusion);
      Recipe r = base(), n = base();
      r.fusion = n.fusion = fusion;
      r.pass_settings["loss-chunk"] = "off", n.pass_settings["loss-chunk"] = tokens;
      expect_same(n, r);
    }
}

TEST_P(TrainingSettings, LossInPiecesWithOtherSettings) {
  std::vector<std::pair<const char*, std::function<void(Recipe&)>>> cases = {
      {"accumulation", [](Recipe& r) { r.batch = 2, r.grad_accumulation = 3; }},
      {"ranks", [](Recipe& r) { r.batch = 2, r.data_parallel = 2; }},
      {"ranks and accumulation", [](Recipe& r) { r.batch = 1, r.data_parallel = 2, r.grad_accumulation = 2; }},
      {"dropout", [](Recipe& r) { r.model.dropout = 0.2, r.recompute = "full"; }},
      {"other tying", [](Recipe& r) { r.model.tied = !r.model.tied; }},
      {"no padding", [](Recipe& r) { r.pad_vocab = 1; }},
      {"deterministic", [](Recipe& r) { r.deterministic = true; }},
  };
  for (auto& [name, set] : cases) {
    Recipe r = base(), n = base();
    set(r), set(n);
    SCOPED_TRACE(name);
    r.pass_settings["loss-chunk"] = "off", n.pass_settings["loss-chunk"] = "20";
    expect_same(n, r);
  }
}

// In half precision a token's row does not change. Only sums over the tokens (the head's gradient)
// are cut.
TEST_P(TrainingSettings, LossInPiecesInHalfPrecision) {
  for (std::string precision : {"bf16", "fp16"})
    for (std::string policy : {"pure", "autocast"}) {
      SCOPED_TRACE(precision + " " + policy);
      Recipe r = base(), n = base();
      r.precision = n.precision = precision, r.policy = n.policy = policy;
      r.pass_settings["loss-chunk"] = "off", n.pass_settings["loss-chunk"] = "20";
      Trained x = train(n, compared_steps), y = train(r, compared_steps);
      EXPECT_NEAR(x.losses[0], y.losses[0], 1e-5 * y.losses[0]) << "the first forward pass";
      EXPECT_NEAR(x.norms[0], y.norms[0], 1e-3 * y.norms[0]);
      for (int s = 0; s < compared_steps; ++s)
        EXPECT_NEAR(x.losses[size_t(s)], y.losses[size_t(s)], 2e-3 * y.losses[size_t(s)]) << s;
    }
}

TEST_P(TrainingSettings, GradientAccumulationEqualsTheLargeBatch) {
  for (int micro_steps : {2, 4}) {
    for (double dropout : {0.0, 0.2}) {
      Recipe r = base(), n = base();
      r.model.dropout = n.model.dropout = dropout;
      n.batch = r.batch / micro_steps;
      n.grad_accumulation = micro_steps;
      Trained x = train(n, compared_steps), y = train(r, compared_steps);
      for (int s = 0; s < compared_steps; ++s)
        EXPECT_NEAR(x.losses[size_t(s)], y.losses[size_t(s)], 1e-5 * y.losses[size_t(s)]) << micro_steps;
      EXPECT_LT(distance(x, y), reorder);
    }
  }
}

TEST_P(TrainingSettings, TwoRanksEqualOneWithTheWholeBatch) {
  for (int accumulation : {1, 2}) {
    for (double dropout : {0.0, 0.2}) {
      Recipe r = base(), n = base();
      r.model.dropout = n.model.dropout = dropout;
      n.batch = r.batch / 2 / accumulation;
      n.data_parallel = 2;
      n.grad_accumulation = accumulation;
      Trained x = train(n, compared_steps), y = train(r, compared_steps);
      for (int s = 0; s < compared_steps; ++s)
        EXPECT_NEAR(x.losses[size_t(s)], y.losses[size_t(s)], 1e-5 * y.losses[size_t(s)]);
      EXPECT_LT(distance(x, y), reorder);
    }
  }
}

// Ranks share the threads. The plan must count the workspace for a rank's real number of threads.
TEST_P(TrainingSettings, TwoRanksWithMoreThreadsThanWork) {
  Recipe r = base();
  r.precision = "fp16", r.attention = "naive", r.fusion = "off";
  r.batch = 1, r.data_parallel = 2;
  Trained many = train(r, 3, 1e-3, 8), few = train(r, 3, 1e-3, 2);
  for (int s = 0; s < 3; ++s) EXPECT_NEAR(many.losses[size_t(s)], few.losses[size_t(s)], 1e-3 * few.losses[size_t(s)]);
}

TEST_P(TrainingSettings, HalfPrecisionFollowsFp32) {
  for (std::string precision : {"bf16", "fp16"})
    for (std::string policy : {"pure", "autocast"})
      for (std::string fusion : {"on", "off"})
        for (std::string attention : {"flash", "naive"}) {
          SCOPED_TRACE(precision + " " + policy + " " + fusion + " " + attention);
          Recipe r = base(), n = base();
          n.precision = precision, n.policy = policy, n.fusion = fusion, n.attention = attention;
          // bf16 has 8 bits of mantissa: 2^-9 a rounding; the loss averages over tokens.
          Trained x = train(n, compared_steps), y = train(r, compared_steps);
          for (int s = 0; s < compared_steps; ++s) {
            EXPECT_NEAR(x.losses[size_t(s)], y.losses[size_t(s)], 5e-3 * y.losses[size_t(s)]) << s;
            EXPECT_NEAR(x.norms[size_t(s)], y.norms[size_t(s)], 3e-2 * y.norms[size_t(s)]) << s;
          }
        }
}

// More micro steps than a runtime has room for waiting reads.
TEST_P(TrainingSettings, AThousandMicroSteps) {
  Recipe r = base(), n = base();
  r.batch = 20, r.grad_accumulation = 52;
  n.batch = 1, n.grad_accumulation = 1040;
  Trained x = train(n, 1), y = train(r, 1);
  EXPECT_NEAR(x.losses[0], y.losses[0], 1e-5 * y.losses[0]);
  EXPECT_LT(distance(x, y), reorder);
}

TEST_P(TrainingSettings, AccumulationInHalfPrecision) {
  for (std::string policy : {"pure", "autocast"}) {
    Recipe r = base(), n = base();
    r.precision = n.precision = "bf16", r.policy = n.policy = policy;
    n.batch = 2, n.grad_accumulation = 2;
    Trained x = train(n, compared_steps), y = train(r, compared_steps);
    for (int s = 0; s < compared_steps; ++s)
      EXPECT_NEAR(x.losses[size_t(s)], y.losses[size_t(s)], 2e-3 * y.losses[size_t(s)]) << policy;
  }
}

// Without a pass, either the result is the same, or the run is refused.
TEST_P(TrainingSettings, DisabledPassesNeverChangeTheResult) {
  Recipe r = base();
  r.batch = 2, r.grad_accumulation = 2;
  Trained all = train(r, 3);
  int refused = 0, ran = 0;
  for (auto& pass : pipeline()) {
    SCOPED_TRACE(pass.name);
    Recipe n = r;
    n.disabled_passes = {pass.name};
    if (pass.required) {
      EXPECT_THROW(train(n, 1), Error);
      ++refused;
      continue;
    }
    EXPECT_LT(distance(train(n, 3), all), reorder);
    ++ran;
  }
  EXPECT_GE(refused, 5);
  EXPECT_GE(ran, 6);
}

// Dropout inside the kernels that have its values gives the same bits as separate dropout. On a
// GPU, the kernel of a norm's gradient also sums the bias gradient, in another order.
TEST_P(TrainingSettings, WhereDropoutRunsChangesNoBit) {
  std::vector<std::pair<const char*, std::function<void(Recipe&)>>> cases = {
      {"alone", [](Recipe&) {}},
      {"autocast", [](Recipe& r) { r.policy = "autocast"; }},
      {"naive attention", [](Recipe& r) { r.attention = "naive"; }},
      {"recompute", [](Recipe& r) { r.recompute = "full"; }},
      {"accumulation", [](Recipe& r) { r.batch = 2, r.grad_accumulation = 2; }},
      {"ranks", [](Recipe& r) { r.batch = 2, r.data_parallel = 2; }},
      {"batch 3, sequence 15", [](Recipe& r) { r.batch = 3, r.seq = 15; }},
      {"rows of no whole vectors", [](Recipe& r) { r.model.heads = 3, r.model.width = 51; }},
  };
  for (auto& [name, set] : cases)
    for (const char* precision : {"fp32", "bf16", "fp16", "fp8"}) {
      SCOPED_TRACE(std::string(name) + " " + precision);
      Recipe r = base();
      r.model.dropout = 0.1, r.precision = precision, r.deterministic = true;
      set(r);
      if (r.precision == "fp8" && (r.policy == "autocast" || r.model.width % 16)) continue;  // refused
      Recipe apart = r;
      apart.disabled_passes = {"dropout"};
      Trained x = train(r, 3), y = train(apart, 3);
      if (crest::test::test_device(2).kind != "cpu") {
        EXPECT_LT(distance(x, y), std::string(precision) == "fp32" ? reorder : 0x1p-8);  // a step of bf16
        continue;
      }
      EXPECT_EQ(x.losses, y.losses);
      EXPECT_EQ(x.norms, y.norms);
      EXPECT_TRUE(x.weights == y.weights);
    }
}

TEST_P(TrainingSettings, SameSeedSameBits) {
  Recipe r = base();
  r.precision = "bf16";
  r.model.dropout = 0.1;
  Trained first = train(r, 3);
  for (int i = 0; i < 3; ++i) {
    Trained again = train(r, 3);
    EXPECT_EQ(again.weights, first.weights);
    EXPECT_EQ(again.losses, first.losses);
  }
}

// Graphs and single launches give the same result on a GPU.
TEST_P(TrainingSettings, LaunchesDoNotChangeBits) {
  Recipe r = base();
  r.precision = "bf16", r.deterministic = true;
  Trained usual = train(r, compared_steps);
  auto expect_bits = [&](const char* what, void (*change)(Recipe&)) {
    SCOPED_TRACE(what);
    Recipe n = r;
    change(n);
    Trained t = train(n, compared_steps);
    EXPECT_EQ(t.weights, usual.weights);
    EXPECT_EQ(t.losses, usual.losses);
  };
  expect_bits("kernel by kernel", [](Recipe& n) { n.graphs = "off"; });
  expect_bits("without overlap", [](Recipe& n) { n.programmatic_launch = "off"; });
  expect_bits("neither", [](Recipe& n) { n.graphs = n.programmatic_launch = "off"; });
}

INSTANTIATE_TEST_SUITE_P(Shapes, TrainingSettings, testing::Bool(), [](auto& i) { return i.param ? "Llama" : "GPT2"; });
