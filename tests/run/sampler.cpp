#include "run/sampler.h"

#include "run/small.h"

using namespace crest;
using namespace crest::test;

namespace {

SamplerOptions whole_vocabulary() {
  SamplerOptions o;
  o.temperature = 1, o.top_k = 0, o.top_p = 1;
  return o;
}

std::vector<int32_t> tokens_of(const std::vector<Candidate>& list) {
  std::vector<int32_t> out;
  for (auto& c : list) out.push_back(c.token);
  return out;
}

double sum_of(const std::vector<Candidate>& list) {
  double sum = 0;
  for (auto& c : list) sum += c.probability;
  return sum;
}

}  // namespace

TEST(Sampler, DistributionIsTheSoftmaxOfLogitsOverTemperature) {
  std::vector<float> logits = {1, 2, 3, -INFINITY, 0.5f, -4};
  SamplerOptions o = whole_vocabulary();
  for (double t : {0.3, 0.7, 1.0, 2.5}) {
    o.temperature = t;
    long double sum = 0;
    for (float x : logits) sum += expl((long double)x / t);
    auto list = distribution(logits, o);
    EXPECT_EQ(tokens_of(list), (std::vector<int32_t>{0, 1, 2, 4, 5}));
    for (auto& c : list)
      EXPECT_NEAR(c.probability, double(expl((long double)logits[size_t(c.token)] / t) / sum), 1e-15);
  }
}

TEST(Sampler, ExtremeTemperaturesAndLogitsDoNotOverflow) {
  SamplerOptions o = whole_vocabulary();
  std::vector<float> logits = {3e38f, -3e38f, 2.9e38f};
  EXPECT_DOUBLE_EQ(distribution(logits, o)[0].probability, 1);
  logits = {1, 2, 1.5f};
  o.temperature = 1e-300;
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(sample_token(logits, o, 0, i), 1);
  o.temperature = 1e300;
  for (auto& c : distribution(logits, o)) EXPECT_NEAR(c.probability, 1.0 / 3, 1e-12);
}

// Pearson's statistic of 100,000 draws with 7 degrees of freedom: below 24.3 in 99.9% of all seeds.
// Draws with another position, sample, or seed only must all be independent.
TEST(Sampler, FrequenciesFollowTheProbabilities) {
  std::vector<float> logits = {0, 1, -1, 2, 0.25f, -2, 1.5f, 0.5f};
  constexpr int draws = 100'000;
  SamplerOptions o = whole_vocabulary();
  auto list = distribution(logits, o);
  for (int varied = 0; varied < 3; ++varied) {
    std::vector<double> count(logits.size());
    for (int i = 0; i < draws; ++i) {
      o.seed = varied == 2 ? uint64_t(i) : 42;
      ++count[size_t(sample_token(logits, o, varied == 1 ? uint64_t(i) : 3, varied == 0 ? uint64_t(i) : 5))];
    }
    double statistic = 0;
    for (auto& c : list) {
      double expected = draws * c.probability, difference = count[size_t(c.token)] - expected;
      statistic += difference * difference / expected;
    }
    EXPECT_LT(statistic, 24.3) << varied;
    EXPECT_GT(statistic, 0.5) << varied << ": too even to be random";
  }
}

TEST(Sampler, SeedSampleAndPositionDecide) {
  std::vector<float> logits(1000, 0.0f);
  SamplerOptions o = whole_vocabulary(), other = o;
  other.seed = 7;
  int same_seed = 0, same_sample = 0, same_position = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    int32_t t = sample_token(logits, o, 1, i);
    EXPECT_EQ(sample_token(logits, o, 1, i), t);
    same_seed += sample_token(logits, other, 1, i) == t;
    same_sample += sample_token(logits, o, 2, i) == t;
    same_position += sample_token(logits, o, 1, i + 1000) == t;
  }
  EXPECT_LT(same_seed, 5);
  EXPECT_LT(same_sample, 5);
  EXPECT_LT(same_position, 5);
}

TEST(Sampler, TopK) {
  std::vector<float> logits = {1, 3, 2, 3, 2, 2};
  SamplerOptions o = whole_vocabulary();
  auto of = [&](int64_t k) {
    o.top_k = k;
    auto list = distribution(logits, o);
    EXPECT_NEAR(sum_of(list), 1, 1e-12);
    return tokens_of(list);
  };
  EXPECT_EQ(of(1), (std::vector<int32_t>{1}));  // of equal logits the lower id
  EXPECT_EQ(of(2), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(of(4), (std::vector<int32_t>{1, 3, 2, 4}));
  EXPECT_EQ(of(6), (std::vector<int32_t>{1, 3, 2, 4, 5, 0}));
  EXPECT_EQ(of(1000), (std::vector<int32_t>{1, 3, 2, 4, 5, 0}));
  EXPECT_EQ(of(0), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  o.top_k = 2;
  for (auto& c : distribution(logits, o)) EXPECT_DOUBLE_EQ(c.probability, 0.5);
  // Impossible tokens are no candidates even when k asks for more.
  std::vector<float> two = {-INFINITY, 1, -INFINITY, 0};
  o.top_k = 3;
  EXPECT_EQ(tokens_of(distribution(two, o)), (std::vector<int32_t>{1, 3}));
}

// Candidates are thinned out on the way: the same tokens as by sorting all of them.
TEST(Sampler, TopKOfManyTokensIsThatOfAllSorted) {
  SamplerOptions o = whole_vocabulary();
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::vector<float> logits(3000);
    for (size_t i = 0; i < logits.size(); ++i) {
      uint32_t r = random_bits(seed, 1, i);
      // Many ties; rising, falling and random orders; impossible tokens.
      float x = seed % 4 == 0 ? float(i) : seed % 4 == 1 ? -float(i) : float(r % 64);
      logits[i] = seed > 3 && r % 5 == 0 ? -INFINITY : x;
    }
    std::vector<int32_t> sorted;
    for (size_t i = 0; i < logits.size(); ++i)
      if (logits[i] != -INFINITY) sorted.push_back(int32_t(i));
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
    for (size_t k : {size_t(1), size_t(7), size_t(200), size_t(749), size_t(750), size_t(2999), size_t(5000)}) {
      o.top_k = int64_t(k);
      std::vector<int32_t> expected(sorted.begin(), sorted.begin() + ptrdiff_t(std::min(k, sorted.size())));
      EXPECT_EQ(tokens_of(distribution(logits, o)), expected) << seed << " " << k;
    }
  }
}

TEST(Sampler, TopP) {
  // 0.1, 0.4, 0.2, 0.3
  std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  SamplerOptions o = whole_vocabulary();
  auto of = [&](double p) {
    o.top_p = p;
    auto list = distribution(logits, o);
    EXPECT_NEAR(sum_of(list), 1, 1e-12);
    return tokens_of(list);
  };
  EXPECT_EQ(of(1e-9), (std::vector<int32_t>{1}));
  EXPECT_EQ(of(0.39), (std::vector<int32_t>{1}));
  EXPECT_EQ(of(0.41), (std::vector<int32_t>{1, 3}));  // the token crossing the bound belongs to it
  EXPECT_EQ(of(0.69), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(of(0.71), (std::vector<int32_t>{1, 3, 2}));
  EXPECT_EQ(of(0.95), (std::vector<int32_t>{1, 3, 2, 0}));
  EXPECT_EQ(of(1), (std::vector<int32_t>{0, 1, 2, 3}));
  o.top_p = 0.41;
  EXPECT_NEAR(distribution(logits, o)[0].probability, 0.4 / 0.7, 1e-7);
  // After top-k its probabilities add up to 1 again: 0.4 and 0.3 are 0.571 and 0.429.
  o.top_k = 2, o.top_p = 0.56;
  EXPECT_EQ(tokens_of(distribution(logits, o)), (std::vector<int32_t>{1}));
  o.top_p = 0.58;
  EXPECT_EQ(tokens_of(distribution(logits, o)), (std::vector<int32_t>{1, 3}));
}

TEST(Sampler, GreedyTakesTheFirstOfEqualLogits) {
  std::vector<float> logits = {-5, 2, 7, 7, 7, -INFINITY};
  SamplerOptions o = whole_vocabulary();
  o.temperature = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    o.seed = seed;
    EXPECT_EQ(sample_token(logits, o, seed, seed), 2);
  }
  EXPECT_EQ(distribution(logits, o).size(), 1u);
}

TEST(Sampler, RefusesWhatIsNoDistribution) {
  for (double temperature : {0.0, 1.0}) {
    SamplerOptions o = whole_vocabulary();
    o.temperature = temperature;
    expect_error([&] { sample_token(std::vector<float>{1, NAN, 2}, o, 0, 0); }, {"nan", "token 1"});
    expect_error([&] { sample_token(std::vector<float>{1, 2, INFINITY}, o, 0, 0); }, {"inf", "token 2"});
    expect_error(
        [&] {
          sample_token(std::vector<float>{-INFINITY, -INFINITY}, o, 0, 0);
        },
        {"every token probability 0"});
  }
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  auto refused = [](auto change, const char* flag) {
    SamplerOptions o;
    validate(o);
    change(o);
    expect_error([&] { validate(o); }, {flag}, Exit::usage);
  };
  for (double t : {-0.1, -double(INFINITY), double(INFINITY), double(NAN)})
    refused([&](SamplerOptions& o) { o.temperature = t; }, "--temperature");
  for (double p : {0.0, -0.5, 1.0001, double(NAN)}) refused([&](SamplerOptions& o) { o.top_p = p; }, "--top-p");
  refused([](SamplerOptions& o) { o.top_k = -1; }, "--top-k");
}
