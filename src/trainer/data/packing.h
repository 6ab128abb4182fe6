// Packs whole documents into rows of a fixed length, with few empty slots.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"

namespace crest {

// Best-fit decreasing: documents from longest to shortest, each into the fitting row with the least
// free space (Johnson 1974; for training text Ding et al. 2024). A document ends with the
// end-of-text token; its last token is only a target, so n tokens take n - 1 slots. Documents with
// more than `seq` slots are cut into pieces with one token in common, each from position 0. Pieces
// without a counted token (loss masks) are left out. A pure function of the split's tokens and
// masks.
class Packing {
 public:
  struct Piece {
    uint64_t begin = 0;  // token of the split
    uint32_t slots = 0;  // inputs; the targets are one token further
  };

  // Reads the whole split once.
  Packing(const TokenStream& stream, uint32_t end_of_text, int64_t seq);

  int64_t seq() const { return seq_; }
  uint32_t padding() const { return end_of_text_; }  // fills the remaining slots
  uint64_t rows() const { return starts_.size() - 1; }
  std::span<const Piece> row(uint64_t r) const;
  uint64_t documents() const { return documents_; }  // in rows, whole or cut
  uint64_t cut() const { return cut_; }              // number of cut ones
  double filled() const;                             // share of filled slots

 private:
  std::vector<Piece> find_pieces(const TokenStream& stream);
  void add_document(const TokenStream& stream, uint64_t begin, uint64_t end, std::vector<Piece>& pieces);
  void place(const std::vector<Piece>& pieces);

  uint32_t end_of_text_;
  int64_t seq_;
  uint64_t documents_ = 0, cut_ = 0, slots_ = 0;
  std::vector<Piece> pieces_;     // row by row
  std::vector<uint64_t> starts_;  // of row r in pieces_; one more than rows
};

}  // namespace crest
