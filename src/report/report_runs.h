// Which runs crest report is about.
#pragma once
#include <string>
#include <vector>

#include "store/record.h"
#include "store/record_options.h"

namespace crest {

struct ReportRuns {
  std::vector<std::string> names;  // files of crest runs export, with all their runs; and what crest compare takes
  std::string grid, kind;          // and all runs of this grid ("latest": of the newest one) and kind
  bool all = false;                // and all that there are
  StoreFile store;
};

// Every run once, oldest first. Throws when nothing was asked for, and for what is not there with the nearest names.
std::vector<RunRecord> load_runs(const ReportRuns& runs);

}  // namespace crest
