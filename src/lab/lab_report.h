// The lab's results as one report: verdicts of every experiment with their figures, then and now, the cells behind
// them.
#pragma once
#include <vector>

#include "report/report.h"

namespace crest::lab {

// runs: records of any kind; those of kind "experiment" are taken, of each name, scale and device the newest that was
// judged. title: "" makes one. Throws when there is none.
Report make_lab_report(const std::vector<RunRecord>& runs, const std::string& title = "");

}  // namespace crest::lab
