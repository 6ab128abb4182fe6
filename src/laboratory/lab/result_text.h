// Results for a terminal: the table of measurements, a comparison with documents, and a verdict
// with figures for each claim.
#pragma once
#include <string>
#include <vector>

#include "lab/judge.h"

namespace crest::lab {

std::string list_text(const std::vector<Experiment>& experiments, bool color);
// An experiment's question, its grid at a scale, its claims.
std::string show_text(const Experiment& experiment, const std::vector<MeasurementSpec>& measurements,
                      const std::string& scale);
std::string result_text(const Result& result, bool color);
// For several experiments: the verdict counts of each, and their sums.
std::string summary_text(const std::vector<Result>& results, bool color);

}  // namespace crest::lab
