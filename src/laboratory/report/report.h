// A technical report on recorded runs: recipes and machines, the fastest and the smallest recipe
// and their lead, the effect of each setting, where time and memory go, and commands to reproduce
// it. Every sentence is computed from the runs.
#pragma once
#include <string>
#include <vector>

#include "report/page.h"
#include "store/record.h"

namespace crest {

struct Report {
  Page page;
  Json json;  // docs/reference/contract.md
};

// title: "" makes one. Throws if no run has anything to report.
Report make_report(const std::vector<RunRecord>& runs, const std::string& title = "");

}  // namespace crest
