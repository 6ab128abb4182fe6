// How ranks are arranged: a box with an axis for each way to share the work of a step. A rank is a
// place in it.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace crest {

struct Instr;

// The innermost axis first: ranks of one tensor group have consecutive numbers.
enum class Axis : uint8_t { tensor, context, data, pipeline };
inline constexpr size_t axis_count = 4;
// As texts have them: the outermost first.
inline constexpr std::array<Axis, axis_count> axes_outermost_first = {Axis::pipeline, Axis::data, Axis::context,
                                                                      Axis::tensor};
std::string_view name(Axis axis);

// A set of axes.
class Axes {
 public:
  constexpr Axes() = default;
  constexpr Axes(Axis axis) : bits_(uint8_t(1U << unsigned(axis))) {}  // an axis is a set
  static constexpr Axes all() { return Axes(uint8_t((1U << axis_count) - 1)); }

  constexpr bool has(Axis axis) const { return (bits_ & Axes(axis).bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr Axes operator|(Axes other) const { return Axes(uint8_t(bits_ | other.bits_)); }
  constexpr Axes without(Axes other) const { return Axes(uint8_t(bits_ & ~other.bits_)); }
  constexpr auto operator<=>(const Axes&) const = default;
  // "data+context", the outermost first.
  std::string text() const;

 private:
  constexpr explicit Axes(uint8_t bits) : bits_(bits) {}
  uint8_t bits_ = 0;
};
constexpr Axes operator|(Axis a, Axis b) { return Axes(a) | Axes(b); }

// The text of Axes in any order. Throws for an unknown or a repeated axis.
Axes parse_axes(std::string_view text);

// The axes along which an instruction communicates: its attribute `axes`. The default is data.
Axes axes_of(const Instr& instr);

class Mesh {
 public:
  Mesh() { sizes_.fill(1); }  // one rank
  // Throws an internal error for a size below 1, or where the ranks are more than an int counts.
  Mesh(std::initializer_list<std::pair<Axis, int>> sizes);
  bool operator==(const Mesh&) const = default;

  // The product of the sizes of these axes.
  int size(Axes axes) const;
  int ranks() const { return size(Axes::all()); }

  using Coordinates = std::array<int, axis_count>;  // by Axis
  Coordinates coordinates(int rank) const;
  int coordinate(int rank, Axis axis) const { return coordinates(rank)[size_t(axis)]; }
  int rank(const Coordinates& at) const;

  // `rank` and all ranks with the same coordinates on the other axes, in order of their numbers.
  std::vector<int> group(int rank, Axes axes) const;
  // The place of `rank` in its group.
  int index(int rank, Axes axes) const;

  // The axes with several ranks: "data=2,tensor=2"; "data=1" of one rank.
  std::string text() const;

 private:
  std::array<int, axis_count> sizes_;  // by Axis
};

// "data=2,tensor=2" in any order. Absent axes have one rank, and so do all axes of "". Usage errors
// name --mesh.
Mesh parse_mesh(std::string_view text);

}  // namespace crest
