// Which candidates are compared in interleaved rounds, and which batch is enough.
#pragma once
#include <optional>

#include "stats/ab.h"
#include "tune/process_runs.h"
#include "tune/tune.h"

namespace crest {

// The start, if it was measured, then the fastest measured ones: indices of at most `most`, whose
// step bytes are at most `together` in sum. With `within`, the smallest at that speed is among
// the first two of the fastest.
std::vector<size_t> finalists(const TuneResult& result, double within, size_t most, int64_t together);

// Of `from`, the one with the smallest batch and the other settings of the best, if each doubling
// from it brings less than `stop_below`; else the best.
size_t least_batch(const TuneResult& result, const std::vector<size_t>& from, double stop_below);

// The time of a candidate times this is that of as many tokens as the first of the list has.
double equal_tokens(const TuneResult& result, const std::vector<size_t>& list, size_t candidate);

// The interleaved rounds, of equal numbers of tokens. Throws if a step does not fit or is
// interrupted.
struct RoundsOfFinalists {
  const TuneOptions& options;
  const Device& device;
  const TuneResult& result;
  double seconds;  // at most

  // In this process. Those that do not fit next to each other are dropped from the list; nothing if
  // fewer than two are left.
  std::optional<AbResult> here(std::vector<size_t>& list) const;
  // In every round each of them runs some steps in processes of its own.
  AbResult in_processes(const std::vector<size_t>& list, const ProcessRuns& runs) const;
};

}  // namespace crest
