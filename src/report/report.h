// A technical report over recorded runs: what was measured where, what is fastest and smallest and by how much, what
// each lever does, where time and memory go, and how to repeat it. Every sentence is computed from the runs.
#pragma once
#include <string>
#include <vector>

#include "report/page.h"
#include "store/record.h"

namespace crest {

struct Report {
  Page page;
  Json json;  // docs/contract.md
};

// Stands at the start of every report, so that one is known from other files.
inline constexpr const char* report_marker = "crest report";

// title: "" makes one. Throws when no run has anything to report.
Report make_report(const std::vector<RunRecord>& runs, const std::string& title = "");

}  // namespace crest
