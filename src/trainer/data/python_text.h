// Python's functions of texts, for prompts equal to those of Python programs.
#pragma once
#include <cstddef>
#include <string_view>

namespace crest {

// str.isspace of the character there. i < text.size().
bool is_space_at(std::string_view text, size_t i);
// str.lstrip, str.rstrip, str.strip: without the white space at the start, the end, or both.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);
// len(str): characters. A byte outside valid UTF-8 counts as one.
size_t characters(std::string_view text);

}  // namespace crest
