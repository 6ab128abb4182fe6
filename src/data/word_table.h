// A set of byte strings with dense numbers: the cache of encoded words, the counts of a corpus, a vocabulary.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

uint64_t hash_bytes(std::string_view bytes);

class WordTable {
 public:
  static constexpr uint32_t none = UINT32_MAX;
  // Number of the word (0, 1, 2, ... in order of insertion), `none` when absent.
  uint32_t find(std::string_view word) const;
  // Number of the word, which is inserted when absent: then it is size() - 1.
  uint32_t insert(std::string_view word);
  // Views stay valid until the next insert.
  std::string_view word(uint32_t index) const;
  uint32_t size() const { return uint32_t(entries_.size()); }
  size_t bytes() const { return arena_.capacity() + entries_.capacity() * sizeof(Entry) + slots_.capacity() * 4; }
  void clear();

 private:
  struct Entry {
    uint64_t offset;
    uint32_t length, hash;
  };
  void grow();
  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // entry + 1, 0 = free; power-of-two size, linear probing
};

}  // namespace crest
