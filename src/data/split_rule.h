// How a text is divided into pre-tokens before bytes are merged, one row a rule; where a text can be cut without
// changing them.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace crest {

struct SplitRule {
  std::string_view name;  // of --split-rule
  // The rule as a regular expression that Hugging Face `tokenizers` (Oniguruma) reads.
  std::string_view pattern;
  // End of the pre-token that begins at `start` (< text.size()). A byte that is not part of valid UTF-8 is a symbol.
  size_t (*next_pretoken)(std::string_view text, size_t start);
};

std::span<const SplitRule> split_rules();
// GPT-2's, the one that `bpe:VOCAB` uses unless told otherwise.
const SplitRule& gpt2_split_rule();
// A usage error when there is no rule of this name.
const SplitRule& find_split_rule(std::string_view name);
// Null when no rule is written like this. Known spellings of a rule (older ones, with possessive quantifiers) count.
const SplitRule* split_rule_of_pattern(std::string_view pattern);
// "gpt2, llama3, ..."
std::string split_rule_names();

// A safe cut is a position before an ASCII space and after another character; before a line break only after a letter
// or number. Pre-tokens on both sides are the same as those of the whole text, by every rule, and so is Normalization
// Form C. The first one at or after `from`, or text.size() when there is none.
size_t safe_cut_after(std::string_view text, size_t from);
// The last safe cut in [1, text.size()), or 0 when there is none.
size_t last_safe_cut(std::string_view text);
// The last position in [1, text.size()] that does not divide a UTF-8 character (text.size() for invalid text).
size_t last_character_cut(std::string_view text);

}  // namespace crest
