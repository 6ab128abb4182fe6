// How text is split into pre-tokens before bytes are merged, with one row per rule; and where text
// can be cut without changing the pre-tokens.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace crest {

struct SplitRule {
  std::string_view name;  // value of --split-rule
  // The rule as a regular expression for Hugging Face `tokenizers` (Oniguruma).
  std::string_view pattern;
  // End of the pre-token from `start` on (< text.size()). A byte outside valid UTF-8 is treated as
  // a symbol.
  size_t (*next_pretoken)(std::string_view text, size_t start);
};

std::span<const SplitRule> split_rules();
// GPT-2's rule, the default for `bpe:VOCAB`.
const SplitRule& gpt2_split_rule();
// Throws a usage error for an unknown name.
const SplitRule& find_split_rule(std::string_view name);
// Null for an unknown expression. Other known spellings of a rule (older ones, possessive
// quantifiers) are recognized.
const SplitRule* split_rule_of_pattern(std::string_view pattern);
// "gpt2, llama3, ..."
std::string split_rule_names();

// A safe cut is a position before an ASCII space and after another character; before a line break,
// only after a letter or number. By every rule, the pre-tokens on both sides are those of the whole
// text, and so is Normalization Form C. Returns the first safe cut at or after `from`, or
// text.size() if there is none.
size_t safe_cut_after(std::string_view text, size_t from);
// The last safe cut in [1, text.size()), or 0 if there is none.
size_t last_safe_cut(std::string_view text);
// The last position in [1, text.size()) before a character other than a combining mark: whatever
// follows, no character is split, and none is split from its marks. text.size() if none is near.
size_t last_character_cut(std::string_view text);
// The first position at or after `from` that splits no character, and none from its combining
// marks.
size_t character_cut_after(std::string_view text, size_t from);

// Merging takes memory for each byte of a pre-token, and text without spaces may be one pre-token.
// A longer one is merged in parts.
inline constexpr size_t longest_merged = 256 << 10;
// End of the first part: after a line break, or else between two characters.
size_t merged_part(std::string_view pretoken);

}  // namespace crest
