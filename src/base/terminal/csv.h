// Comma-separated values, safe to open in a spreadsheet.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

// A text field: quoted where needed; a formula-like one gets a leading apostrophe.
std::string csv_text(std::string_view text);
// A line of such fields, with its newline.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace crest
