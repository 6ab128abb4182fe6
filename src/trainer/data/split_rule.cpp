#include "data/split_rule.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/unicode.h"

namespace crest {

namespace {

const std::array<CharClass, 128> ascii = [] {
  std::array<CharClass, 128> table{};
  for (size_t c = 0; c < 128; ++c) {
    char byte = char(c);
    table[c] = character_at({&byte, 1}, 0).kind;
  }
  return table;
}();

inline CharacterOfClass at(std::string_view text, size_t i) {
  uint8_t b = uint8_t(text[i]);
  return b < 128 ? CharacterOfClass{ascii[b], 1} : character_at(text, i);
}

bool is_line_break(char c) { return c == '\r' || c == '\n'; }

// End of the run of characters accepted by `belongs`, from i on.
template <class Belongs>
inline size_t end_of_run(std::string_view text, size_t i, Belongs belongs) {
  while (i < text.size()) {
    CharacterOfClass c = at(text, i);
    if (!belongs(c.kind)) break;
    i += c.length;
  }
  return i;
}

// 's 't 'm 'd 're 've 'll at i, where an apostrophe is: returns its end, or i. The long s is an s
// in another case.
size_t end_of_contraction(std::string_view text, size_t i, bool any_case) {
  auto letter = [&](size_t k) -> char {
    if (i + k >= text.size()) return 0;
    char c = text[i + k];
    return any_case && c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c;
  };
  char a = letter(1), b = letter(2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
  if (any_case && text.substr(i + 1).starts_with("\xc5\xbf")) return i + 3;
  return i;
}

// \s+(?!\S)|\s+ for the spaces in [i, end), the last one at `last`: all up to the end of the text,
// all but the last before a pre-token, or a single one.
size_t end_of_spaces(std::string_view text, size_t i, size_t last, size_t end) {
  return end == text.size() || last == i ? end : last;
}

// [^\s\p{L}\p{N}]+ and the characters accepted by `tail` after it; 0 if there is no symbol at i.
size_t end_of_symbols(std::string_view text, size_t i, std::string_view tail) {
  if (i >= text.size() || !is_symbol(at(text, i).kind)) return 0;
  i = end_of_run(text, i, is_symbol);
  while (i < text.size() && tail.find(text[i]) != std::string_view::npos) ++i;
  return i;
}

size_t end_of_numbers(std::string_view text, size_t i, int most) {
  for (int n = 0; n < most && i < text.size(); ++n) {
    CharacterOfClass c = at(text, i);
    if (c.kind != CharClass::number) break;
    i += c.length;
  }
  return i;
}

// \s*[\r\n]+|\s+(?!\S)|\s+; with whole_end, \s+\z comes first.
size_t end_of_lines(std::string_view text, size_t i, bool whole_end) {
  size_t end = i, last = i, line_break = 0;
  while (end < text.size()) {
    CharacterOfClass c = at(text, end);
    if (c.kind != CharClass::space) break;
    last = end;
    end += c.length;
    if (is_line_break(text[last])) line_break = end;
  }
  if (whole_end && end == text.size()) return end;
  return line_break ? line_break : end_of_spaces(text, i, last, end);
}

inline size_t next_pretoken_with_prefix(std::string_view text, size_t i, int most_numbers, bool whole_end) {
  if (text[i] == '\'')
    if (size_t end = end_of_contraction(text, i, true); end > i) return end;
  CharacterOfClass c = at(text, i);
  if (is_letter(c.kind)) return end_of_run(text, i + c.length, is_letter);
  if (c.kind == CharClass::number) return end_of_numbers(text, i, most_numbers);
  size_t next = i + c.length;
  if (!is_line_break(text[i]) && next < text.size() && is_letter(at(text, next).kind))
    return end_of_run(text, next, is_letter);
  if (size_t end = end_of_symbols(text, text[i] == ' ' ? next : i, "\r\n")) return end;
  return end_of_lines(text, i, whole_end);
}

bool starts_capitals(CharClass c) { return c == CharClass::upper || c == CharClass::letter || c == CharClass::mark; }
bool is_small(CharClass c) { return c == CharClass::lower || c == CharClass::letter || c == CharClass::mark; }

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at i, or 0. `capitals` gets the end of
// the first class.
size_t end_of_lowercase(std::string_view text, size_t i, size_t& capitals) {
  size_t both_end = 0;  // end of the last character in both classes: the first class steps back to it
  capitals = i;
  while (capitals < text.size()) {
    CharacterOfClass c = at(text, capitals);
    if (!starts_capitals(c.kind)) break;
    capitals += c.length;
    if (is_small(c.kind)) both_end = capitals;
  }
  size_t end = end_of_run(text, capitals, is_small);
  return end > capitals ? end : both_end;
}

bool is_safe_cut(std::string_view text, size_t p) {
  uint8_t b = uint8_t(text[p]);
  if (b >= 128 || ascii[b] != CharClass::space) return false;
  CharClass before = class_before(text, p);
  if (is_line_break(char(b))) return is_letter(before) || before == CharClass::number;
  return before != CharClass::space;
}

// GPT-2 (Radford et al. 2019, encoder.py): a space belongs to the run of letters, numbers or
// symbols after it.
size_t next_gpt2_pretoken(std::string_view text, size_t i) {
  if (text[i] == '\'')
    if (size_t end = end_of_contraction(text, i, false); end > i) return end;
  size_t first = text[i] == ' ' && i + 1 < text.size() ? i + 1 : i;
  CharacterOfClass c = at(text, first);
  if (is_letter(c.kind)) return end_of_run(text, first + c.length, is_letter);
  if (c.kind == CharClass::number)
    return end_of_run(text, first + c.length, [](CharClass k) { return k == CharClass::number; });
  if (is_symbol(c.kind)) return end_of_run(text, first + c.length, is_symbol);
  size_t last = i, end = i;
  while (end < text.size()) {
    c = at(text, end);
    if (c.kind != CharClass::space) break;
    last = end;
    end += c.length;
  }
  return end_of_spaces(text, i, last, end);
}

// Llama 3: any one symbol or space belongs to the letters after it, numbers come in threes, line
// breaks stay with the symbols or spaces before them.
size_t next_llama3_pretoken(std::string_view text, size_t i) { return next_pretoken_with_prefix(text, i, 3, false); }
// The same, but spaces at the end of the text are one pre-token (tiktoken's cl100k_base).
size_t next_cl100k_pretoken(std::string_view text, size_t i) { return next_pretoken_with_prefix(text, i, 3, true); }
// The same as Llama 3, but every number is a pre-token (Qwen 2 and 2.5, Qwen 3).
size_t next_qwen2_pretoken(std::string_view text, size_t i) { return next_pretoken_with_prefix(text, i, 1, false); }

// GPT-4o: as Llama 3, but pre-tokens also begin at capitals, and keep their contraction.
size_t next_o200k_pretoken(std::string_view text, size_t i) {
  CharacterOfClass c = at(text, i);
  if (c.kind == CharClass::number) return end_of_numbers(text, i, 3);
  bool prefix = !is_letter(c.kind) && !is_line_break(text[i]);
  size_t starts[] = {i + c.length, i}, capitals[2] = {0, 0}, end = 0;
  for (size_t k = prefix ? 0 : 1; k < 2 && !end; ++k) end = end_of_lowercase(text, starts[k], capitals[k]);
  for (size_t k = prefix ? 0 : 1; k < 2 && !end; ++k)
    if (capitals[k] > starts[k]) end = capitals[k];
  if (end) return end < text.size() && text[end] == '\'' ? end_of_contraction(text, end, true) : end;
  if (size_t symbols = end_of_symbols(text, text[i] == ' ' ? i + 1 : i, "\r\n/")) return symbols;
  return end_of_lines(text, i, false);
}

constexpr SplitRule rules[] = {
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", next_gpt2_pretoken},
    {"llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_llama3_pretoken},
    {"cl100k",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_cl100k_pretoken},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_qwen2_pretoken},
    {"o200k",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_o200k_pretoken},
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
  fail_usage(fmt::format("no split rule '{}'", printable(name)), "--split-rule",
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

size_t safe_cut_after(std::string_view text, size_t from) {
  for (size_t p = from > 0 ? from : 1; p < text.size(); ++p)
    if (is_safe_cut(text, p)) return p;
  return text.size();
}

size_t last_safe_cut(std::string_view text) {
  for (size_t p = text.size(); p-- > 1;)
    if (is_safe_cut(text, p)) return p;
  return 0;
}

size_t merged_part(std::string_view pretoken) {
  if (pretoken.size() <= longest_merged) return pretoken.size();
  std::string_view part = pretoken.substr(0, longest_merged);
  size_t line = part.rfind('\n');
  return line != std::string_view::npos && line >= part.size() / 2 ? line + 1 : last_character_cut(part);
}

size_t last_character_cut(std::string_view text) {
  // Start of the last character other than a mark. Longer runs of marks occur in no script.
  constexpr int most_marks = 64;
  size_t p = text.size();
  for (int i = 0; i <= most_marks && p > 1; ++i) {
    --p;
    for (int back = 0; back < 3 && p > 1 && (uint8_t(text[p]) & 0xc0) == 0x80; ++back) --p;
    uint8_t lead = uint8_t(text[p]);
    size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    bool complete = p + length <= text.size();  // else it may be a mark
    if (complete && character_at(text, p).kind != CharClass::mark) return p;
  }
  return text.size();
}

size_t character_cut_after(std::string_view text, size_t from) {
  size_t p = from;
  while (p < text.size() && (uint8_t(text[p]) & 0xc0) == 0x80) ++p;
  while (p < text.size()) {
    CharacterOfClass c = character_at(text, p);
    if (c.kind != CharClass::mark) break;
    p += c.length;
  }
  return p;
}

}  // namespace crest
