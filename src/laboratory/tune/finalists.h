// Which candidates are compared in interleaved rounds, and which batch is enough.
#pragma once
#include "tune/tune.h"

namespace crest {

// The start, if it was measured, then the fastest measured ones: indices of at most `most`, whose
// step bytes are at most `together` in sum. With `within`, the smallest at that speed is among
// the first two of the fastest.
std::vector<size_t> finalists(const TuneResult& result, double within, size_t most, int64_t together);

// Of `from`, the one with the smallest batch and the other settings of the best, if each doubling
// from it brings less than `stop_below`; else the best.
size_t least_batch(const TuneResult& result, const std::vector<size_t>& from, double stop_below);

}  // namespace crest
