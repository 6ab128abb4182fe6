// Text tables for terminals and Markdown, and what they need to know about characters and terminals.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

// Columns that `text` takes in a terminal: UTF-8, combining marks 0, East Asian wide and emoji 2; bytes that are no
// UTF-8 count 1 each.
size_t display_width(std::string_view text);
// The longest start of `text` that is at most `width` wide; what was cut is marked by an ellipsis (part of the width).
std::string fit_width(std::string_view text, size_t width);
// How lines are broken at blanks.
struct Wrapping {
  size_t width = 100;                                  // columns of a line, but for a word that is longer
  std::string indent = {};                             // what lines after the first begin with
  size_t taken = 0;                                    // columns before the text in its first line
  bool (*may_begin_line)(std::string_view) = nullptr;  // a word; null: every word
};
// The text in lines, without a newline at its end.
std::string wrapped(std::string_view text, const Wrapping& wrapping);
// The text with every byte that is no UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

// True when `fd` is a terminal that shows colour: NO_COLOR is not set and TERM is not "dumb".
bool use_color(int fd);
// Columns of the terminal `fd`; COLUMNS, or 80 when it is none.
int terminal_width(int fd);

enum class Align { left, right };

struct Column {
  std::string header;
  Align align = Align::right;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);
  // A row of as many cells as columns (fewer leave the rest empty; more are an internal error).
  // Control characters are escaped.
  void row(std::vector<std::string> cells);
  // A line between groups of rows (terminal only).
  void rule();
  // For the terminal: header, a line, rows; two spaces between columns, no trailing spaces; bold header with colour.
  std::string text(bool color = false) const;
  // GitHub's Markdown: pipes are escaped.
  std::string markdown() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace crest
