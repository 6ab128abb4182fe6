// The columns and keys that a cell has, by the kind of experiment; what expressions may name before anything ran.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "lab/experiment.h"

namespace crest::lab {

struct ColumnInfo {
  const char *name, *help;
  std::vector<Kind> kinds;
  enum class Unit { number, ms, bytes, per_second, flops } unit = Unit::number;
};
const std::vector<ColumnInfo>& column_infos();
const ColumnInfo* find_column(const std::string& name);
// As a person reads it: "1.50 GiB", "12.3 ms".
std::string format_value(const std::string& column, const Value& value);

std::set<std::string> columns_of(Kind kind);
// Of the table behind a cell, for [columns]: a row an instruction, a value and a block of memory of its Programs.
Vocabulary detail_vocabulary(Kind kind);
// What is known of the device: names for `needs`.
const std::vector<std::string>& device_property_names();

}  // namespace crest::lab
