#include "comm/local.h"

#include <cstring>

#include "comm/exchange.h"
#include "comm/reduce.h"
#include "comm/thread_barrier.h"
#include "comm/thread_transfers.h"
#include "core/error.h"

namespace crest {

namespace {

struct Rendezvous {
  explicit Rendezvous(int n) : ranks(n), barrier(n), data(size_t(n)) {}
  int ranks;
  ThreadBarrier barrier;
  std::vector<void*> data;
  ThreadTransfers transfers;
  ThreadGroups<Rendezvous> groups;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Rendezvous> rendezvous, int rank)
      : rendezvous_(std::move(rendezvous)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return rendezvous_->ranks; }
  void barrier() override { rendezvous_->barrier.wait(); }
  void leave() override { rendezvous_->transfers.leave(), rendezvous_->barrier.leave(); }
  std::unique_ptr<Communicator> split(const std::vector<int>& members) override {
    return std::make_unique<LocalCommunicator>(rendezvous_->groups.join(splits_++, members), place_in(members, rank_));
  }

  // Each rank sums its slice and writes it everywhere, so the sum is bitwise identical on all.
  void all_reduce(void* data, DType dtype, int64_t n, bool mean) override {
    publish(data);
    int64_t begin = n * rank_ / size(), end = n * (rank_ + 1) / size();
    std::vector<const void*> parts;
    for (int r = 0; r < size(); ++r) parts.push_back(at(r, dtype, begin));
    sum_in_order(at(rank_, dtype, begin), parts, dtype, end - begin, mean);
    for (int r = 0; r < size(); ++r)
      if (r != rank_) std::memcpy(at(r, dtype, begin), at(rank_, dtype, begin), size_t(end - begin) * size_of(dtype));
    barrier();
  }

  void all_gather(const void* in, void* out, DType dtype, int64_t n) override {
    publish(const_cast<void*>(in));
    size_t bytes = size_t(n) * size_of(dtype);
    for (int r = 0; r < size(); ++r) std::memcpy(static_cast<char*>(out) + size_t(r) * bytes, of(r), bytes);
    barrier();
  }

  void reduce_scatter(void* in, void* out, DType dtype, int64_t n) override {
    publish(in);
    std::vector<const void*> parts;
    for (int r = 0; r < size(); ++r) parts.push_back(at(r, dtype, n * rank_));
    sum_in_order(out, parts, dtype, n, false);
    barrier();
  }

  void broadcast(void* data, DType dtype, int64_t n, int root) override {
    publish(data);
    if (rank_ != root) std::memcpy(data, of(root), size_t(n) * size_of(dtype));
    barrier();
  }

  void send_receive(const void* out, int, void* in, int from, int64_t bytes) override {
    publish(const_cast<void*>(out));
    std::memcpy(in, of(from), size_t(bytes));
    barrier();
  }

  void send(const void* data, int64_t bytes, int to) override { rendezvous_->transfers.send(rank_, to, data, bytes); }
  void receive(void* data, int64_t bytes, int from) override {
    rendezvous_->transfers.receive(from, rank_, bytes,
                                   [&](const void* sent) { std::memcpy(data, sent, size_t(bytes)); });
  }

 private:
  // Shows this rank's buffer to all, and returns after all have done so.
  void publish(void* data) {
    rendezvous_->data[size_t(rank_)] = data;
    barrier();
  }
  const void* of(int rank) const { return rendezvous_->data[size_t(rank)]; }

  char* at(int rank, DType dtype, int64_t element) const {
    return static_cast<char*>(rendezvous_->data[size_t(rank)]) + size_t(element) * size_of(dtype);
  }

  std::shared_ptr<Rendezvous> rendezvous_;
  int rank_, splits_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks) {
  if (ranks < 1 || ranks > 1024) fail_usage("the number of ranks must be from 1 to 1024");
  auto rendezvous = std::make_shared<Rendezvous>(ranks);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<LocalCommunicator>(rendezvous, r));
  return all;
}

}  // namespace crest
