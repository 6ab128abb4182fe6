// Results for a terminal: the table of measurements, a comparison with the documents, a verdict for
// each claim with its figures.
#pragma once
#include <string>
#include <vector>

#include "lab/judge.h"

namespace crest::lab {

std::string list_text(const std::vector<Experiment>& experiments, bool color);
// The question of an experiment, its grid at a scale, its claims.
std::string show_text(const Experiment& experiment, const std::vector<MeasurementSpec>& measurements,
                      const std::string& scale);
std::string result_text(const Result& result, bool color);
// For several experiments: verdict counts of each, and in total.
std::string summary_text(const std::vector<Result>& results, bool color);

}  // namespace crest::lab
