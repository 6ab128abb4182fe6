// The GPT-2 split rule over UTF-8, and the positions where a text can be cut without changing its words.
#pragma once
#include <cstddef>
#include <string_view>

namespace crest {

// End of the word that begins at `start` (< text.size()), by GPT-2's rule (Radford et al. 2019, encoder.py):
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// A byte that is not part of valid UTF-8 counts as a symbol (neither space, letter nor number).
size_t next_word(std::string_view text, size_t start);

// A safe cut is a position between a non-space character and an ASCII space: words on both sides are the same as
// those of the whole text. The first one at or after `from`, or text.size() when there is none.
size_t safe_cut_after(std::string_view text, size_t from);
// The last safe cut in [1, text.size()), or 0 when there is none.
size_t last_safe_cut(std::string_view text);
// The last position in [1, text.size()] that does not divide a UTF-8 character (text.size() for invalid text).
size_t last_character_cut(std::string_view text);

}  // namespace crest
