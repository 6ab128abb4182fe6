// Mixtures of data folders: the values of --data, and the source of each sample.
#include "data/mixture.h"

#include <cmath>
#include <cstdlib>

#include "data/helpers.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

// The bound, of every prefix and not only of whole periods, in whole numbers.
TEST(Mixture, SharesOfEveryPrefixAreWithinOneSample) {
  const std::vector<std::vector<double>> cases = {{1},
                                                  {0.7, 0.3},
                                                  {3, 1},
                                                  {1, 1, 1},
                                                  {0.9, 0.09, 0.009, 0.001},
                                                  {5, 3, 2, 1, 1, 1, 1},
                                                  {0.85, 0.05, 0.04, 0.03, 0.02, 0.01},
                                                  {12345, 6789, 11, 17}};
  for (auto& weights : cases) {
    const MixtureOrder order(weights);
    const auto period = int64_t(order.period());
    double sum = 0;
    for (double w : weights) sum += w;
    for (size_t s = 0; s < weights.size(); ++s) EXPECT_NEAR(order.share(s), weights[s] / sum, 1e-15);
    std::vector<int64_t> count(weights.size());
    for (int64_t n = 1; n <= 2 * period + 3; ++n) {
      const MixtureOrder::Place place = order(uint64_t(n - 1));
      ASSERT_EQ(int64_t(place.index), count[place.source]++) << n;
      for (size_t s = 0; s < weights.size(); ++s)
        ASSERT_LT(std::abs(count[s] * period - int64_t(order.part(s)) * n), period) << "source " << s << " of " << n;
    }
  }
}

TEST(Mixture, WeightsWithoutAShortPeriodAreRoundedToMillionths) {
  const MixtureOrder order({M_PI, M_E, 0.001});
  EXPECT_EQ(order.period(), 1'000'000u);
  EXPECT_EQ(order.part(0) + order.part(1) + order.part(2), 1'000'000u);
  EXPECT_NEAR(order.share(0), M_PI / (M_PI + M_E + 0.001), 1e-6);
  EXPECT_EQ(MixtureOrder({0.7, 0.3}).period(), 10u);
  EXPECT_EQ(MixtureOrder({70, 30}).period(), 10u);
  EXPECT_EQ(MixtureOrder({1e308, 1e308}).period(), 2u);
  EXPECT_ERROR(MixtureOrder({1, 1e-7}), "below a millionth of all weights");
}

TEST(Mixture, AWeightIsTheNumberAfterTheLastColon) {
  DataFolder dir;
  const std::string a = dir / "a", b = dir / "b", odd = dir / "c:0.5", both = dir / "a:2";
  for (auto& folder : {a, b, odd}) fs::create_directories(folder);
  auto parsed = [](const std::vector<std::string>& texts) {
    std::vector<std::pair<std::string, double>> all;
    for (auto& s : parse_data_sources(texts)) all.emplace_back(s.folder, s.weighted ? s.weight : 0);
    return all;
  };
  using All = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(parsed({a}), (All{{a, 0}}));
  EXPECT_EQ(parsed({a + ":0.7", b + ":3e-1"}), (All{{a, 0.7}, {b, 0.3}}));
  EXPECT_EQ(parsed({"C:/data/web"}), (All{{"C:/data/web", 0}})) << "not a number";
  EXPECT_EQ(parsed({odd}), (All{{odd, 0}})) << "a folder of this name";
  EXPECT_EQ(parsed({odd + ":0.2", b + ":1"}), (All{{odd, 0.2}, {b, 1}}));
  // What config.toml stores reads back, also where both names exist later.
  fs::create_directories(dir / "c");
  EXPECT_ERROR(parsed({odd}), "is a folder, and '" + (dir / "c").string() + "' is one, too");
  EXPECT_EQ(parsed({data_text({odd})}), (All{{odd + "/", 0}}));
  EXPECT_EQ(parsed({data_text({odd, 0.25, true})}), (All{{odd + "/", 0.25}}));
  fs::create_directories(both);
  EXPECT_ERROR(parsed({both, b + ":1"}), "Write " + both + "/ for the first, or " + a + "/:2 for the second");

  EXPECT_ERROR(parsed({a, b + ":1"}), "'" + a + "' has no weight, but there are 2 sources");
  EXPECT_ERROR(parsed({a + ":1", b + ":0"}), "the weight of '" + b + "' is 0");
  EXPECT_ERROR(parsed({a + ":-1"}), "It must be above 0");
  EXPECT_ERROR(parsed({a + ":1", (dir / "b/../a").string() + ":1"}), "was given twice");
  EXPECT_ERROR(parsed({a + ":1", "-"}), "standard input cannot be part of a mixture");
  EXPECT_EQ(labels_of(parse_data_sources({a + ":1", b + "/:1"})), (std::vector<std::string>{"a", "b"}));
  fs::create_directories(dir / "x/a");
  EXPECT_EQ(labels_of({{a}, {dir / "x/a"}}), (std::vector<std::string>{a, dir / "x/a"})) << "equal names";
}
