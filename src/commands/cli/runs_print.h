// How crest runs shows runs.
#pragma once
#include <string>
#include <vector>

#include "store/record.h"

namespace crest {

// One row per run. columns: names of CSV columns or settings, separated by commas; "": the usual
// ones, as many as fit the width.
std::string runs_table(const std::vector<RunRecord>& runs, const std::string& columns, bool color, size_t width);
std::string runs_csv(const std::vector<RunRecord>& runs, const std::string& columns);

struct ShowOptions {
  bool samples = false;  // every sample instead of statistics
  int width = 80;
  bool color = false;
};
// Everything recorded about a run.
std::string show_run(const RunRecord& run, const ShowOptions& options);

// How messages name a run: "12  bench-nano-b8".
std::string short_name(const RunRecord& run);

}  // namespace crest
