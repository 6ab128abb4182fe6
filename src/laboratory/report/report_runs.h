// The runs of crest report.
#pragma once
#include <string>
#include <vector>

#include "store/record.h"
#include "store/record_options.h"

namespace crest {

struct ReportRuns {
  std::vector<std::string> names;  // exports, with all their runs; any name valid for crest compare
  std::string grid, kind;          // plus all runs of this grid ("latest": the newest one) and kind
  bool all = false;                // plus all other runs
  StoreFile store;
};

// Every run once, oldest first. Throws if nothing was requested or found; the error suggests
// similar names.
std::vector<RunRecord> load_runs(const ReportRuns& runs);

}  // namespace crest
