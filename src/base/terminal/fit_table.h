// A table as wide as a terminal.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "terminal/table.h"

namespace crest {

struct FitColumn {
  Column column;
  int rank = 0;    // 0: always shown; else columns of the highest rank are left out first
  size_t min = 0;  // cells are cut to this many columns before other columns are left out; 0: never
};

// The table. If it is wider than `width`, columns with equal cells go into a line above it (several
// rows), then columns are left out by rank, and a line below names them. At last cells are cut to
// the remaining width, where their column allows it.
std::string fit_table(std::vector<FitColumn> columns, std::vector<std::vector<std::string>> rows, size_t width,
                      bool color);

// The width of standard output if it is a terminal, or COLUMNS; else no limit.
size_t output_width();

}  // namespace crest
