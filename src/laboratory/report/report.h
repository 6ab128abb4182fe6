// A technical report on recorded runs: what ran where, what is fastest and smallest and by how
// much, the effect of each setting, where time and memory go, and how to reproduce it. Every
// sentence is computed from the runs.
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
