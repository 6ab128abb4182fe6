// The tokens of a rank along the axis context.
#pragma once
#include <cstdint>

namespace crest {

// Rank `place` of `ranks` has chunks `place` and 2 ranks - 1 - place of a sequence
// (Placement::chunks), which has `all` tokens. token(t) is the place of the rank's token t in it.
struct OwnChunks {
  int64_t tokens;    // of a chunk
  int64_t first[2];  // tokens of the sequence
  OwnChunks(int64_t all, int64_t ranks, int64_t place)
      : tokens(all / (2 * ranks)), first{place * tokens, (2 * ranks - 1 - place) * tokens} {}
  int64_t token(int64_t own) const { return own < tokens ? first[0] + own : first[1] + own - tokens; }
};

}  // namespace crest
