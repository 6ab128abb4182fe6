// Results for a terminal: the table of cells, a verdict for each claim with its figures, then and now.
#pragma once
#include <string>
#include <vector>

#include "lab/judge.h"

namespace crest::lab {

std::string list_text(const std::vector<Experiment>& experiments, bool color);
// What an experiment asks, its grid at a scale, its claims.
std::string show_text(const Experiment& experiment, const std::vector<CellSpec>& cells, const std::string& scale);
std::string result_text(const Result& result, bool color);
// Of several experiments: how many claims of each have which verdict.
std::string summary_text(const std::vector<Result>& results, bool color);

}  // namespace crest::lab
