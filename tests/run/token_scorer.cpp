#include "run/token_scorer.h"

#include <algorithm>

#include "run/generate.h"
#include "run/small.h"

using namespace crest;
using namespace crest::test;

namespace {

// Calls of 4 tokens: contexts and continuations cross their borders.
SessionUse scoring() {
  SessionUse use;
  use.sampling = use.scoring = true;
  use.prefill = 4;
  return use;
}

// ln p of the last `count` tokens by Decoder, one token at a time, and whether each is the most
// probable one.
Likelihood by_decoder(Runner& r, const std::vector<int32_t>& tokens, size_t count) {
  Decoder decoder(*r.executor);
  Likelihood out;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const auto logits = decoder.feed(std::span(&tokens[i], 1));
    if (i + 1 < tokens.size() - count) continue;
    const auto p = negative_log_probabilities(logits);
    out.logprob -= p[size_t(tokens[i + 1])];
    out.greedy &= std::min_element(p.begin(), p.end()) - p.begin() == tokens[i + 1];
  }
  return out;
}

Likelihood score(TokenScorer& scorer, const std::vector<int32_t>& tokens, size_t count) {
  const size_t context = tokens.size() - count;
  return scorer.score(std::span(tokens).first(context), std::span(tokens).subspan(context));
}

}  // namespace

TEST(TokenScorer, AgreesWithDecoding) {
  for (const char* shape : {"gpt2", "llama", "windows", "capped"}) {
    Runner r(small_recipe(shape), scoring());
    lively_weights(*r.executor, 3);
    // 34 tokens fill the cache of 33: the last one is not read.
    const std::vector<int32_t> tokens = random_tokens(34, 97, 5);
    for (size_t count : {1, 3, 4, 5, 13, 33}) {
      const Likelihood expected = by_decoder(r, tokens, count);
      TokenScorer scorer(*r.executor);
      EXPECT_NEAR(score(scorer, tokens, count).logprob, expected.logprob, 2e-5 * std::abs(expected.logprob))
          << shape << " " << count;
    }
  }
}

TEST(TokenScorer, GreedyTokens) {
  Runner r(small_recipe("llama"), scoring());
  lively_weights(*r.executor, 3);
  std::vector<int32_t> tokens = random_tokens(3, 97, 5);
  const size_t context = tokens.size();
  Decoder decoder(*r.executor);
  for (std::span<const int32_t> next = tokens; tokens.size() < context + 6; next = std::span(tokens).last(1)) {
    const auto logits = decoder.feed(next);
    tokens.push_back(int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  TokenScorer scorer(*r.executor);
  EXPECT_TRUE(score(scorer, tokens, 6).greedy);
  tokens[5] = (tokens[5] + 1) % 97;
  EXPECT_FALSE(score(scorer, tokens, 6).greedy);
}

// The choices of a question have one context.
TEST(TokenScorer, EqualContextsAreComputedOnce) {
  Runner r(small_recipe("gpt2"), scoring());
  lively_weights(*r.executor, 3);
  std::vector<int32_t> tokens = random_tokens(20, 97, 5);
  TokenScorer scorer(*r.executor), fresh(*r.executor);
  score(scorer, tokens, 5);
  EXPECT_EQ(scorer.computed(), 19);
  tokens[17] = (tokens[17] + 1) % 97;
  const Likelihood again = score(scorer, tokens, 5);
  EXPECT_EQ(scorer.computed(), 19 + 5);
  EXPECT_EQ(again.logprob, score(fresh, tokens, 5).logprob);
  // The last token of the context may differ, as it is read with the continuation.
  tokens[14] = (tokens[14] + 1) % 97;
  const double other = score(scorer, tokens, 5).logprob;
  EXPECT_NE(other, again.logprob);
  EXPECT_NEAR(other, by_decoder(r, tokens, 5).logprob, 2e-5 * std::abs(other));
}

TEST(TokenScorer, NotANumberIsAnError) {
  Runner r(small_recipe("gpt2"), scoring());
  lively_weights(*r.executor, 3);
  for (auto& p : parameters(*r.executor))
    if (p.name == "ln_f.bias") {
      const std::vector<float> values(size_t(p.numel()), NAN);
      p.set(values.data());
    }
  TokenScorer scorer(*r.executor);
  expect_error([&] { score(scorer, random_tokens(8, 97, 5), 2); }, {"not finite", "--precision fp32"});
}
