// Lookup tables of a tokenizer: numbers of strings, merges of pairs, added tokens in a text.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

uint64_t hash_bytes(std::string_view bytes);

class StringTable {
 public:
  static constexpr uint32_t none = UINT32_MAX;
  // Number of the string (0, 1, 2, ... in order of insertion); `none` if absent.
  uint32_t find(std::string_view string) const;
  // Number of the string. It is inserted if absent: then its number is size() - 1.
  uint32_t insert(std::string_view string);
  // Views stay valid until the next insert.
  std::string_view operator[](uint32_t index) const;
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

// (left id, right id) -> (rank, id of the merged token).
class MergeTable {
 public:
  static constexpr uint32_t no_rank = UINT32_MAX;
  struct Merge {
    uint32_t rank, result;
  };
  explicit MergeTable(size_t expected = 0);
  // A later merge of the same pair replaces the earlier one.
  void set(uint32_t left, uint32_t right, Merge merge);
  // rank == no_rank if the pair does not merge.
  Merge find(uint32_t left, uint32_t right) const {
    uint64_t key = uint64_t(left) << 32 | right;
    for (size_t i = slot(key);; i = (i + 1) & mask_) {
      if (keys_[i] == key) return merges_[i];
      if (keys_[i] == free_key) return {no_rank, 0};
    }
  }

 private:
  static constexpr uint64_t free_key = UINT64_MAX;
  size_t slot(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ull >> 32) & mask_; }
  size_t mask_ = 0, count_ = 0;
  std::vector<uint64_t> keys_;
  std::vector<Merge> merges_;
};

// Merges the symbols of a pre-token until no pair merges: lowest rank first, leftmost among equals.
// Appends the result to `out`; `symbols` may be changed.
void merge_pretoken(const MergeTable& table, uint32_t* symbols, size_t count, std::vector<uint32_t>& out);

class AddedTokens {
 public:
  // An added token takes the white space before it (left), or behind it (right). word: matches
  // only between characters that are not part of words.
  struct Borders {
    bool left = false, right = false, word = false;
    bool operator==(const Borders&) const = default;
  };
  void add(std::string_view text, uint32_t id, Borders borders);
  bool empty() const { return ids_.empty(); }
  struct Match {
    size_t at, length;  // length 0: none is left
    uint32_t id;
  };
  // The leftmost token at or after `from`, with the white space that it takes; of several with this
  // start, the longest. Text rejected by `word` is
  // skipped whole: no other token begins in it, as in `tokenizers`.
  Match find(std::string_view text, size_t from) const;

 private:
  StringTable texts_;
  std::vector<uint32_t> ids_;
  std::vector<Borders> borders_;
  std::array<std::vector<uint32_t>, 256> lengths_;  // by first byte, longest first
};

}  // namespace crest
