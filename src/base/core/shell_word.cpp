#include "core/shell_word.h"

#include <fmt/format.h>

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

std::string printed_word(std::string_view text) {
  bool plain = true;
  std::string word = "$'";
  for (std::string_view rest = text; !rest.empty();) {
    Character c = first_character(rest);
    const bool shown = c.valid && !is_control(c.code);
    for (char byte : rest.substr(0, c.size))
      if (!shown)
        word += fmt::format("\\{:03o}", uint8_t(byte));
      else if (byte == '\'' || byte == '\\')
        word += {'\\', byte};
      else
        word += byte;
    plain = plain && shown;
    rest.remove_prefix(c.size);
  }
  return plain ? shell_word(text) : word + "'";
}

std::string shell_path(std::string_view path) {
  std::string prefix = path.size() > 1 && path.starts_with("-") ? "./" : "";  // "-" is standard input
  return printed_word(prefix + std::string(path));
}

}  // namespace crest
