#include "backend/cuda/nccl.h"

#include <fmt/format.h>

#include "backend/cuda/loader.h"
#include "backend/cuda/watched_wait.h"
#include "comm/exchange.h"

#if CREST_HAVE_CUDA
#include <cuda_runtime.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>

#include "backend/cuda/peer_copies.h"
#include "core/thread.h"
#endif

namespace crest {

static constexpr int major_version = 2;

std::string nccl_version() {
  const cuda::Library& library = cuda::library("nccl", major_version);
  int v = 0;
  if (!library.handle || reinterpret_cast<int (*)(int*)>(cuda::symbol(library, "ncclGetVersion"))(&v) != 0) return "";
  return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
}

#if !CREST_HAVE_CUDA

std::string nccl_problem() {
  return "this build of Crest has no CUDA: build where nvcc is found, or take --backend gloo for the CPU";
}

std::unique_ptr<Communicator> make_nccl_communicator(Control&, int, const std::string&, const Device&, double) {
  fail(nccl_problem());
}

#else

std::string nccl_problem() { return cuda::library("nccl", major_version).problem; }

namespace {

// NCCL's C interface (stable since 2.0), without its header.
struct UniqueId {
  char bytes[128];
};
using Comm = struct NcclComm*;
constexpr int sum = 0, average = 4, any_byte = 1;  // ncclUint8

// For additions; moved data goes as bytes.
int type_of(DType t) {
  switch (t) {
    case DType::f16: return 6;
    case DType::f32: return 7;
    case DType::f64: return 8;
    case DType::bf16: return 9;
    default: fail_internal("collectives reduce floating numbers only", std::string(name(t)));
  }
}

struct Nccl {
  int (*get_unique_id)(UniqueId*);
  int (*init_rank)(Comm*, int, UniqueId, int);
  int (*abort)(Comm);
  int (*async_error)(Comm, int*);
  const char* (*error_string)(int);
  int (*all_reduce)(const void*, void*, size_t, int, int, Comm, cudaStream_t);
  int (*all_gather)(const void*, void*, size_t, int, Comm, cudaStream_t);
  int (*reduce_scatter)(const void*, void*, size_t, int, int, Comm, cudaStream_t);
  int (*broadcast)(const void*, void*, size_t, int, int, Comm, cudaStream_t);
  int (*send)(const void*, size_t, int, int, Comm, cudaStream_t);
  int (*receive)(void*, size_t, int, int, Comm, cudaStream_t);
  int (*group_start)();
  int (*group_end)();

  // Of NCCL 2.18 or newer: only a mesh with several axes needs it.
  using Split = int (*)(Comm, int color, int key, Comm*, void* config);
  static Split split() {
    return reinterpret_cast<Split>(cuda::symbol(cuda::library("nccl", major_version), "ncclCommSplit"));
  }

  static const Nccl& get() {
    static const Nccl nccl;
    return nccl;
  }

 private:
  Nccl() {
    const cuda::Library& l = cuda::library("nccl", major_version);
    auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)> >(cuda::symbol(l, symbol));
    };
    find(get_unique_id, "ncclGetUniqueId"), find(init_rank, "ncclCommInitRank"), find(abort, "ncclCommAbort");
    find(async_error, "ncclCommGetAsyncError"), find(error_string, "ncclGetErrorString");
    find(all_reduce, "ncclAllReduce"), find(all_gather, "ncclAllGather");
    find(reduce_scatter, "ncclReduceScatter"), find(broadcast, "ncclBroadcast");
    find(send, "ncclSend"), find(receive, "ncclRecv");
    find(group_start, "ncclGroupStart"), find(group_end, "ncclGroupEnd");
  }
};

void check_cuda(cudaError_t code, const char* what) {
  if (code != cudaSuccess) fail(fmt::format("{}: {}", what, cudaGetErrorString(code)), "nccl");
}

// ncclCommInitRank and ncclCommSplit wait for all ranks and cannot be interrupted: they run on a
// thread, left behind if another rank does not come.
struct Start {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  int code = 0;
  Comm comm = nullptr;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Control& control, int ranks, const std::string& group, const Device& device, double seconds)
      : nccl_(Nccl::get()),
        control_(control),
        rank_(control.rank()),
        ranks_(ranks),
        device_(device.index),
        seconds_(seconds) {
    connect([&] {
      return [id = exchange_id(group), rank = rank_, ranks, init = nccl_.init_rank](Comm* comm) {
        return init(comm, ranks, id, rank);
      };
    });
  }
  NcclCommunicator(const NcclCommunicator& whole, const std::vector<int>& members)
      : nccl_(whole.nccl_),
        control_(whole.control_),
        rank_(place_in(members, whole.rank_)),
        ranks_(int(members.size())),
        device_(whole.device_),
        seconds_(whole.seconds_) {
    connect([&] {
      return [from = whole.comm_, color = members[0], key = rank_, split = Nccl::split()](Comm* comm) {
        return split(from, color, key, comm, nullptr);
      };
    });
  }
  // After a failure, work may wait forever for a lost rank, and a call waiting for the device would
  // hang. The process is about to end.
  ~NcclCommunicator() override {
    if (left_) {
      (void)peers_.release();
      return;
    }
    if (comm_) nccl_.abort(comm_);  // at once; all work was waited for
    cudaFree(scratch_);
  }
  int rank() const override { return rank_; }
  int size() const override { return ranks_; }
  std::unique_ptr<Communicator> split(const std::vector<int>& members) override {
    return std::make_unique<NcclCommunicator>(*this, members);
  }
  void set_stream(void* stream) override { stream_ = static_cast<cudaStream_t>(stream); }

  void all_reduce(void* data, DType dtype, int64_t n, bool mean) override {
    check(nccl_.all_reduce(data, data, size_t(n), type_of(dtype), mean ? average : sum, comm_, stream_), "all-reduce");
  }
  void all_gather(const void* in, void* out, DType dtype, int64_t n) override {
    check(nccl_.all_gather(in, out, size_t(n) * size_of(dtype), any_byte, comm_, stream_), "all-gather");
  }
  void reduce_scatter(void* in, void* out, DType dtype, int64_t n) override {
    check(nccl_.reduce_scatter(in, out, size_t(n), type_of(dtype), sum, comm_, stream_), "reduce-scatter");
  }
  void broadcast(void* data, DType dtype, int64_t n, int root) override {
    check(nccl_.broadcast(data, data, size_t(n) * size_of(dtype), any_byte, root, comm_, stream_), "broadcast");
  }
  void send_receive(const void* out, int to, void* in, int from, int64_t bytes) override {
    check(nccl_.group_start(), "send and receive");
    int sent = nccl_.send(out, size_t(bytes), any_byte, to, comm_, stream_);
    int received = nccl_.receive(in, size_t(bytes), any_byte, from, comm_, stream_);
    check(nccl_.group_end(), "send and receive");
    check(sent, "send"), check(received, "receive");
  }
  void all_to_all(const void* in, void* out, DType dtype, int64_t n) override {
    const size_t bytes = size_t(n) * size_of(dtype);
    int code = 0;
    auto keep = [&](int result) { code = code ? code : result; };
    check(nccl_.group_start(), "all-to-all");
    for (int r = 0; r < ranks_; ++r) {
      keep(nccl_.send(static_cast<const char*>(in) + size_t(r) * bytes, bytes, any_byte, r, comm_, stream_));
      keep(nccl_.receive(static_cast<char*>(out) + size_t(r) * bytes, bytes, any_byte, r, comm_, stream_));
    }
    keep(nccl_.group_end());
    check(code, "all-to-all");
  }
  bool pull(const void* place, void* in, int from, int64_t bytes) override {
    return peers_->pull(stream_, place, in, from, bytes);
  }
  void arrive_at(int flag) override { peers_->arrive(stream_, flag); }
  void wait_at(int flag) override { peers_->wait(stream_, flag); }
  void released(const void* allocation, bool wait) override {
    if (!peers_->forget(allocation) || !wait || left_) return;
    set_stream(nullptr);
    barrier();  // no rank frees what another one has mapped
  }
  void send(const void* data, int64_t bytes, int to) override {
    check(nccl_.send(data, size_t(bytes), any_byte, to, comm_, stream_), "send");
  }
  void receive(void* data, int64_t bytes, int from) override {
    check(nccl_.receive(data, size_t(bytes), any_byte, from, comm_, stream_), "receive");
  }
  void barrier() override {
    all_reduce(scratch_, DType::f32, 1, false);
    synchronize();
  }

  // A kernel of NCCL waits forever for a lost rank: the host looks, and aborts.
  void synchronize() override {
    auto ended = [&] {
      cudaError_t code = cudaStreamQuery(stream_);
      if (code != cudaErrorNotReady) check_cuda(code, "collective");
      return code == cudaSuccess;
    };
    try {
      if (!cuda::watched_wait(
              ended, [&] { look(); }, seconds_))
        control_.blame(fmt::format("nothing came for {:g} s", seconds_), "collective");
    } catch (...) {
      // An abort waits for the device, and a stream may wait for the flag of a lost rank.
      if (comm_ && !peers_->started()) nccl_.abort(comm_);
      comm_ = nullptr;
      throw;
    }
  }

  void check() override { look(); }
  void leave() override { left_ = true; }

  int64_t device_bytes() const override { return device_bytes_; }

 private:
  static int64_t free_bytes() {
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "memory info");
    return int64_t(free);
  }

  UniqueId exchange_id(const std::string& group) {
    UniqueId id{};
    std::string key = "nccl/" + group;
    if (rank() == 0) {
      check(nccl_.get_unique_id(&id), "start");
      control_.set(key, {id.bytes, sizeof id.bytes});
    } else {
      std::string text = control_.get(key, seconds_);
      if (text.size() != sizeof id.bytes) fail("rank 0 sent no identifier", "nccl");
      std::memcpy(id.bytes, text.data(), sizeof id.bytes);
    }
    return id;
  }

  // Of texts of one length.
  std::vector<std::string> gather(const std::string& own) {
    const size_t n = own.size();
    char* memory = nullptr;
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&memory), n * size_t(ranks_ + 1)), "memory of a gather");
    check_cuda(cudaMemcpyAsync(memory, own.data(), n, cudaMemcpyHostToDevice, stream_), "copy");
    all_gather(memory, memory + n, DType::u8, int64_t(n));
    std::string all(n * size_t(ranks_), '\0');
    check_cuda(cudaMemcpyAsync(all.data(), memory + n, all.size(), cudaMemcpyDeviceToHost, stream_), "copy");
    synchronize();
    cudaFree(memory);
    std::vector<std::string> list;
    for (int r = 0; r < ranks_; ++r) list.push_back(all.substr(n * size_t(r), n));
    return list;
  }

  // how: returns the maker of the communicator.
  template <class How>
  void connect(const How& how) {
    check_cuda(cudaSetDevice(device_), "selection of the device");
    int64_t free_before = free_bytes();
    check_cuda(cudaMalloc(&scratch_, sizeof(float)), "memory of the barrier");
    check_cuda(cudaMemset(scratch_, 0, sizeof(float)), "memory of the barrier");
    start(how());
    barrier();  // its first collective takes memory, too
    device_bytes_ = std::max<int64_t>(0, free_before - free_bytes());
  }

  void start(std::function<int(Comm*)> make) {
    auto s = std::make_shared<Start>();
    auto end = [s](int code, Comm comm) {
      std::lock_guard lock(s->mutex);
      s->ended = true, s->code = code, s->comm = comm;
      s->changed.notify_one();
    };
    auto connect = [end, make = std::move(make), device = device_] {
      Comm comm = nullptr;
      cudaSetDevice(device);
      int code = make(&comm);
      end(code, comm);
    };
    constexpr int internal_error = 3;
    Thread(connect, [end](auto&) { end(internal_error, nullptr); }).detach();
    // The first start on a machine may compile and take long: only then does waiting end.
    auto deadline = after(std::max(seconds_, 60.0));
    std::unique_lock lock(s->mutex);
    while (!s->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return s->ended; })) {
      control_.check("start of NCCL");
      if (Clock::now() > deadline) control_.blame("NCCL did not start", "start of NCCL");
    }
    comm_ = s->comm;
    check(s->code, "start of NCCL");
  }

  void look() {
    control_.check("collective");
    int error = 0;
    if (comm_) nccl_.async_error(comm_, &error);
    check(error, "collective");
  }

  void check(int code, const char* what) {
    if (code == 0) return;
    if (code == 6) control_.blame("a connection between two ranks broke", what);  // ncclRemoteError
    fail(fmt::format("NCCL: {}", nccl_.error_string(code)), what, "NCCL_DEBUG=WARN says more.");
  }

  const Nccl& nccl_;
  Control& control_;
  int rank_, ranks_, device_;
  double seconds_;
  cudaStream_t stream_ = nullptr;  // of whoever calls
  void* scratch_ = nullptr;
  Comm comm_ = nullptr;
  std::unique_ptr<cuda::PeerCopies> peers_ =
      std::make_unique<cuda::PeerCopies>(rank_, ranks_, [this](const std::string& own) { return gather(own); });
  int64_t device_bytes_ = 0;
  bool left_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Control& control, int ranks, const std::string& group,
                                                     const Device& device, double seconds) {
  return std::make_unique<NcclCommunicator>(control, ranks, group, device, seconds);
}

#endif

}  // namespace crest
