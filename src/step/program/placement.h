// Where a value lives. For each axis of the mesh: how the ranks along it share the value of an
// unsharded run.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "program/mesh.h"

namespace crest {

struct Placement {
  // replicated: all ranks have the same. shard: each rank has an equal part of dimension `dim`, in
  // the order of the ranks. partial: each rank has an addend; their sum is the value. own: each
  // rank has something of its own, such as a scale. absent: the memory holds nothing yet, or
  // nothing any more. each: each rank has another whole tensor of a list (a matrix for which it
  // alone has the optimizer's state), so it may compute anything of it.
  enum class Kind : uint8_t { replicated, shard, partial, own, absent, each };
  Kind kind = Kind::replicated;
  int8_t dim = 0;  // of a shard
  // For a shard of a dimension with queries, keys and values: the number of query heads for each
  // key head. Each rank has an equal part of all three. 0: the dimension is cut as a whole.
  int16_t queries = 0;
  // Only the rows of the rank this many places further along the axis, and so other rows on each
  // rank; -1: all rows of the value.
  int8_t piece = -1;
  // For a shard of the tokens of sequences: the tokens of a chunk. A sequence has two chunks for
  // each rank, and rank r of n has chunks r and 2n - 1 - r, so causal attention is the same work
  // for all. The dimension holds one sequence after the other. 0: ranks have contiguous parts.
  int32_t chunk = 0;

  static constexpr Placement shard(int dim) { return {Kind::shard, int8_t(dim), 0, -1, 0}; }
  static constexpr Placement heads(int dim, int64_t queries) {
    return {Kind::shard, int8_t(dim), int16_t(queries), -1, 0};
  }
  static constexpr Placement chunks(int dim, int64_t tokens) {
    return {Kind::shard, int8_t(dim), 0, -1, int32_t(tokens)};
  }
  static constexpr Placement partial() { return {Kind::partial, 0, 0, -1, 0}; }
  static constexpr Placement own() { return {Kind::own, 0, 0, -1, 0}; }
  static constexpr Placement absent() { return {Kind::absent, 0, 0, -1, 0}; }
  static constexpr Placement each() { return {Kind::each, 0, 0, -1, 0}; }
  // The piece `k` of a value with this placement.
  constexpr Placement rows_of(int k) const { return {kind, dim, queries, int8_t(k), chunk}; }
  bool replicated() const { return kind == Kind::replicated && piece < 0; }
  bool cut() const { return kind == Kind::shard; }
  bool operator==(const Placement&) const = default;
};

// "replicated", "shard(0)", "heads(0,4)" (of dimension 0, 4 queries), "chunks(1,64)" (of dimension
// 1, 64 tokens), "partial", "own", "absent", "each". Of a piece: "partial/1", the rows of the next
// rank.
std::string text(Placement);

// Elements [begin, end) of a dimension.
struct DimRange {
  int64_t begin, end;
  bool operator==(const DimRange&) const = default;
};

// A shard's dimension was padded from `size` to `padded` elements for the ranks, each section of
// heads separately. Maps a range of the padded dimension to the range of real elements in it. Empty
// if the range holds padding only.
DimRange without_padding(Placement shard, int64_t size, int64_t padded, DimRange range);

// The shard of place `index` of `ranks`: its parts [begin, end) of the whole dimension `dim` with
// `size` elements, in their order in the shard.
std::vector<DimRange> ranges_of(Placement shard, int64_t size, int index, int ranks);

using Placements = std::array<Placement, axis_count>;  // by Axis

}  // namespace crest
