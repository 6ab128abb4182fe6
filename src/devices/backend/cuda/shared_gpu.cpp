#include "backend/cuda/shared_gpu.h"

#if CREST_HAVE_CUDA
#include <cuda_runtime.h>

#include "backend/cuda/kernel.h"
#include "backend/cuda/rank_sum.h"
#include "comm/exchange.h"
#include "comm/thread_barrier.h"
#include "comm/thread_transfers.h"

namespace crest::cuda {

namespace {

struct RankEvent {
  cudaEvent_t event = nullptr;
  RankEvent() { check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event"); }
  ~RankEvent() { cudaEventDestroy(event); }
  RankEvent(const RankEvent&) = delete;
};

// arrived: a rank's data is ready. done: a rank has used the others' data. All ranks queue their
// waits for an event between two barriers, so the next call may record it again.
struct SharedRendezvous {
  explicit SharedRendezvous(int n) : barrier(n), arrived(size_t(n)), done(size_t(n)), data(size_t(n)) {}
  ThreadBarrier barrier;
  std::vector<RankEvent> arrived, done;
  std::vector<void*> data;
  ThreadTransfers transfers;
  ThreadGroups<SharedRendezvous> groups;
};

class SharedGpuCommunicator final : public Communicator {
 public:
  SharedGpuCommunicator(std::shared_ptr<SharedRendezvous> rendezvous, int rank, int device)
      : shared_(std::move(rendezvous)), rank_(rank), device_(device) {}
  int rank() const override { return rank_; }
  int size() const override { return int(shared_->data.size()); }
  void set_stream(void* stream) override { stream_ = static_cast<cudaStream_t>(stream); }
  bool capturable() const override { return false; }
  void barrier() override { shared_->barrier.wait(); }
  void leave() override { shared_->transfers.leave(), shared_->barrier.leave(); }
  std::unique_ptr<Communicator> split(const std::vector<int>& members) override {
    cuda::check(cudaSetDevice(device_), "selection of the device");  // a rendezvous has events
    return std::make_unique<SharedGpuCommunicator>(shared_->groups.join(splits_++, members), place_in(members, rank_),
                                                   device_);
  }
  void synchronize() override { cuda::check(cudaStreamSynchronize(stream_), "collective"); }

  // Each rank sums its slice and writes it everywhere.
  void all_reduce(void* data, DType dtype, int64_t n, bool mean) override {
    together(data, [&] {
      constexpr int64_t unit = 64;  // elements: slices stay aligned
      int64_t units = (n + unit - 1) / unit;
      int64_t begin = std::min(n, units * rank_ / size() * unit),
              end = std::min(n, units * (rank_ + 1) / size() * unit);
      RankPointers slices = everywhere(dtype, begin);
      sum_ranks(stream_, slices, slices, dtype, end - begin, mean);
    });
  }
  void all_gather(const void* in, void* out, DType dtype, int64_t n) override {
    together(const_cast<void*>(in), [&] {
      size_t bytes = size_t(n) * size_of(dtype);
      for (int r = 0; r < size(); ++r) copy(static_cast<char*>(out) + size_t(r) * bytes, r, bytes);
    });
  }
  void reduce_scatter(void* in, void* out, DType dtype, int64_t n) override {
    together(in, [&] {
      RankPointers own;
      own.of[own.count++] = out;
      sum_ranks(stream_, everywhere(dtype, n * rank_), own, dtype, n, false);
    });
  }
  void broadcast(void* data, DType dtype, int64_t n, int root) override {
    together(data, [&] {
      if (rank_ != root) copy(data, root, size_t(n) * size_of(dtype));
    });
  }
  void send_receive(const void* out, int, void* in, int from, int64_t bytes) override {
    together(const_cast<void*>(out), [&] { copy(in, from, size_t(bytes)); });
  }
  // Both have queued their waits for the other's event before either may record it again.
  void send(const void* data, int64_t bytes, int to) override {
    cuda::check(cudaSetDevice(device_), "selection of the device");
    record(shared_->arrived[size_t(rank_)]);
    shared_->transfers.send(rank_, to, data, bytes, [&] { wait_for(shared_->done[size_t(to)]); });
  }
  void receive(void* data, int64_t bytes, int from) override {
    cuda::check(cudaSetDevice(device_), "selection of the device");
    shared_->transfers.receive(from, rank_, bytes, [&](const void* sent) {
      wait_for(shared_->arrived[size_t(from)]);
      cuda::check(cudaMemcpyAsync(data, sent, size_t(bytes), cudaMemcpyDeviceToDevice, stream_), "copy");
      record(shared_->done[size_t(rank_)]);
    });
  }

 private:
  void record(RankEvent& e) const { cuda::check(cudaEventRecord(e.event, stream_), "event"); }
  void wait_for(RankEvent& e) const { cuda::check(cudaStreamWaitEvent(stream_, e.event, 0), "event"); }
  // Queues `work` when every rank's data is ready, and behind it a wait for the work of all ranks.
  template <class Work>
  void together(void* data, const Work& work) {
    cuda::check(cudaSetDevice(device_), "selection of the device");
    shared_->data[size_t(rank_)] = data;
    await_all(shared_->arrived);
    work();
    await_all(shared_->done);
  }
  void await_all(std::vector<RankEvent>& events) {
    cuda::check(cudaEventRecord(events[size_t(rank_)].event, stream_), "event");
    barrier();
    for (int r = 0; r < size(); ++r)
      if (r != rank_) cuda::check(cudaStreamWaitEvent(stream_, events[size_t(r)].event, 0), "event");
  }
  // Every rank's data from an element on.
  RankPointers everywhere(DType dtype, int64_t first) const {
    RankPointers all;
    for (void* d : shared_->data) all.of[all.count++] = static_cast<char*>(d) + first * int64_t(size_of(dtype));
    return all;
  }
  void copy(void* to, int from, size_t bytes) {
    cuda::check(cudaMemcpyAsync(to, shared_->data[size_t(from)], bytes, cudaMemcpyDeviceToDevice, stream_), "copy");
  }

  std::shared_ptr<SharedRendezvous> shared_;
  int rank_, device_, splits_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_shared_gpu_communicators(int ranks, const Device& device) {
  if (ranks < 1 || ranks > most_ranks) fail_usage("the number of ranks on one GPU must be from 1 to 64");
  check(cudaSetDevice(device.index), "selection of the device");
  auto rendezvous = std::make_shared<SharedRendezvous>(ranks);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<SharedGpuCommunicator>(rendezvous, r, device.index));
  return all;
}

}  // namespace crest::cuda
#endif
