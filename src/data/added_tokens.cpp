#include "data/added_tokens.h"

#include <algorithm>
#include <functional>

namespace crest {

void AddedTokens::add(std::string_view text, uint32_t id) {
  if (text.empty() || texts_.find(text) != WordTable::none) return;
  texts_.insert(text);
  ids_.push_back(id);
  auto& lengths = lengths_[uint8_t(text[0])];
  auto length = uint32_t(text.size());
  auto at = std::lower_bound(lengths.begin(), lengths.end(), length, std::greater<>());
  if (at == lengths.end() || *at != length) lengths.insert(at, length);
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from) const {
  if (empty()) return {text.size(), 0, 0};
  for (size_t i = from; i < text.size(); ++i)
    for (uint32_t length : lengths_[uint8_t(text[i])]) {
      if (length > text.size() - i) continue;
      uint32_t found = texts_.find(text.substr(i, length));
      if (found != WordTable::none) return {i, length, ids_[found]};
    }
  return {text.size(), 0, 0};
}

}  // namespace crest
