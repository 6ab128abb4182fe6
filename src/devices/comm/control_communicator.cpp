#include "comm/control_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "comm/reduce.h"

namespace crest {

namespace {

class ControlCommunicator final : public Communicator {
 public:
  ControlCommunicator(Control& control, std::vector<int> members) : control_(control), members_(std::move(members)) {}
  int rank() const override { return members_.empty() ? control_.rank() : place_in(members_, control_.rank()); }
  int size() const override { return members_.empty() ? control_.size() : int(members_.size()); }
  std::unique_ptr<Communicator> split(const std::vector<int>& members) override {
    std::vector<int> ranks;
    for (int m : members) ranks.push_back(members_.empty() ? m : members_.at(size_t(m)));
    return std::make_unique<ControlCommunicator>(control_, std::move(ranks));
  }

  void all_reduce(void* data, DType dtype, int64_t n, bool mean) override {
    std::vector<char> all = gathered({"all-reduce", dtype, n}, data, size_t(n) * size_of(dtype));
    sum_in_order(data, parts(all, size_t(n) * size_of(dtype), 0), dtype, n, mean);
  }
  void all_gather(const void* in, void* out, DType dtype, int64_t n) override {
    std::vector<char> all = gathered({"all-gather", dtype, n}, in, size_t(n) * size_of(dtype));
    std::copy(all.begin(), all.end(), static_cast<char*>(out));
  }
  void reduce_scatter(void* in, void* out, DType dtype, int64_t n) override {
    size_t bytes = size_t(n) * size_of(dtype);
    std::vector<char> all = gathered({"reduce-scatter", dtype, n}, in, bytes * size_t(size()));
    sum_in_order(out, parts(all, bytes * size_t(size()), bytes * size_t(rank())), dtype, n, false);
  }
  void broadcast(void* data, DType dtype, int64_t n, int root) override {
    auto* bytes = static_cast<char*>(data);
    size_t count = size_t(n) * size_of(dtype);
    for (size_t done = 0; done < count;) {
      size_t part = std::min(exchange_bytes, count - done);
      std::string own = rank() == root ? std::string(bytes + done, part) : std::string();
      std::string all = control_.exchange({"broadcast", dtype, n, root}, own, members_);
      take(all, bytes + done, part);
      done += part;
    }
  }
  void send_receive(const void* out, int, void* in, int from, int64_t bytes) override {
    std::vector<char> all = gathered({"send and receive", DType::u8, bytes}, out, size_t(bytes));
    std::memcpy(in, all.data() + size_t(from) * size_t(bytes), size_t(bytes));
  }
  void barrier() override { control_.exchange({"barrier"}, "", members_); }
  void check() override { control_.check("collective"); }

 private:
  // `bytes` from every rank, in rank order.
  std::vector<char> gathered(const CollectiveCall& call, const void* own, size_t bytes) {
    size_t ranks = size_t(size()), most = exchange_bytes / ranks;
    std::vector<char> all(bytes * ranks), piece;
    for (size_t done = 0; done < bytes;) {
      size_t part = std::min(most, bytes - done);
      piece.resize(part * ranks);
      take(control_.exchange(call, std::string(static_cast<const char*>(own) + done, part), members_), piece.data(),
           piece.size());
      for (size_t r = 0; r < ranks; ++r) std::memcpy(all.data() + r * bytes + done, piece.data() + r * part, part);
      done += part;
    }
    return all;
  }
  static void take(const std::string& all, char* to, size_t bytes) {
    if (all.size() != bytes) fail_internal("the ranks exchange different things");
    std::memcpy(to, all.data(), bytes);
  }
  std::vector<const void*> parts(const std::vector<char>& all, size_t stride, size_t offset) const {
    std::vector<const void*> list;
    for (int r = 0; r < size(); ++r) list.push_back(all.data() + size_t(r) * stride + offset);
    return list;
  }

  Control& control_;
  std::vector<int> members_;  // ranks of the control channel; empty: all
};

}  // namespace

std::unique_ptr<Communicator> make_control_communicator(Control& control) {
  return std::make_unique<ControlCommunicator>(control, std::vector<int>());
}

}  // namespace crest
