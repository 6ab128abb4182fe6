// The candidates for interleaved rounds, and the smallest sufficient batch.
#pragma once
#include <optional>

#include "stats/ab.h"
#include "tune/process_runs.h"
#include "tune/tune.h"

namespace crest {

// The start, if measured, then the fastest measured candidates: indices of at most `most`, with
// step bytes of at most `together` in sum. With `within`, one of the first two is the smallest
// candidate at that speed.
std::vector<size_t> finalists(const TuneResult& result, double within, size_t most, int64_t together);

// Of the candidates in `from` within the result's tolerance of the fastest: the one with the least
// memory (`by_memory`), then with the fewest changes. TuneResult::none if `from` is empty.
size_t cheapest_of_fastest(const TuneResult& result, const std::vector<size_t>& from, bool by_memory);

// The candidate in `from` with the smallest batch and otherwise the settings of the best, if each
// doubling up from it gains less than `stop_below`; else the best.
size_t least_batch(const TuneResult& result, const std::vector<size_t>& from, double stop_below);

// Multiplies a candidate's time to the number of tokens of the first in the list.
double equal_tokens(const TuneResult& result, const std::vector<size_t>& list, size_t candidate);

// Interleaved rounds with equal numbers of tokens. Throws if a step does not fit or is interrupted.
struct RoundsOfFinalists {
  const TuneOptions& options;
  const Device& device;
  const TuneResult& result;
  double seconds;  // at most

  // In this process. Removes candidates from the list until all fit together. None with fewer than
  // two left.
  std::optional<AbResult> here(std::vector<size_t>& list) const;
  // In every round each candidate runs some steps in processes of its own.
  AbResult in_processes(const std::vector<size_t>& list, const ProcessRuns& runs) const;
};

}  // namespace crest
