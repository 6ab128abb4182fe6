#include "terminal/table.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

struct CodeRange {
  uint32_t first, last;
};
bool in(uint32_t code, const CodeRange* ranges, size_t count) {
  return std::any_of(ranges, ranges + count, [&](auto& r) { return code >= r.first && code <= r.last; });
}

size_t code_width(uint32_t code) {
  // Combining marks of the common scripts, joiners, variation selectors (Unicode categories Mn, Me,
  // Cf).
  static const CodeRange zero[] = {
      {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A}, {0x064B, 0x065F}, {0x0900, 0x0902},
      {0x0941, 0x0948}, {0x0E34, 0x0E3A}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F}, {0x202A, 0x202E},
      {0x2060, 0x2064}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0xE0100, 0xE01EF}};
  // East Asian Width W and F (Unicode annex 11), in blocks.
  static const CodeRange wide[] = {{0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x2E80, 0x303E},
                                   {0x3041, 0x33FF},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},
                                   {0xA960, 0xA97C},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},
                                   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF},
                                   {0x1F900, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD}};
  if (code < 0x20 || code == 0x7F) return 0;
  if (in(code, zero, std::size(zero))) return 0;
  return in(code, wide, std::size(wide)) ? 2 : 1;
}

std::string pad(const std::string& cell, size_t width, Align align) {
  std::string space(width - std::min(width, display_width(cell)), ' ');
  return align == Align::left ? cell + space : space + cell;
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    Character d = first_character(text);
    width += d.valid ? code_width(d.code) : 1;
    text.remove_prefix(d.size);
  }
  return width;
}

std::string fit_width(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return "";
  size_t used = 0, end = 0;
  while (end < text.size()) {
    Character d = first_character(text.substr(end));
    size_t w = d.valid ? code_width(d.code) : 1;
    if (used + w > width - 1) break;
    used += w, end += d.size;
  }
  return std::string(text.substr(0, end)) + "\u2026";
}

std::string wrapped(std::string_view text, const Wrapping& w) {
  // A word not allowed at the beginning of a line stays with the one before it.
  std::vector<std::string> words;
  for (auto& word : split(text, ' ')) {
    if (word.empty()) continue;
    if (words.empty() || !w.may_begin_line || w.may_begin_line(word))
      words.push_back(word);
    else
      words.back() += " " + word;
  }
  std::string out;
  size_t column = w.taken;
  bool line_begins = true;
  for (auto& word : words) {
    size_t columns = display_width(word);
    if (!line_begins && column + 1 + columns > w.width) {
      out += "\n" + w.indent;
      column = display_width(w.indent);
    } else if (!line_begins) {
      out += ' ', ++column;
    }
    out += word, column += columns;
    line_begins = false;
  }
  return out;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    Character d = first_character(text);
    out += d.valid ? std::string(text.substr(0, d.size)) : "\xEF\xBF\xBD";
    text.remove_prefix(d.size);
  }
  return out;
}

bool use_color(int fd) {
  const char* off = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fd) && !(off && *off) && !(term && std::string_view(term) == "dumb");
}

int terminal_width(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  int value = columns ? std::atoi(columns) : 0;
  return value > 0 && value < 10000 ? value : 80;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::row(std::vector<std::string> cells) {
  if (cells.size() > columns_.size())
    fail_internal(fmt::format("a row of {} cells in a table of {} columns", cells.size(), columns_.size()), "table");
  cells.resize(columns_.size());
  for (auto& cell : cells) cell = valid_utf8(printable(cell, 10000));
  rows_.push_back(std::move(cells));
}

void Table::rule() { rows_.emplace_back(); }

std::string Table::text(bool color) const {
  std::vector<size_t> width;
  for (size_t c = 0; c < columns_.size(); ++c) {
    width.push_back(display_width(columns_[c].header));
    for (auto& r : rows_)
      if (!r.empty()) width[c] = std::max(width[c], display_width(r[c]));
  }
  auto line = [&](auto cell) {
    std::string text;
    for (size_t c = 0; c < columns_.size(); ++c) text += (c ? "  " : "") + pad(cell(c), width[c], columns_[c].align);
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::string rule;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (c) rule += "  ";
    for (size_t i = 0; i < width[c]; ++i) rule += "\u2500";
  }
  std::string header = line([&](size_t c) { return columns_[c].header; });
  std::string out = (color ? "\x1b[1m" + header + "\x1b[0m" : header) + "\n" + rule + "\n";
  for (auto& r : rows_) out += (r.empty() ? rule : line([&](size_t c) { return r[c]; })) + "\n";
  return out;
}

std::string Table::markdown() const {
  auto escaped = [](const std::string& cell) {
    std::string out;
    for (char c : cell) out += c == '|' ? std::string("\\|") : std::string(1, c);
    return out;
  };
  std::string out = "|", marks = "|";
  for (auto& c : columns_) {
    out += " " + escaped(c.header) + " |";
    marks += c.align == Align::left ? "---|" : "---:|";
  }
  out += "\n" + marks + "\n";
  for (auto& r : rows_) {
    if (r.empty()) continue;
    out += "|";
    for (auto& cell : r) out += " " + escaped(cell) + " |";
    out += "\n";
  }
  return out;
}

}  // namespace crest
