// Tokens that are found in a text before it is split into words: those that files add to the vocabulary.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/word_table.h"

namespace crest {

class AddedTokens {
 public:
  void add(std::string_view text, uint32_t id);
  bool empty() const { return ids_.empty(); }
  struct Match {
    size_t at, length;  // length 0: none is left
    uint32_t id;
  };
  // The leftmost token at or after `from`, of those that begin there the longest.
  Match find(std::string_view text, size_t from) const;

 private:
  WordTable texts_;
  std::vector<uint32_t> ids_;
  std::array<std::vector<uint32_t>, 256> lengths_;  // by first byte, longest first
};

}  // namespace crest
