// Comma-separated values that spreadsheets open without harm.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

// A text as a field: quoted where needed; one that a spreadsheet would take for a formula gets an apostrophe in front.
std::string csv_text(std::string_view text);
// A number, empty when it is not finite.
std::string csv_number(double value);
// Fields made by the functions above, with the line's end.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace crest
