// The loss of a model on a split of tokens.
#pragma once
#include <cstdint>
#include <functional>

#include "data/dataset.h"
#include "run/executor.h"

namespace crest {

struct Evaluation {
  double loss = 0;      // mean of -ln p over the tokens, nats
  uint64_t tokens = 0;  // predicted and counted tokens
  uint64_t read = 0;    // predicted tokens, including tokens left out by a loss mask
  uint64_t bytes = 0;   // of the text behind the counted tokens; 0: unknown
  double perplexity() const;
  double bits_per_byte() const;  // NaN if the bytes are unknown
};

// Runs the session's `validation` Program (with its batch and sequence length) over consecutive
// windows of the split. Each window is evaluated without the text before it, as in training.
// Without a limit, every token but the first is predicted once; the last window may be shorter. A
// Program with documents (--packing documents) runs over packed whole documents (data/packing.h),
// and predicts all of their tokens but the first. Loss masks of the split apply. batches: at most
// this many (0: all). A loss of NaN or infinity is an error. The bytes are unknown without a
// tokenizer (null). With one that changes texts, they are known only for the whole split, if it
// records its text's bytes.
Evaluation evaluate(Executor& executor, const TokenStream& split, const Tokenizer* tokenizer, int64_t batches = 0,
                    const std::function<void(const Evaluation& so_far, uint64_t of_tokens)>& progress = {});

}  // namespace crest
