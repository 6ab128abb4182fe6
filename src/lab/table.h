// What an experiment measured: a row a cell of its grid. Expressions read nothing else.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "lab/value.h"

namespace crest::lab {

struct Row {
  std::map<std::string, std::string> keys;  // what tells the row from others: precision -> bf16
  std::map<std::string, Value> columns;
  std::string absent;                 // why nothing was measured; "": it was. Columns that are there hold all the same
  std::string run;                    // uid of its record in the run store; "": it has none
  std::string again = {};             // of its second round
  std::vector<double> round_ms = {};  // medians of two rounds; empty: there was one (lab/rounds.h)
};

struct Table {
  std::vector<Row> rows;
};

// Keys that tell rows from each other: those with several values, or that some rows lack; the variant first.
std::vector<std::string> telling_keys(const std::vector<Row>& rows);

// key = PATTERN of a function's arguments; a pattern has * and ?, and alternatives between bars: "bf16|fp16".
struct Filter {
  std::string key, pattern;
  size_t at = 0;  // in the expression
};

// Why a function over the table has no value where no row matches.
inline constexpr const char* no_row = "no row of the table matches";

bool matches(const std::string& text, const std::string& pattern);
bool matches(const Row& row, const std::vector<Filter>& filters);
// The column of a row: its value, a key as text (as a number where it is one), or why it is missing.
Value column_of(const Row& row, const std::string& column);

}  // namespace crest::lab
