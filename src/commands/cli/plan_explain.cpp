#include "cli/plan_explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/text.h"
#include "terminal/table.h"

namespace crest {

static std::string value_text(double value, const std::string& unit) {
  if (unit == "bytes") return format_bytes(value);
  if (unit == "FLOP" || unit == "MAC") return format_si(value, unit.c_str());
  if (unit.starts_with("of ")) return fmt::format("{:.1f}% {}", 100 * value, unit);
  return fmt::format("{:.0f} {}", value, value == 1 && unit.ends_with('s') ? unit.substr(0, unit.size() - 1) : unit);
}

std::string text_of(const Explanation& e, bool color, size_t width) {
  std::string text;
  for (auto& s : e.sections) {
    Table table({{s.title, Align::left}, {"formula", Align::left}, {"result"}, {"Program"}, {"", Align::right}});
    std::vector<std::string> notes;
    for (auto& t : s.terms) {
      // Where both are known, by how much the Program's is more.
      std::string more = t.program && *t.program == t.value ? "same"
                         : t.program && t.value > 0         ? fmt::format("{:+.1f}%", 100 * (*t.program / t.value - 1))
                                                            : "";
      table.row(
          {t.name, t.formula, value_text(t.value, t.unit), t.program ? value_text(*t.program, t.unit) : "-", more});
      std::string note = fmt::format("{}: {}", t.name, t.numbers);
      if (!t.difference.empty()) note += ". Difference: " + t.difference;
      notes.push_back(note + ". Source: " + t.source + ".");
    }
    text += (text.empty() ? "" : "\n") + table.text(color) + "\n";
    for (auto& note : notes)
      text += wrapped("  " + note, {.width = std::min<size_t>(width, 100), .indent = "    "}) + "\n";
  }
  return text;
}

}  // namespace crest
