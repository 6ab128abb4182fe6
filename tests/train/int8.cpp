// The effect of --weights int8 on a trained model's loss: the training of tests/train/harness.h,
// its weights in evaluating sessions.
#include <gtest/gtest.h>

#include <cmath>

#include "train/harness.h"

using namespace crest;

namespace {

struct Losses {
  double trained = 0, untrained = 0, eight_bits = 0;
};

Losses losses(bool llama, const std::string& precision) {
  Recipe r = tiny_recipe(llama);
  r.precision = precision;
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
  constexpr int steps = 150;
  constexpr int64_t batches = 16;
  Engine training = make_engine(r, 1);
  Losses found;
  auto validate = [&](const char* weights) {
    Recipe of = r;
    of.pass_settings["weights"] = weights;
    SessionUse use;
    use.validation = true;
    Engine e(compile(of, crest::test::test_device(1), session_programs(of, use)));
    auto from = parameters(training.rank(0)), to = parameters(e.rank(0));
    for (size_t p = 0; p < to.size(); ++p) {
      EXPECT_EQ(to[p].name, from[p].name);
      std::vector<float> values(size_t(from[p].numel()));
      from[p].get(values.data());
      to[p].set(values.data());
    }
    return e.validate(batches, source);
  };
  found.untrained = validate("float");
  for (int s = 0; s < steps; ++s) training.step(s, 3e-3, 11, source);
  found.trained = validate("float"), found.eight_bits = validate("int8");
  return found;
}

}  // namespace

TEST(Int8, TheLossOfATrainedModelHardlyChanges) {
  for (bool llama : {false, true})
    for (const char* precision : {"fp32", "bf16"}) {
      Losses l = losses(llama, precision);
      SCOPED_TRACE(std::string(llama ? "llama " : "gpt2 ") + precision);
      RecordProperty(std::string(llama ? "llama_" : "gpt2_") + precision, std::to_string(l.eight_bits - l.trained));
      std::printf("%s %s: %.5f untrained, %.5f trained, %+.5f with int8 weights\n", llama ? "llama" : "gpt2", precision,
                  l.untrained, l.trained, l.eight_bits - l.trained);
      EXPECT_LT(l.trained, l.untrained - 2) << "it has learned something that can be lost";
      EXPECT_NE(l.eight_bits, l.trained);
      // Measured (2026-11-25): -0.00042 to +0.00031 of 1.1.
      EXPECT_NEAR(l.eight_bits, l.trained, 0.002);
    }
}
