// Character classes, pinned to Unicode 16.0 (as in Hugging Face `tokenizers` 0.23 and `tiktoken`
// 0.14), and possibly invalid UTF-8.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace crest {

extern const char* const unicode_class_runs;

// upper: Lu, Lt; lower: Ll; letter: Lm, Lo; mark: M; number: N; space: White_Space; symbol: all
// others.
enum class CharClass : uint8_t { symbol, mark, space, number, upper, lower, letter };
inline bool is_letter(CharClass c) { return c >= CharClass::upper; }
// The class [^\s\p{L}\p{N}] of regular expressions.
inline bool is_symbol(CharClass c) { return c <= CharClass::mark; }

struct CharacterOfClass {
  CharClass kind;
  uint8_t length;  // bytes
};
// A byte outside valid UTF-8 is a symbol of length 1. i < text.size().
CharacterOfClass character_at(std::string_view text, size_t i);
// The class of the character before `end` (> 0).
CharClass class_before(std::string_view text, size_t end);

// Whether the character there, or before `end` (> 0), is a \w of Rust's regular expressions: a
// letter, mark, decimal digit, connector such as '_', or joiner.
bool is_word_at(std::string_view text, size_t i);
bool is_word_before(std::string_view text, size_t end);

// Normalization Form C of every stretch of valid UTF-8; other bytes are unchanged. Returns false,
// and leaves `out` alone, if the text is already normalized. Pinned to Unicode 9.0, as in
// `tokenizers`: later characters are unchanged.
bool normalize_nfc(std::string_view text, std::string& out);
// The same for the other forms.
enum class UnicodeForm : uint8_t { nfd, nfkc, nfkd };
bool normalize(UnicodeForm form, std::string_view text, std::string& out);
// Every character by itself, as Rust's
// char::to_lowercase; bytes of invalid UTF-8 unchanged.
std::string lowercase(std::string_view text);
// The first character in title case and the others in lower case, each by itself: Python's
// str.capitalize, except for characters with a title case of two (as the German sharp s).
std::string capitalize(std::string_view text);

}  // namespace crest
