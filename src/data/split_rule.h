// How a text is divided into words before bytes are merged: one row a rule.
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
  // End of the word that begins at `start` (< text.size()). A byte that is not part of valid UTF-8 is a symbol.
  size_t (*next_word)(std::string_view text, size_t start);
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

}  // namespace crest
