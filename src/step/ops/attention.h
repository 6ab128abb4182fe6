// Shared by the operations of attention and their kernels.
#pragma once
#include <cstdint>

#include "program/attrs.h"

namespace crest {

// Attribute `window` of causal attention over `keys` keys: how many of them a query sees at most,
// its own included. 0: there is no window, or it holds all keys.
inline int64_t window_of(const Attrs& attrs, int64_t keys) {
  int64_t window = attrs.integer("window", 0);
  return window < keys ? window : 0;
}

// attention_rows: the queries of this rank are chunks `place` and 2 ranks - 1 - place of a sequence
// with `keys` tokens. token(t) is the place of the rank's
// query t in the sequence.
struct OwnChunks {
  int64_t tokens;    // of a chunk
  int64_t first[2];  // tokens of the sequence
  OwnChunks(int64_t keys, int64_t ranks, int64_t place)
      : tokens(keys / (2 * ranks)), first{place * tokens, (2 * ranks - 1 - place) * tokens} {}
  int64_t token(int64_t query) const { return query < tokens ? first[0] + query : first[1] + query - tokens; }
};

}  // namespace crest
