// Turns the bytes of tokens into text to show at
// once: never part of a character or of a stop text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

class TextStream {
 public:
  // The text ends before the first of `stops` (empty ones are ignored).
  explicit TextStream(std::vector<std::string> stops = {});
  // The text to show after these bytes: everything except an incomplete UTF-8 sequence at the end
  // and the beginning of a possible stop text. Bytes of invalid UTF-8 pass through.
  std::string add(std::string_view bytes);
  // The text held back so far, for the end of the generation.
  std::string finish();
  // A stop text was found; add() returns nothing more.
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

// For terminals and JSON: bytes of invalid UTF-8, and control characters other than newline and
// tab, become U+FFFD.
std::string displayable(std::string_view text);

}  // namespace crest
