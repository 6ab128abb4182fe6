// Where a value lives. For each axis of the mesh: how the ranks along it share the value of an
// unsharded run.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "program/mesh.h"

namespace crest {

struct Placement {
  // replicated: all ranks have the same. shard: each rank has an equal part of dimension `dim`, in
  // the order of the ranks. partial: each rank has an addend; their sum is the value. own: each
  // rank has something of its own, such as a scale. absent: the memory holds nothing yet, or
  // nothing any more.
  enum class Kind : uint8_t { replicated, shard, partial, own, absent };
  Kind kind = Kind::replicated;
  int8_t dim = 0;  // of a shard

  static constexpr Placement shard(int dim) { return {Kind::shard, int8_t(dim)}; }
  static constexpr Placement partial() { return {Kind::partial, 0}; }
  static constexpr Placement own() { return {Kind::own, 0}; }
  static constexpr Placement absent() { return {Kind::absent, 0}; }
  bool replicated() const { return kind == Kind::replicated; }
  bool operator==(const Placement&) const = default;
};

// "replicated", "shard(0)", "partial", "own", "absent".
std::string text(Placement);

using Placements = std::array<Placement, axis_count>;  // by Axis

}  // namespace crest
