// A comparison of two runs for the terminal: a summary sentence, then the details.
#pragma once
#include <string>

#include "compare/compare.h"

namespace crest {

struct CompareTextOptions {
  int top = 10;  // rows per table
  int width = 80;
  bool color = false;
};

std::string compare_text(const RunComparison& comparison, const CompareTextOptions& options = {});

}  // namespace crest
