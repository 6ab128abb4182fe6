// Turns tokens' bytes into text to show at once, without parts of characters or of stop texts.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

class TextStream {
 public:
  // Text ends before the first of `stops` (ignores empty ones).
  explicit TextStream(std::vector<std::string> stops = {});
  // Returns the text to show after these bytes: all except an incomplete UTF-8 sequence or a
  // possible stop text at the end. Invalid UTF-8 passes through.
  std::string add(std::string_view bytes);
  // The withheld text, for the end of generation.
  std::string finish();
  // A stop text was found; add() returns nothing more.
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

// Replaces each invalid part of UTF-8 (as long as it could still begin a character) with U+FFFD, as
// Rust, Python and the decoders of transformers do.
std::string replace_invalid_utf8(std::string_view text);

// For terminals and JSON: replaces invalid UTF-8, and control characters except newline and tab,
// with U+FFFD.
std::string displayable(std::string_view text);

}  // namespace crest
