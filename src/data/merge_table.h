// The merges of a BPE vocabulary, and their application to one word.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace crest {

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
  // rank == no_rank when the pair does not merge.
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

// Merges the symbols of a word, the lowest rank first, of equals the leftmost, until no pair merges. Appends what is
// left to `out`; `symbols` may be changed.
void merge_word(const MergeTable& table, uint32_t* symbols, size_t count, std::vector<uint32_t>& out);

}  // namespace crest
