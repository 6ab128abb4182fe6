// Python's functions of texts, for prompts equal to those of Python programs.
#pragma once
#include <string_view>

namespace crest {

// str.rstrip and str.strip: without the white space at the end, or at both ends.
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);
// len(str): characters. A byte outside valid UTF-8 counts as one.
size_t characters(std::string_view text);

}  // namespace crest
