// Bytes of tokens become text that can be shown at once: never half a character, never half a stop text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

class TextStream {
 public:
  // The text ends before the first of `stops` (empty ones are ignored).
  explicit TextStream(std::vector<std::string> stops = {});
  // What may be shown after these bytes: everything but an incomplete UTF-8 sequence at the end and what could become a
  // stop text. Bytes that are not UTF-8 pass through.
  std::string add(std::string_view bytes);
  // What was held back: for the end of the generation.
  std::string finish();
  // A stop text was met; add() gives nothing any more.
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

// For terminals and JSON: control characters but newline and tab, and bytes that are not UTF-8, become U+FFFD.
std::string displayable(std::string_view text);

}  // namespace crest
