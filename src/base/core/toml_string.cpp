#include "core/toml_string.h"

#include <fmt/format.h>

#include "core/text.h"

namespace crest {

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    Character c = first_character(text);
    if (!c.valid)
      out += "\xef\xbf\xbd";
    else if (c.code == '"' || c.code == '\\')
      out += '\\', out += char(c.code);
    else if (c.code < 0x20 || c.code == 0x7f)
      out += fmt::format("\\u{:04X}", c.code);
    else
      out += text.substr(0, c.size);
    text.remove_prefix(c.size);
  }
  return out + '"';
}

}  // namespace crest
