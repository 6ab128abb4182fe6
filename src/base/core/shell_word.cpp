#include "core/shell_word.h"

#include <algorithm>
#include <cstdint>

#include "core/text.h"

namespace crest {

static bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view("_./-+=@:,%").find(c) != std::string_view::npos;
}

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string word = "'";
  for (char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string shell_path(std::string_view path) {
  std::string prefix = path.size() > 1 && path.starts_with("-") ? "./" : "";  // "-" is standard input
  return printable(shell_word(prefix + std::string(path)), SIZE_MAX);
}

}  // namespace crest
