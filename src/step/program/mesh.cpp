#include "program/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "program/program.h"

namespace crest {

namespace {

constexpr int most_ranks_of_axis = 1 << 20;

// Divides data x context among experts; no pass knows it yet.
constexpr const char* expert_axis = "expert";

std::vector<std::string> axis_names() {
  std::vector<std::string> names;
  for (Axis axis : axes_outermost_first) names.emplace_back(name(axis));
  return names;
}

std::optional<Axis> axis_called(std::string_view text) {
  for (Axis axis : axes_outermost_first)
    if (text == name(axis)) return axis;
  return {};
}

// Digits only, so a sign, a fraction or blanks are errors.
std::optional<int> ranks_in(std::string_view text) {
  int ranks = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || ranks < 1 || ranks > most_ranks_of_axis) return {};
  return ranks;
}

[[noreturn]] void fail_mesh(std::string what, std::string advice) {
  fail_usage(std::move(what), "--mesh", std::move(advice) + " For example --mesh data=2,tensor=2.");
}

}  // namespace

std::string_view name(Axis axis) {
  switch (axis) {
    case Axis::tensor: return "tensor";
    case Axis::context: return "context";
    case Axis::data: return "data";
    case Axis::pipeline: return "pipeline";
  }
  fail_internal("an axis without a name");
}

std::string Axes::text() const {
  std::vector<std::string> names;
  for (Axis axis : axes_outermost_first)
    if (has(axis)) names.emplace_back(name(axis));
  return join(names, "+");
}

Axes parse_axes(std::string_view text) {
  Axes axes;
  for (auto& part : split(text, '+')) {
    std::optional<Axis> axis = axis_called(part);
    if (!axis) fail(fmt::format("'{}' is not an axis", printable(part)), "axes", did_you_mean(part, axis_names()));
    if (axes.has(*axis)) fail(fmt::format("'{}' is there twice", part), "axes");
    axes = axes | *axis;
  }
  return axes;
}

Axes axes_of(const Instr& instr) {
  return instr.attrs.has("axes") ? parse_axes(instr.attrs.text("axes")) : Axes(Axis::data);
}

Mesh::Mesh(std::initializer_list<std::pair<Axis, int>> sizes) : Mesh() {
  int64_t ranks = 1;
  for (auto [axis, size] : sizes) {
    if (size < 1 || (ranks *= size) > INT32_MAX) fail_internal("a mesh without ranks, or with too many");
    sizes_[size_t(axis)] = size;
  }
}

int Mesh::size(Axes axes) const {
  int size = 1;
  for (Axis axis : axes_outermost_first)
    if (axes.has(axis)) size *= sizes_[size_t(axis)];
  return size;
}

Mesh::Coordinates Mesh::coordinates(int rank) const {
  if (rank < 0 || rank >= ranks()) fail_internal(fmt::format("rank {} is not in the mesh {}", rank, text()));
  Coordinates at;
  for (size_t a = 0; a < axis_count; ++a) at[a] = rank % sizes_[a], rank /= sizes_[a];
  return at;
}

int Mesh::rank(const Coordinates& at) const {
  int rank = 0;
  for (size_t a = axis_count; a-- > 0;) {
    if (at[a] < 0 || at[a] >= sizes_[a]) fail_internal(fmt::format("a place outside of the mesh {}", text()));
    rank = rank * sizes_[a] + at[a];
  }
  return rank;
}

std::vector<int> Mesh::group(int rank, Axes axes) const {
  Coordinates at = coordinates(rank);
  std::vector<int> members;
  for (int i = 0; i < size(axes); ++i) {
    int rest = i;
    for (size_t a = 0; a < axis_count; ++a)
      if (axes.has(Axis(a))) at[a] = rest % sizes_[a], rest /= sizes_[a];
    members.push_back(this->rank(at));
  }
  return members;
}

int Mesh::index(int rank, Axes axes) const {
  Coordinates at = coordinates(rank);
  int index = 0;
  for (Axis axis : axes_outermost_first)
    if (axes.has(axis)) index = index * sizes_[size_t(axis)] + at[size_t(axis)];
  return index;
}

std::string Mesh::text() const {
  std::vector<std::string> parts;
  for (Axis axis : axes_outermost_first)
    if (int n = size(axis); n > 1) parts.push_back(fmt::format("{}={}", name(axis), n));
  return parts.empty() ? "data=1" : join(parts, ",");
}

Mesh parse_mesh(std::string_view text) {
  Mesh mesh;
  if (text.empty()) return mesh;
  std::array<int, axis_count> sizes = {};  // 0: not given
  int64_t ranks = 1;
  for (auto& part : split(text, ',')) {
    size_t equals = part.find('=');
    std::string called = part.substr(0, equals);
    std::optional<Axis> axis = axis_called(called);
    if ((!axis && called != expert_axis) || equals == std::string::npos) {
      std::vector<std::string> known = axis_names();
      known.emplace_back(expert_axis);
      fail_mesh(fmt::format("'{}' is not AXIS=RANKS", printable(part)),
                fmt::format("{} Axes: {}.", did_you_mean(called, known), join(known, ", ")));
    }
    std::optional<int> size = ranks_in(std::string_view(part).substr(equals + 1));
    if (!size)
      fail_mesh(fmt::format("'{}' is not a number of ranks", printable(part.substr(equals + 1))),
                fmt::format("It must be a whole number from 1 to {}.", most_ranks_of_axis));
    if (!axis) {
      if (*size > 1) fail_mesh("the axis expert is not there yet", "Leave it out.");
      continue;
    }
    if (sizes[size_t(*axis)]) fail_mesh(fmt::format("'{}' is given twice", called), "Give each axis once.");
    sizes[size_t(*axis)] = *size;
    if ((ranks *= *size) > INT32_MAX) fail_mesh(fmt::format("'{}' has too many ranks", printable(text)), "Use fewer.");
  }
  return {{Axis::tensor, std::max(1, sizes[size_t(Axis::tensor)])},
          {Axis::context, std::max(1, sizes[size_t(Axis::context)])},
          {Axis::data, std::max(1, sizes[size_t(Axis::data)])},
          {Axis::pipeline, std::max(1, sizes[size_t(Axis::pipeline)])}};
}

}  // namespace crest
