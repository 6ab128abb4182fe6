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
};

std::vector<Tensor> replicated(const Executor& rank) {
  std::vector<Tensor> tensors;
  for (auto& p : replicated_parameters(rank)) {
    if (p.weight.data) tensors.push_back({p.name, p.weight});
    if (p.scale.data) tensors.push_back({p.name + ".scale", p.scale});
    if (p.master.data && p.master.data != p.weight.data) tensors.push_back({p.name + ".master", p.master});
    for (auto& state : p.states) tensors.push_back({p.name + "." + state.name, state.tensor});
  }
  return tensors;
}

// 48 bits for each tensor: a double holds them exactly.
std::vector<double> hashes(const std::vector<Tensor>& tensors) {
  std::vector<TensorRef> data;
  for (auto& t : tensors) data.push_back(t.data);
  std::vector<double> all;
  for (uint64_t sum : checksums(data)) all.push_back(double(sum >> 16));
  return all;
}

std::string list_of(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (int r : ranks) names.push_back(std::to_string(r));
  return join(names, ", ");
}

[[noreturn]] void throw_difference(const std::vector<std::vector<double>>& by_rank, const std::string& tensor, size_t i,
                                   size_t differing, const std::string& where) {
  std::map<double, std::vector<int>> groups;
  for (size_t r = 0; r < by_rank.size(); ++r) groups[by_rank[r][i]].push_back(int(r));
  // What most ranks hold is right; with a tie nobody knows, and rank 0 is what the others are
  // compared with.
  auto most = groups.find(by_rank[0][i]);
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
  auto all = engine.from_all_ranks([](Executor& rank) { return hashes(replicated(rank)); });
  std::vector<size_t> differing;
  for (size_t i = 0; i < all[0].size(); ++i)
    if (std::any_of(all.begin(), all.end(), [&](auto& h) { return h[i] != all[0][i]; })) differing.push_back(i);
  if (differing.empty()) return;
  size_t first = differing[0];
  throw_difference(all, replicated(engine.rank(0))[first].name, first, differing.size(), where);
}

}  // namespace crest
