#include "report/csv.h"

#include <fmt/format.h>

#include <cmath>

#include "core/text.h"
#include "report/table.h"

namespace crest {

std::string csv_text(std::string_view text) {
  std::string field = valid_utf8(text);
  // "-", "+", "=" and "@" begin formulas; a tab or line break in front of them is skipped by some programs.
  if (!field.empty() && std::string_view("=+-@\t\r\n").find(field[0]) != std::string_view::npos) field = '\'' + field;
  if (field.find_first_of(",\"\r\n") == std::string::npos && field.find('\0') == std::string::npos) return field;
  std::string quoted = "\"";
  for (char c : field) {
    if (c == '\0') continue;
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

std::string csv_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; }

std::string csv_line(const std::vector<std::string>& fields) { return join(fields, ",") + "\n"; }

}  // namespace crest
