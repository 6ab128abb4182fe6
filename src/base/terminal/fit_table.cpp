#include "terminal/fit_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "core/text.h"

namespace crest {

namespace {

using TableRows = std::vector<std::vector<std::string>>;

size_t widest_cell(const TableRows& rows, size_t c) {
  size_t widest = 0;
  for (auto& row : rows) widest = std::max(widest, display_width(valid_utf8(printable(row[c], 10000))));
  return widest;
}

size_t width_of(const std::vector<FitColumn>& columns, const TableRows& rows) {
  size_t sum = 0;
  for (size_t c = 0; c < columns.size(); ++c) {
    size_t widest = widest_cell(rows, c);
    if (columns[c].min) widest = std::min(widest, columns[c].min);
    sum += std::max(widest, display_width(columns[c].column.header)) + (c ? 2 : 0);
  }
  return sum;
}

// Gives the remaining room to the columns with cuttable cells, from left to right.
void cut_cells(const std::vector<FitColumn>& columns, TableRows& rows, size_t width) {
  size_t used = width_of(columns, rows), room = width - std::min(width, used);
  for (size_t c = 0; c < columns.size(); ++c) {
    size_t widest = widest_cell(rows, c), shown = std::max(columns[c].min, display_width(columns[c].column.header));
    if (!columns[c].min || widest <= shown) continue;
    size_t more = std::min(room, widest - shown);
    room -= more;
    for (auto& row : rows) row[c] = fit_width(valid_utf8(printable(row[c], 10000)), shown + more);
  }
}

void erase(std::vector<FitColumn>& columns, TableRows& rows, size_t c) {
  columns.erase(columns.begin() + ptrdiff_t(c));
  for (auto& row : rows) row.erase(row.begin() + ptrdiff_t(c));
}

}  // namespace

std::string fit_table(std::vector<FitColumn> columns, TableRows rows, size_t width, bool color) {
  for (auto& row : rows) row.resize(columns.size());
  std::vector<std::string> same, left_out;
  for (size_t c = columns.size(); rows.size() > 1 && width_of(columns, rows) > width && c-- > 0;) {
    const std::string& text = rows[0][c];
    bool constant = std::all_of(rows.begin(), rows.end(), [&](auto& row) { return row[c] == text; });
    if (!constant || columns[c].rank == 0) continue;
    if (!text.empty()) same.insert(same.begin(), columns[c].column.header + " " + printable(text, 10000));
    erase(columns, rows, c);
  }
  while (width_of(columns, rows) > width) {
    auto last = std::max_element(columns.begin(), columns.end(), [](auto& a, auto& b) { return a.rank < b.rank; });
    if (last == columns.end() || last->rank == 0) break;
    left_out.push_back(last->column.header);
    erase(columns, rows, size_t(last - columns.begin()));
  }
  cut_cells(columns, rows, width);
  std::vector<Column> header;
  for (auto& c : columns) header.push_back(c.column);
  Table table(header);
  for (auto& row : rows) table.row(row);
  std::string out;
  if (!same.empty()) out += wrapped("same in all rows: " + join(same, ", "), {.width = width, .indent = "  "}) + "\n\n";
  out += table.text(color);
  if (!left_out.empty())
    out += wrapped("left out for lack of room: " + join(left_out, ", "), {.width = width, .indent = "  "}) + "\n";
  return out;
}

size_t output_width() {
  return isatty(STDOUT_FILENO) || std::getenv("COLUMNS") ? size_t(terminal_width(STDOUT_FILENO))
                                                         : std::numeric_limits<size_t>::max();
}

}  // namespace crest
