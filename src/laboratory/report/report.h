// A technical report on recorded runs: what was measured where, what is fastest and smallest and by
// how much, what each setting does, where time and memory go, and how to reproduce it. Every
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

// title: "" makes one. Throws when no run has anything to report.
Report make_report(const std::vector<RunRecord>& runs, const std::string& title = "");

}  // namespace crest
