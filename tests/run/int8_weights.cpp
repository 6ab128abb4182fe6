// Parameters of a session with --weights int8: values come back within half a scale.
#include <algorithm>

#include "core/int8.h"
#include "run/small.h"

using namespace crest;
using namespace crest::test;

namespace {

Recipe int8_recipe(const std::string& shape, const std::string& precision) {
  Recipe r = small_recipe(shape, precision);
  r.pass_settings["weights"] = "int8";
  return r;
}

std::vector<float> some_values(const ParameterRef& p, uint64_t stream) {
  std::vector<float> values(size_t(p.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(0.02 * normal(9, stream, i));
  return values;
}

SessionUse sampling() {
  SessionUse use;
  use.sampling = use.validation = true;
  return use;
}

}  // namespace

TEST(Int8Weights, MatricesOfLinearLayersAreQuantizedAndNothingElse) {
  for (const char* shape : {"gpt2", "llama"}) {
    Runner r(int8_recipe(shape, "bf16"), sampling());
    bool tied = r.session.recipe.model.tied;
    for (auto& p : parameters(*r.executor)) {
      bool matrix = p.shape.rank() == 2 && p.name != "wpe.weight" && (tied || p.name != "wte.weight");
      EXPECT_EQ(p.weight.dtype, matrix ? DType::i8 : DType::bf16) << p.name;
      EXPECT_EQ(p.scale.data != nullptr, matrix) << p.name;
      if (matrix) {
        EXPECT_EQ(p.scale.dtype, DType::f32);
        EXPECT_EQ(p.scale.shape, Shape{p.weight.shape[0]}) << p.name;
      }
    }
    // No Program has another copy of a matrix with a life beyond an instruction.
    for (auto& c : r.session.programs)
      for (auto& v : c.program.values)
        if (v.lifetime != Lifetime::micro_step && v.shape.rank() == 2 && v.dtype != DType::i8) {
          EXPECT_TRUE(v.name == "wpe.weight" || v.name == "wte.weight") << v.name << " in " << c.spec.name;
        }
  }
}

TEST(Int8Weights, NumbersAreWithinHalfAScaleAndPaddingIsZero) {
  for (const char* policy : {"pure", "autocast"}) {
    Recipe recipe = int8_recipe("gpt2", "bf16");
    recipe.policy = policy;
    Runner r(recipe, sampling());
    uint64_t stream = 0;
    for (auto& p : parameters(*r.executor)) {
      SCOPED_TRACE(p.name + " " + policy);
      std::vector<float> values = some_values(p, ++stream), back(values.size());
      if (!p.scale.data) continue;
      std::vector<char> dirt(size_t(p.weight.bytes()), 77);
      p.weight.write(dirt.data());
      dirt.resize(size_t(p.scale.bytes()));
      p.scale.write(dirt.data());
      p.set(values.data());
      p.get(back.data());
      std::vector<float> scales = p.scale.floats(), codes = p.weight.floats();
      int64_t columns = p.shape[1];
      for (size_t i = 0; i < values.size(); ++i) {
        float scale = scales[i / size_t(columns)];
        ASSERT_EQ(back[i], codes[i] * scale);
        ASSERT_LE(std::fabs(back[i] - values[i]), 0.501f * scale) << i;
      }
      for (size_t i = values.size(); i < codes.size(); ++i) ASSERT_EQ(codes[i], 0) << i;
      for (size_t i = size_t(p.shape[0]); i < scales.size(); ++i) ASSERT_EQ(scales[i], 0) << i;
    }
  }
}

TEST(Int8Weights, RowsMayBeSetInParts) {
  Runner r(int8_recipe("gpt2", "fp32"), sampling());
  auto list = parameters(*r.executor);
  auto p = *std::find_if(list.begin(), list.end(), [](auto& q) { return q.name == "h.1.attn.qkv.weight"; });
  std::vector<float> values = some_values(p, 1), whole(values.size()), parts(values.size());
  p.set(values.data());
  p.get(whole.data());
  p.set(some_values(p, 2).data());
  int64_t third = p.numel() / 3;
  for (int64_t i : {2, 0, 1}) p.set(values.data() + i * third, i * third, third);
  p.get(parts.data());
  EXPECT_EQ(parts, whole);
  expect_error([&] { p.set(values.data(), 0, p.shape[1] / 2); }, {"part of a row", "h.1.attn.qkv.weight"});
}
