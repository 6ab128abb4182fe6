// Text tables for terminals and Markdown, with the character and terminal properties they need.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

// Columns of `text` in a terminal: UTF-8; combining marks count 0, East Asian wide and emoji 2,
// invalid bytes 1.
size_t display_width(std::string_view text);
// The longest prefix of `text` with at most this width; a cut is marked by an ellipsis (part of the
// width).
std::string fit_width(std::string_view text, size_t width);
// How lines are broken at spaces.
struct Wrapping {
  size_t width = 100;                                  // columns per line, except for a longer word
  std::string indent = {};                             // prefix of lines after the first
  size_t taken = 0;                                    // columns already used in the first line
  bool (*may_begin_line)(std::string_view) = nullptr;  // whether a word may start a line; null: every word
};
// The text in lines, without a trailing newline.
std::string wrapped(std::string_view text, const Wrapping& wrapping);
// The text with invalid UTF-8 bytes replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

// True when `fd` is a terminal with color: NO_COLOR is not set and TERM is not "dumb".
bool use_color(int fd);
// Columns of the terminal `fd`; if it is not one, COLUMNS or 80.
int terminal_width(int fd);

enum class Align { left, right };

struct Column {
  std::string header;
  Align align = Align::right;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);
  // A row of at most as many cells as columns (missing ones are empty; more are an internal error).
  // Control characters are escaped.
  void row(std::vector<std::string> cells);
  // A line between groups of rows (terminal only).
  void rule();
  // For the terminal: header, line, rows; two spaces between columns, no trailing spaces; bold
  // header with color.
  std::string text(bool color = false) const;
  // GitHub's Markdown: pipes are escaped.
  std::string markdown() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace crest
