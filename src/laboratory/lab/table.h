// The table of an experiment: one row per measurement. Expressions read nothing else.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "lab/value.h"

namespace crest::lab {

struct Row {
  std::map<std::string, std::string> keys;  // what distinguishes the row: precision -> bf16
  std::map<std::string, Value> columns;
  std::string absent;                 // why it was not measured; "": it was. Existing columns are always valid
  std::string run;                    // uid of its record in the run store; "": none
  std::string again = {};             // uid of its second round
  std::vector<double> round_ms = {};  // medians of two rounds; empty: one round (lab/rounds.h)
};

struct Table {
  std::vector<Row> rows;
};

// Keys that distinguish rows: several values, or missing in some rows. The variant comes first.
std::vector<std::string> telling_keys(const std::vector<Row>& rows);

// key = PATTERN among a function's arguments. A pattern has *, ? and alternatives separated by
// bars: "bf16|fp16". Numbers match by value.
struct Filter {
  std::string key, pattern;
  size_t at = 0;           // in the expression
  std::string place = {};  // in the file, for a filter outside expressions
};

// How the reason begins if no row matches.
inline constexpr const char* no_row = "nothing was measured";

bool matches(const std::string& text, const std::string& pattern);
bool matches(const Row& row, const std::vector<Filter>& filters);
// The column of a row: its value, a key (as a number if possible), or the reason it is missing.
Value column_of(const Row& row, const std::string& column);

}  // namespace crest::lab
