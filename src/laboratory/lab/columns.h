// The columns and keys of a measurement by kind of experiment. Expressions are checked against
// these names before anything runs.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "lab/experiment.h"

namespace crest::lab {

struct ColumnInfo {
  const char *name, *help;
  std::vector<Kind> kinds;
  Unit unit = Unit::number;
};
const std::vector<ColumnInfo>& column_infos();
const ColumnInfo* find_column(const std::string& name);
// Of a column without an entry, by its name: *_bytes, *_ms, *_flops, and *_per_parameter for bytes.
Unit unit_of_column(const std::string& name);
// Formatted for people: "1.50 GiB", "12.3 ms".
std::string format_value(const std::string& column, const Value& value);

std::set<std::string> columns_of(Kind kind);
// Columns of a measurement's detail table, for [columns]: one row per instruction, value and memory
// block of its Programs.
Vocabulary detail_vocabulary(Kind kind);
// Names of device properties, for `needs`.
const std::vector<std::string>& device_property_names();

}  // namespace crest::lab
