#include "train/same_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "core/text.h"
#include "device/checksum.h"
#include "run/parameters.h"

namespace crest {

namespace {

struct Tensor {
  std::string name;
  TensorRef data;
  Axes cut;
};

std::vector<Tensor> replicated(const Executor& rank) {
  std::vector<Tensor> tensors;
  for (auto& p : own_parameters(rank)) {
    if (p.weight.data) tensors.push_back({p.name, p.weight, p.cut});
    if (p.scale.data) tensors.push_back({p.name + ".scale", p.scale, p.cut});
    if (p.master.data && p.master.data != p.weight.data) tensors.push_back({p.name + ".master", p.master, p.cut});
    for (auto& state : p.states) tensors.push_back({p.name + "." + state.name, state.tensor, p.cut});
  }
  return tensors;
}

// 48 bits per tensor, exact in a double.
std::vector<double> hashes(const std::vector<Tensor>& tensors) {
  std::vector<TensorRef> data;
  for (auto& t : tensors) data.push_back(t.data);
  std::vector<double> all;
  for (uint64_t sum : checksums(data)) all.push_back(double(sum >> 16));
  return all;
}

double bits_of(Axes axes) {
  double bits = 0;
  for (Axis axis : axes_outermost_first)
    if (axes.has(axis)) bits += double(1 << unsigned(axis));
  return bits;
}
Axes axes_of_bits(double bits) {
  Axes axes;
  for (Axis axis : axes_outermost_first)
    if (int(bits) >> unsigned(axis) & 1) axes = axes | axis;
  return axes;
}

std::string list_of(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (int r : ranks) names.push_back(std::to_string(r));
  return join(names, ", ");
}

// A tensor with differences among ranks with the same part of it.
struct Difference {
  size_t tensor;
  std::vector<int> ranks;
};

[[noreturn]] void throw_difference(const std::vector<std::vector<double>>& by_rank, const Difference& found,
                                   const std::string& tensor, size_t differing, const std::string& where) {
  std::map<double, std::vector<int>> groups;
  auto hash = [&](int rank) { return by_rank[size_t(rank)][found.tensor]; };
  for (int r : found.ranks) groups[hash(r)].push_back(r);
  // The majority is right. In a tie the first rank is the reference.
  auto most = groups.find(hash(found.ranks[0]));
  bool tie = false;
  for (auto g = groups.begin(); g != groups.end(); ++g) {
    if (g == most) continue;
    if (g->second.size() == most->second.size()) tie = true;
    if (g->second.size() > most->second.size()) most = g, tie = false;
  }
  std::vector<int> others;
  for (auto& [hash, ranks] : groups)
    if (hash != most->first) others.insert(others.end(), ranks.begin(), ranks.end());
  std::sort(others.begin(), others.end());
  std::string more = differing > 1 ? fmt::format(" (and {} more tensors)", differing - 1) : "";
  std::string what = fmt::format("{} {} hold{} other values of {}{} than rank{} {}",
                                 others.size() == 1 ? "rank" : "ranks", list_of(others), others.size() == 1 ? "s" : "",
                                 tensor, more, most->second.size() == 1 ? "" : "s", list_of(most->second));
  if (tie) what += "; which of them is right cannot be seen from as many on both sides";
  throw WeightsDiffer(
      others[0], what, where,
      "A fault of memory or of a processor, or machines of different kinds. The last checkpoint was saved "
      "when all ranks agreed.");
}

}  // namespace

void check_same_weights(Engine& engine, const std::string& where) {
  // Each pipeline stage has other tensors.
  auto counts =
      engine.from_all_ranks([](Executor& rank) { return std::vector<double>{double(replicated(rank).size())}; });
  size_t most = 0;
  for (auto& rank : counts) most = std::max(most, size_t(rank[0]));
  constexpr size_t fields = 2;  // a hash, and the axes of the tensor's cut
  auto all = engine.from_all_ranks([&](Executor& rank) {
    const std::vector<Tensor> tensors = replicated(rank);
    std::vector<double> values = hashes(tensors);
    values.resize(fields * most);
    for (size_t i = 0; i < most; ++i)  // a rank without this tensor equals no other
      values[most + i] = bits_of(i < tensors.size() ? tensors[i].cut : Axes::all());
    return values;
  });
  const Mesh mesh = engine.session().recipe.layout();
  std::vector<Difference> found;  // at most one per tensor
  for (size_t i = 0; i < most; ++i)
    for (int r = 0; r < mesh.ranks(); ++r) {
      std::vector<int> alike = mesh.group(r, Axes::all().without(axes_of_bits(all[size_t(r)][most + i])));
      if (all[size_t(r)][i] == all[size_t(alike[0])][i]) continue;
      found.push_back({i, alike});
      break;
    }
  if (found.empty()) return;
  // Only the ranks of its stage know the tensor's name.
  auto names = engine.from_all_ranks([&](Executor& rank) {
    const std::vector<Tensor> tensors = replicated(rank);
    const std::string name = found[0].tensor < tensors.size() ? tensors[found[0].tensor].name : "";
    return std::vector<double>(name.begin(), name.end());
  });
  std::string name;
  for (double letter : names[size_t(found[0].ranks[0])]) name += char(letter);
  if (const int stages = mesh.size(Axis::pipeline); stages > 1)
    name += fmt::format(" of stage {}", mesh.coordinate(found[0].ranks[0], Axis::pipeline));
  throw_difference(all, found[0], name, found.size(), where);
}

}  // namespace crest
