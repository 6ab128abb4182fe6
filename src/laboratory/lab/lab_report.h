// One report of the lab's results: the verdicts of every experiment with their figures, comparisons
// with documents, and measurements.
#pragma once
#include <vector>

#include "report/report.h"

namespace crest::lab {

// runs: records of any kind. Uses the newest judged experiment of each name, scale and device.
// title: "" makes one. Throws if no run has an experiment.
Report make_lab_report(const std::vector<RunRecord>& runs, const std::string& title = "");

}  // namespace crest::lab
