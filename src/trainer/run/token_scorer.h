// The probabilities of given tokens behind a context.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "run/executor.h"

namespace crest {

struct Likelihood {
  double logprob = 0;  // sum of ln p, nats
  bool greedy = true;  // each token is the most probable one
};

// One sequence in an executor whose session has the Programs `prefill` and `score`
// (SessionUse::scoring). The weights stay the same while it exists.
class TokenScorer {
 public:
  explicit TokenScorer(Executor& executor);

  // Both have at least one token of the vocabulary, and together at most cache_length() + 1. A
  // context equal to the one before is not computed again. Throws if a
  // probability is NaN or infinite.
  Likelihood score(std::span<const int32_t> context, std::span<const int32_t> continuation);

  int64_t cache_length() const { return cache_length_; }
  int64_t vocab() const { return vocab_; }
  // How many tokens it has run through the model.
  int64_t computed() const { return computed_; }

 private:
  void run(int program, std::span<const int32_t> tokens);

  Executor& executor_;
  int prefill_, score_;
  int64_t cache_length_, chunk_, vocab_, computed_ = 0;
  std::vector<int32_t> cached_;   // the tokens whose keys and values are in the cache
  std::vector<int32_t> context_;  // of the last call, without its last token
};

}  // namespace crest
