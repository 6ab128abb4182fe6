#include "program/program.h"

#include <algorithm>

namespace crest {

std::string_view name(Role r) {
  static constexpr std::string_view n[] = {"input", "weight", "gradient", "state", "cache", "activation", "output"};
  return n[size_t(r)];
}
std::string_view name(Lifetime l) {
  static constexpr std::string_view n[] = {"micro", "slot", "step", "persistent"};
  return n[size_t(l)];
}
std::string_view name(Phase p) {
  static constexpr std::string_view n[] = {"forward", "recompute", "backward", "update"};
  return n[size_t(p)];
}
std::string_view name(Stream s) {
  static constexpr std::string_view n[] = {"compute", "comm", "copy", "copy_back", "gradients"};
  return n[size_t(s)];
}
std::string_view name(MemorySpace s) {
  static constexpr std::string_view n[] = {"device", "host"};
  return n[size_t(s)];
}

int64_t Value::pitch() const {
  int rank = shape.rank();
  if (contiguous()) return rank ? shape.back() : 1;
  if (rank < 2) return 0;
  int64_t pitch = layout.strides[rank - 2];
  return pitch >= shape.back() && layout.strides == shape.with_back(pitch).contiguous_strides() ? pitch : 0;
}

int64_t Value::storage_bytes() const {
  int64_t elements = shape.numel();
  for (int d = 0; d < shape.rank() && shape.numel() > 0; ++d)
    elements = std::max(elements, shape[d] * layout.strides[d]);
  return elements * int64_t(size_of(dtype));
}

ValueId Program::find(std::string_view value_name) const {
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].name == value_name) return ValueId(i);
  return no_value;
}

std::vector<int> Program::producers() const {
  std::vector<int> p(values.size(), -1);
  for (size_t i = 0; i < code.size(); ++i)
    for (ValueId v : code[i].out) p[size_t(v)] = int(i);
  return p;
}

std::vector<std::vector<int>> Program::consumers() const {
  std::vector<std::vector<int>> c(values.size());
  for (size_t i = 0; i < code.size(); ++i)
    for (ValueId v : code[i].in)
      if (v != no_value && (c[size_t(v)].empty() || c[size_t(v)].back() != int(i))) c[size_t(v)].push_back(int(i));
  return c;
}

}  // namespace crest
