#include "run/evaluate.h"

#include "data/shards.h"
#include "run/generate.h"
#include "run/small.h"

using namespace crest;
using namespace crest::test;

namespace {

struct Data {
  TemporaryFolder folder;
  std::vector<int32_t> tokens;
  Dataset dataset;
  explicit Data(int64_t count, int64_t vocab = 97, int64_t shard = 1000) : tokens(random_tokens(count, vocab, 3)) {
    ShardWriter writer(folder / "", "val", uint32_t(vocab), uint64_t(shard));
    std::vector<uint32_t> ids(tokens.begin(), tokens.end());
    writer.append(ids);
    writer.finish();
    dataset = Dataset::open(folder / "");
  }
};

Runner runner(int64_t batch, int64_t seq, const std::string& precision = "fp32") {
  Recipe recipe = small_recipe("gpt2", precision);
  recipe.batch = batch, recipe.seq = seq;
  SessionUse use;
  use.validation = use.sampling = true;
  return Runner(recipe, use);
}

// The same loss by the Programs with a cache: one token at a time in every window.
double slow_loss(Runner& r, const std::vector<int32_t>& tokens, int64_t seq, size_t count) {
  Decoder decoder(*r.executor);
  double sum = 0;
  for (size_t t = 0; t < count; ++t) {
    if (int64_t(t) % seq == 0) decoder.reset();
    auto nll = negative_log_probabilities(decoder.feed(std::span(&tokens[t], 1)));
    sum += nll[size_t(tokens[t + 1])];
  }
  return sum / double(count);
}

}  // namespace

TEST(Evaluate, EveryTokenButTheFirstIsPredictedOnce) {
  // 7 windows of 16 and one of 9: the second batch of 5 is padded; shards end inside windows.
  Data data(7 * 16 + 9 + 1, 97, 50);
  Runner r = runner(5, 16);
  lively_weights(*r.executor, 1);
  int calls = 0;
  Evaluation e = evaluate(*r.executor, data.dataset.val(), nullptr, 0, [&](const Evaluation& now, uint64_t all) {
    EXPECT_EQ(all, 121u);
    EXPECT_EQ(now.tokens, ++calls == 1 ? 80u : 121u);
  });
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(e.tokens, 121u);
  EXPECT_EQ(e.bytes, 0u);
  EXPECT_TRUE(std::isnan(e.bits_per_byte()));
  // fp32 sums of 80 losses.
  EXPECT_NEAR(e.loss, slow_loss(r, data.tokens, 16, 121), 1e-5 * e.loss);
  EXPECT_NEAR(e.perplexity(), std::exp(e.loss), 1e-9);
  EXPECT_GT(e.loss, 3);
  // The batch does not matter.
  for (int64_t batch : {1, 3, 8, 20}) {
    Runner other = runner(batch, 16);
    lively_weights(*other.executor, 1);
    Evaluation f = evaluate(*other.executor, data.dataset.val(), nullptr);
    EXPECT_NEAR(f.loss, e.loss, 1e-5 * e.loss);
    EXPECT_EQ(f.tokens, e.tokens);
  }
}

TEST(Evaluate, ALimitOfBatches) {
  Data data(200);
  Runner r = runner(2, 16);
  lively_weights(*r.executor, 1);
  Evaluation e = evaluate(*r.executor, data.dataset.val(), nullptr, 3);
  EXPECT_EQ(e.tokens, 96u);
  EXPECT_NEAR(e.loss, slow_loss(r, data.tokens, 16, 96), 1e-5 * e.loss);
  EXPECT_EQ(evaluate(*r.executor, data.dataset.val(), nullptr, 1000).tokens, 199u);
}

TEST(Evaluate, BitsPerByteCountTheTextOfThePredictedTokens) {
  // A model of zeros gives every token the probability 1/97.
  Data data(50);
  Runner r = runner(2, 16);
  Tokenizer bytes = Tokenizer::bytes();
  Evaluation e = evaluate(*r.executor, data.dataset.val(), &bytes);
  EXPECT_NEAR(e.loss, std::log(97.0), 1e-6);
  EXPECT_NEAR(e.perplexity(), 97, 1e-4);
  EXPECT_EQ(e.bytes, 49u);
  EXPECT_NEAR(e.bits_per_byte(), std::log2(97.0), 1e-5);
}

TEST(Evaluate, WeightsThatAreNotFinite) {
  Data data(50);
  Runner r = runner(2, 16);
  lively_weights(*r.executor, 1);
  auto p = parameters(*r.executor)[0];
  std::vector<float> values(size_t(p.numel()), NAN);
  p.set(values.data());
  expect_error([&] { evaluate(*r.executor, data.dataset.val(), nullptr); }, {"nan", "precision"});
}
