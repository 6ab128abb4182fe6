// Comma-separated values that are safe to open in a spreadsheet.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

// A text field: quoted where needed; one that looks like a formula gets a leading apostrophe.
std::string csv_text(std::string_view text);
// A number, empty when it is not finite.
std::string csv_number(double value);
// A line of fields made by the functions above, with its newline.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace crest
