// Rows of Parquet files, read by a child process: python3 with pyarrow.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "data/bad_lines.h"

namespace crest {

// The first and last bytes of a Parquet file.
inline constexpr std::string_view parquet_mark = "PAR1";
// Whether the file has both marks.
bool is_parquet(const std::string& path);

// Calls use(text, rows so far, rows of the file) for the text of each row, in order. The column
// must hold strings. Memory: some rows, besides what pyarrow needs. A row without a text (null)
// goes to bad_lines; null: it is an error. `waiting` is called while there are no rows; it may
// throw. Errors name file, column and row: no python3 or pyarrow, a damaged file, no such column
// (with the file's columns), a column of another type.
void read_parquet(const std::string& path, const std::string& name, const std::string& column, BadLines* bad_lines,
                  const std::function<void()>& waiting,
                  const std::function<void(std::string_view text, uint64_t row, uint64_t rows)>& use);

}  // namespace crest
