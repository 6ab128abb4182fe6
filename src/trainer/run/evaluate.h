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
  uint64_t bytes = 0;   // of the counted tokens' text; 0: unknown
  double perplexity() const;
  double bits_per_byte() const;  // NaN: the bytes are unknown
};

// Runs the session's `validation` Program (with its batch and sequence length) over consecutive
// windows of the split. As in training, a window does not see the text before it. Without a limit,
// every token except the first is predicted once; the last window may be shorter. A Program with
// documents (--packing documents) runs over packed whole documents (data/packing.h) and predicts
// every token except each document's first. The split's loss masks apply. batches: a limit (0:
// none). A NaN or infinite loss is an error. Bytes are unknown without a tokenizer (null). If the
// tokenizer changes texts, they are known only for a whole split with a record of its text's bytes.
Evaluation evaluate(Executor& executor, const TokenStream& split, const Tokenizer* tokenizer, int64_t batches = 0,
                    const std::function<void(const Evaluation& so_far, uint64_t of_tokens)>& progress = {});

}  // namespace crest
