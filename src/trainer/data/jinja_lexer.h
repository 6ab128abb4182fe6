// The tokens of a chat template in Jinja.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest::jinja {

struct Token {
  enum class Kind : uint8_t { text, name, string, number, symbol, begin_print, end_print, begin_tag, end_tag, end };
  Kind kind = Kind::end;
  std::string text;
  int line = 1;
};

// By the whitespace rules of trim_blocks and lstrip_blocks. The last token is `end`. Throws with
// the line in `where`.
std::vector<Token> tokens_of(std::string_view source, const std::string& where);

}  // namespace crest::jinja
