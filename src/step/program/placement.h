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

  static constexpr Placement shard(int dim) { return {Kind::shard, int8_t(dim), 0}; }
  static constexpr Placement heads(int dim, int64_t queries) { return {Kind::shard, int8_t(dim), int16_t(queries)}; }
  static constexpr Placement partial() { return {Kind::partial, 0, 0}; }
  static constexpr Placement own() { return {Kind::own, 0, 0}; }
  static constexpr Placement absent() { return {Kind::absent, 0, 0}; }
  static constexpr Placement each() { return {Kind::each, 0, 0}; }
  bool replicated() const { return kind == Kind::replicated; }
  bool cut() const { return kind == Kind::shard; }
  bool operator==(const Placement&) const = default;
};

// "replicated", "shard(0)", "heads(0,4)" (of dimension 0, 4 queries), "partial", "own", "absent",
// "each".
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
