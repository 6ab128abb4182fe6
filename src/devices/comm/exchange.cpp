#include "comm/exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace crest {

std::vector<std::vector<double>> gather(Communicator& comm, const std::vector<double>& own) {
  std::vector<double> all(own.size() * size_t(comm.size()));
  comm.all_gather(own.data(), all.data(), DType::f64, int64_t(own.size()));
  std::vector<std::vector<double>> by_rank;
  for (int r = 0; r < comm.size(); ++r) {
    auto first = all.begin() + std::ptrdiff_t(size_t(r) * own.size());
    by_rank.emplace_back(first, first + std::ptrdiff_t(own.size()));
  }
  return by_rank;
}

std::vector<std::vector<double>> gather_lists(Communicator& comm, const std::vector<double>& own) {
  const auto lengths = gather(comm, {double(own.size())});
  std::vector<double> padded = own;
  for (const auto& length : lengths) padded.resize(std::max(padded.size(), size_t(length[0])));
  if (padded.empty()) return std::vector<std::vector<double>>(lengths.size());
  auto lists = gather(comm, padded);
  for (size_t r = 0; r < lists.size(); ++r) lists[r].resize(size_t(lengths[r][0]));
  return lists;
}

int place_in(const std::vector<int>& members, int rank) {
  auto it = std::find(members.begin(), members.end(), rank);
  if (it == members.end()) fail_internal(fmt::format("rank {} is not in the group that it makes", rank));
  return int(it - members.begin());
}

std::string broadcast_text(Communicator& comm, const std::string& text, int root) {
  double bytes = double(text.size());
  comm.broadcast(&bytes, DType::f64, 1, root);
  std::string all = comm.rank() == root ? text : std::string(size_t(bytes), '\0');
  if (!all.empty()) comm.broadcast(all.data(), DType::u8, int64_t(all.size()), root);
  return all;
}

}  // namespace crest
