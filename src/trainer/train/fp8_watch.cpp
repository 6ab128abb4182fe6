#include "train/fp8_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace crest {

std::optional<std::string> Fp8Watch::add(const StepRow& row) {
  if (row.saturated < 0) return std::nullopt;
  parts_[0].sum += row.saturated, parts_[1].sum += row.vanished;
  if (++steps_ < window) return std::nullopt;
  steps_ = 0;
  std::optional<std::string> warning;
  for (Part& p : parts_) {
    double mean = p.sum / window;
    p.sum = 0;
    if (p.before >= 0 && mean > std::max(2 * p.before, p.min)) {
      std::string grown =
          fmt::format("{:.3g}% of the values in fp8 {}, {:.3g}% before", 100 * mean, p.what, 100 * p.before);
      warning = warning ? *warning + "; " + grown : fmt::format("step {}: {}", row.step, grown);
      p.before = mean;
    }
    if (p.before < 0) p.before = mean;  // growth over many windows counts, too
  }
  if (warning && !row.vanished_most.empty()) *warning += "; most zeros are in " + row.vanished_most;
  if (warning) *warning += "; see docs/concepts/fp8.md";
  return warning;
}

}  // namespace crest
