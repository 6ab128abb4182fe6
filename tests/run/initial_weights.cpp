// Initial weights of measurements: no more random numbers than the period, the same distribution.
#include <algorithm>
#include <cmath>
#include <set>

#include "run/small.h"
#include "train/engine.h"

using namespace crest;
using namespace crest::test;

namespace {

// By parameter.
std::vector<std::vector<float>> weights(int64_t period) {
  Recipe recipe = small_recipe("gpt2");
  SessionUse use;
  use.train = true;
  Engine engine(compile(recipe, crest::test::test_device(2), session_programs(recipe, use)));
  engine.initialize_weights(5, period);
  std::vector<std::vector<float>> all;
  for (auto& p : parameters(engine.rank(0))) {
    all.emplace_back(size_t(p.numel()));
    p.get(all.back().data(), 0, p.numel());
  }
  return all;
}

double deviation(const std::vector<float>& values) {
  double squares = 0;
  for (float x : values) squares += double(x) * x;
  return std::sqrt(squares / double(values.size()));
}

}  // namespace

TEST(InitialWeights, OfMeasurementsRepeatAndKeepTheirDistribution) {
  constexpr int64_t period = 1024;
  auto exact = weights(0), repeated = weights(period);
  ASSERT_EQ(exact.size(), repeated.size());
  std::set<std::vector<float>> beginnings;
  size_t large = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    auto &a = exact[i], &b = repeated[i];
    if (std::adjacent_find(a.begin(), a.end(), std::not_equal_to<>()) == a.end()) {  // zeros and ones
      EXPECT_EQ(a, b);
      continue;
    }
    if (b.size() < 2 * size_t(period)) continue;
    ++large;
    EXPECT_TRUE(std::equal(b.begin() + period, b.end(), b.begin())) << i;
    EXPECT_GT(std::set<float>(b.begin(), b.end()).size(), size_t(0.95 * period)) << i;
    EXPECT_NEAR(deviation(b) / deviation(a), 1, 0.1) << i;
    beginnings.insert({b.begin(), b.begin() + 8});
  }
  EXPECT_GE(large, 4u);
  EXPECT_GE(beginnings.size(), large - 1) << "every tensor begins at another number";
  EXPECT_EQ(weights(int64_t(1) << 30), exact) << "a model with fewer elements has numbers enough";
}

// Tensors of millions of elements are set in parts.
TEST(InitialWeights, OfLargeTensorsDependOnTheElementAlone) {
  Recipe recipe = small_recipe("gpt2");
  recipe.model.width = 16, recipe.model.heads = recipe.model.kv_heads = 1, recipe.model.ff = 32;
  recipe.model.vocab = 132'001;
  SessionUse use;
  use.train = true;
  Engine engine(compile(recipe, crest::test::test_device(2), session_programs(recipe, use)));
  engine.initialize_weights(5);
  const ParameterRef first = parameters(engine.rank(0)).front();
  ASSERT_EQ(first.numel(), int64_t(16) * 132'001);
  std::vector<float> values(size_t(first.numel()));
  first.get(values.data());
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], float(first.info->init_mean + first.info->init_std * normal(5, 1, i))) << i;
}
