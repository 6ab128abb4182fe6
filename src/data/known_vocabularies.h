// Vocabularies whose files leave out what is needed to use them: the split rule and the special tokens.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace crest {

struct KnownVocabulary {
  std::string_view name;
  uint32_t tokens;  // ordinary ones, by which it is recognised
  std::string_view split_rule;
  bool nfc;
  // (text, id)
  std::vector<std::pair<std::string, uint32_t>> (*special_tokens)();
};

// Null when no vocabulary of this size is known.
const KnownVocabulary* find_known_vocabulary(uint32_t tokens);

}  // namespace crest
