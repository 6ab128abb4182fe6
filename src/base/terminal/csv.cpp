#include "terminal/csv.h"

#include "core/text.h"
#include "terminal/table.h"

namespace crest {

std::string csv_text(std::string_view text) {
  std::string field;
  for (std::string_view rest = text; !rest.empty();) {
    Character c = first_character(rest);
    bool shown =
        c.valid && (c.code == '\0' || c.code == '\t' || c.code == '\n' || c.code == '\r' || !is_control(c.code));
    field += shown ? rest.substr(0, c.size) : std::string_view("\xEF\xBF\xBD");
    rest.remove_prefix(c.size);
  }
  // "-", "+", "=" and "@" start formulas; some programs skip a tab or line break in front of them.
  if (!field.empty() && std::string_view("=+-@\t\r\n").find(field[0]) != std::string_view::npos) field = '\'' + field;
  if (field.find_first_of(",\"\r\n") == std::string::npos && field.find('\0') == std::string::npos) return field;
  std::string quoted = "\"";
  for (char c : field) {
    if (c == '\0') continue;
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

std::string csv_line(const std::vector<std::string>& fields) { return join(fields, ",") + "\n"; }

}  // namespace crest
