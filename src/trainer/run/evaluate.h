// The loss of a model on a split of tokens.
#pragma once
#include <cstdint>
#include <functional>

#include "data/dataset.h"
#include "run/executor.h"

namespace crest {

struct Evaluation {
  double loss = 0;      // mean of -ln p over the tokens, nats
  uint64_t tokens = 0;  // tokens that were predicted and counted
  uint64_t read = 0;    // tokens that were predicted, including those that a loss mask leaves out
  uint64_t bytes = 0;   // of the text that the counted tokens were made of; 0: unknown
  double perplexity() const;
  double bits_per_byte() const;  // NaN if the bytes are unknown
};

// Runs the session's `validation` Program (with its batch and sequence length) over consecutive
// windows of the split. Each window is evaluated without the text before it, as in training.
// Without a limit, every token but the first is predicted once; the last window may be shorter. A
// Program that knows documents (--packing documents) is run over packed whole documents
// (data/packing.h), and all of their tokens but the first are predicted. Loss masks of the split
// apply. batches: at most this many (0: all). A loss that is not finite is an error. The bytes are
// unknown without a tokenizer (null), and with one that changes texts: then the whole split must be
// read, and know its text's bytes.
Evaluation evaluate(Executor& executor, const TokenStream& split, const Tokenizer* tokenizer, int64_t batches = 0,
                    const std::function<void(const Evaluation& so_far, uint64_t of_tokens)>& progress = {});

}  // namespace crest
