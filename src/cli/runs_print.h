// How crest runs shows runs.
#pragma once
#include <string>
#include <vector>

#include "store/record.h"

namespace crest {

// A row a run. columns: names separated by commas, of columns of the CSV or of settings; "": the usual ones.
std::string runs_table(const std::vector<RunRecord>& runs, const std::string& columns, bool color);
std::string runs_csv(const std::vector<RunRecord>& runs, const std::string& columns);

struct ShowOptions {
  bool samples = false;  // every one instead of their statistics
  int width = 80;
  bool color = false;
};
// All of a run.
std::string show_run(const RunRecord& run, const ShowOptions& options);

// "12  bench-nano-b8": how messages name a run.
std::string short_name(const RunRecord& run);

}  // namespace crest
