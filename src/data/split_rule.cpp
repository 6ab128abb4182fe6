#include "data/split_rule.h"

#include <fmt/format.h>

#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/words.h"

namespace crest {

namespace {

constexpr SplitRule rules[] = {
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", next_gpt2_word},
    {"llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_llama3_word},
    {"cl100k",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_cl100k_word},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_qwen2_word},
    {"o200k",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_o200k_word},
};

// The same rules as others write them.
constexpr std::pair<std::string_view, std::string_view> other_spellings[] = {
    {"gpt2", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"gpt2", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
    {"llama3",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {"llama3",
     R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

}  // namespace

std::span<const SplitRule> split_rules() { return rules; }

const SplitRule& gpt2_split_rule() { return rules[0]; }

const SplitRule& find_split_rule(std::string_view name) {
  std::vector<std::string> names;
  for (auto& rule : rules) {
    if (rule.name == name) return rule;
    names.emplace_back(rule.name);
  }
  fail_usage(fmt::format("there is no split rule '{}'", printable(name)), "--split-rule",
             did_you_mean(name, names) + fmt::format(" Rules: {}.", split_rule_names()));
}

const SplitRule* split_rule_of_pattern(std::string_view pattern) {
  for (auto& rule : rules)
    if (rule.pattern == pattern) return &rule;
  for (auto& [name, spelling] : other_spellings)
    if (spelling == pattern) return &find_split_rule(name);
  return nullptr;
}

std::string split_rule_names() {
  std::vector<std::string> names;
  for (auto& rule : rules) names.emplace_back(rule.name);
  return join(names, ", ");
}

}  // namespace crest
