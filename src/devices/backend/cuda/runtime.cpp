#include "backend/cuda/runtime.h"

#if CREST_HAVE_CUDA
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>

#include "backend/cuda/cupti.h"
#include "backend/cuda/graph.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/ranges.h"
#include "backend/cuda/stream_order.h"
#include "backend/cuda/watched_wait.h"
#include "comm/mesh_groups.h"
#include "core/text.h"
#include "core/timer.h"
#include "host/memory.h"
#include "host/progress.h"
#include "program/op.h"

namespace crest::cuda {

namespace {

constexpr int slots = 8;  // of the ring between host and device
constexpr int64_t slot_bytes = 1 << 20;
constexpr int64_t later_bytes = 64 << 10;  // of pinned memory for small reads before a mark
constexpr int mark_places = 3;             // two marks to wait for, and the next one

[[noreturn]] void refuse_pinned(int64_t bytes, const std::string& why) {
  throw Error(Exit::does_not_fit,
              fmt::format("the system refused {} of pinned memory{}", format_bytes(double(bytes)), why), "--offload",
              "Use fewer ranks on this host, or --offload none.");
}

// Zeroed pages of the host, present before they are registered; null if the system refuses.
// cudaHostAlloc touches its pages with one thread: on an H200's host 4 GiB took 2.6 s, and 0.3 s
// this way.
void* touched_pages(int64_t bytes) {
  constexpr int64_t page = 4096;
  void* memory = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, size_t(bytes), MADV_HUGEPAGE);
  madvise(memory, size_t(bytes), MADV_DONTFORK);  // a child's copy would move the pages
  char* p = static_cast<char*>(memory);
#pragma omp parallel for
  for (int64_t at = 0; at < bytes; at += page) *static_cast<volatile char*>(p + at) = 0;
  return memory;
}

struct Event {
  cudaEvent_t event = nullptr;
  explicit Event(unsigned flags = cudaEventDisableTiming) { check(cudaEventCreateWithFlags(&event, flags), "event"); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
};

class GpuRuntime : public Runtime {
 public:
  GpuRuntime(const Device& device, const MeshGroups* groups, const RuntimeOptions& options)
      : device_(device), groups_(groups), options_(options) {
    if (options.ranges) ranges_.emplace();
    check(cudaSetDevice(device.index), "selection of the device");
    size_t total = 0;
    check(cudaMemGetInfo(&free_at_start_, &total), "memory info");
    // Collectives go first: they need few multiprocessors, and others wait for them. Gradients go
    // last: nothing else in their half waits for them.
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
    const int middle = std::max(greatest, least - 1);  // the greatest is the lowest number
    for (size_t s = 0; s < streams_.size(); ++s) {
      const int priority = s == size_t(Stream::comm) ? greatest : s == size_t(Stream::gradients) ? least : middle;
      check(cudaStreamCreateWithPriority(&streams_[s], cudaStreamNonBlocking, priority), "stream");
    }
    for (auto& e : slot_events_) e = std::make_unique<Event>();
    for (auto& r : reads_) r.event = std::make_unique<Event>();
    check(cudaMallocHost(reinterpret_cast<void**>(&ring_), size_t(slots * slot_bytes + mark_places * later_bytes)),
          "pinned memory");
    for (int i = 0; i < mark_places; ++i) reads_[size_t(i)].memory = ring_ + slots * slot_bytes + i * later_bytes;
  }
  ~GpuRuntime() override {
    if (!settle()) return;
    for (auto s : streams_) cudaStreamDestroy(s);
    cudaFreeHost(ring_);
  }

  void* allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    activate();
    void* p = nullptr;
    if (cudaError_t code = cudaMalloc(&p, size_t(bytes)); code == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // the error is not sticky
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      throw Error(Exit::does_not_fit,
                  fmt::format("the GPU refused {}: {} of {} are free", format_bytes(double(bytes)),
                              format_bytes(double(free)), format_bytes(double(total))),
                  device_.name, "Use a smaller --batch or --recompute, or end what else uses this GPU.");
    } else {
      check(code, "cudaMalloc");
    }
    allocated_ += bytes;
    check(cudaMemsetAsync(p, 0, size_t(bytes), main()), "memset");
    return p;
  }
  void release(void* memory, int64_t bytes) override {
    if (!memory) return;
    allocated_ -= bytes;
    if (settle() && unmapped_by_others(memory)) cudaFree(memory);
  }
  void* allocate_host(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    activate();
    if (const int64_t available = available_memory_bytes(); available > 0 && bytes > available)
      refuse_pinned(bytes, fmt::format(": {} are available", format_bytes(double(available))));
    void* p = touched_pages(bytes);
    const bool registered = p && cudaHostRegister(p, size_t(bytes), cudaHostRegisterDefault) == cudaSuccess;
    if (!registered) {     // some drivers and sandboxes refuse
      cudaGetLastError();  // the error is not sticky
      if (p) munmap(p, size_t(bytes));
      const cudaError_t code = cudaHostAlloc(&p, size_t(bytes), cudaHostAllocDefault);
      if (code == cudaErrorMemoryAllocation) cudaGetLastError(), refuse_pinned(bytes, "");
      check(code, "cudaHostAlloc");
      std::memset(p, 0, size_t(bytes));
    }
    pinned_.push_back({static_cast<char*>(p), bytes, registered});
    return p;
  }
  void release_host(void* memory, int64_t bytes) override {
    if (!memory) return;
    const auto block = std::find_if(pinned_.begin(), pinned_.end(), [&](auto& b) { return b.begin == memory; });
    const bool registered = block != pinned_.end() && block->registered;
    if (block != pinned_.end()) pinned_.erase(block);
    if (!settle()) return;
    if (!registered) {
      cudaFreeHost(memory);
      return;
    }
    cudaHostUnregister(memory);
    munmap(memory, size_t(bytes));
  }
  bool host_memory() const override { return false; }

  // Through a ring of pinned slots: the caller's memory is free again at once, and the copy waits
  // in the stream.
  void write(void* to, const void* from, int64_t bytes) override {
    activate();
    if (is_pinned(to)) {
      finish(main(), "work of the GPU");
      std::memcpy(to, from, size_t(bytes));
      return;
    }
    for (int64_t done = 0; done < bytes;) {
      int64_t n = std::min(slot_bytes, bytes - done);
      char* slot = next_slot();
      std::memcpy(slot, static_cast<const char*>(from) + done, size_t(n));
      check(cudaMemcpyAsync(static_cast<char*>(to) + done, slot, size_t(n), cudaMemcpyHostToDevice, main()), "copy");
      check(cudaEventRecord(slot_events_[size_t(slot_)]->event, main()), "event");
      done += n;
    }
  }
  void read(void* to, const void* from, int64_t bytes) override {
    activate();
    if (is_pinned(from)) {
      finish(main(), "work of the GPU");
      std::memcpy(to, from, size_t(bytes));
      return;
    }
    for (int64_t done = 0; done < bytes;) {
      int64_t n = std::min(slot_bytes, bytes - done);
      char* slot = next_slot();
      check(cudaMemcpyAsync(slot, static_cast<const char*>(from) + done, size_t(n), cudaMemcpyDeviceToHost, main()),
            "copy");
      finish(main(), "copy to the host");
      std::memcpy(static_cast<char*>(to) + done, slot, size_t(n));
      done += n;
    }
  }
  void read_later(void* to, const void* from, int64_t bytes) override {
    activate();
    Reads& reads = reads_of(next_mark_);
    auto& list = reads.list;
    int64_t begin = list.empty() ? 0 : (list.back().offset + list.back().bytes + 63) / 64 * 64;
    if (begin + bytes > later_bytes) fail_internal("too many reads wait", "runtime");
    check(cudaMemcpyAsync(reads.memory + begin, from, size_t(bytes), cudaMemcpyDeviceToHost, main()), "copy");
    list.push_back({to, begin, bytes});
  }
  Mark mark() override {
    activate();
    Mark made = next_mark_++;
    check(cudaEventRecord(reads_of(made).event->event, main()), "event");
    if (next_mark_ > mark_places) wait(next_mark_ - mark_places);  // the place of the next reads is free
    return made;
  }
  void wait(Mark mark) override {
    if (mark < first_mark_) return;
    activate();
    for (; first_mark_ <= mark; ++first_mark_) {
      finish(*reads_of(first_mark_).event, "work of the GPU");
      reads_of(first_mark_).arrive();
    }
  }
  bool reached(Mark mark) override {
    if (mark < first_mark_) return true;
    cudaError_t code = cudaEventQuery(reads_of(mark).event->event);
    if (code == cudaErrorNotReady) return false;
    check(code, "work of the GPU");
    return true;
  }
  void stamp() override {
    activate();
    if (stamped_ == stamps_.size()) stamps_.push_back(std::make_unique<Event>(cudaEventDefault));
    check(cudaEventRecord(stamps_[stamped_++]->event, main()), "event");
  }
  std::vector<double> take_stamps() override {
    synchronize();
    const double now = steady_seconds();
    std::vector<double> times;
    for (size_t i = 0; i < stamped_; ++i) times.push_back(now - elapsed(*stamps_[i], *stamps_[stamped_ - 1]));
    stamped_ = 0;
    return times;
  }
  void zero(void* to, int64_t bytes) override {
    activate();
    if (is_pinned(to)) {
      finish(main(), "work of the GPU");
      std::memset(to, 0, size_t(bytes));
      return;
    }
    check(cudaMemsetAsync(to, 0, size_t(bytes), main()), "memset");
  }
  void synchronize() override {
    activate();
    finish(main(), "work of the GPU");
    if (!recorded_.empty()) {
      assign_work(Cupti::get().take(), recorded_);
      recorded_.clear();
    }
    for (; first_mark_ <= next_mark_; ++first_mark_) reads_of(first_mark_).arrive();
    first_mark_ = next_mark_;
  }

  KernelCall call(const BoundProgram& p, size_t i) override {
    const BoundInstr& b = p.code[i];
    const Instr& instr = p.program->code[i];
    return {*p.program,      instr,       b.in.data(),
            b.out.data(),    b.workspace, b.prepared.get(),
            device_.threads, groups_,     streams_[size_t(instr.stream)],
            &device_};
  }

  // With graphs: the first run launches one by one (modules load lazily, and a capture does not
  // allow this), the second is captured.
  void run(BoundProgram& p, StepTrace* trace) override {
    activate();
    if (trace && !recording_) return run_traced(p, *trace);
    if (p.runs++ == 0 || !options_.graphs) {
      if (trace) fail_internal("the first run of a Program cannot be recorded", "runtime");
      Launches launches(*this, p, options_.overlap);
      launches.order.begin();
      for (size_t i = 0; i < p.code.size(); ++i) launches.launch(i);
      launches.order.end();
      return;
    }
    if (!p.replay) p.replay = std::make_shared<Replays>();
    auto& replays = *static_cast<Replays*>(p.replay.get());
    auto& graph = recording_ ? replays.recorded : replays.plain;
    if (!graph) graph = capture(p);
    if (recording_) {
      if (replays.nodes.empty()) replays.nodes = node_map(*graph, *p.program);
      recorded_.push_back({&replays.nodes, p.code.size(), trace});
    }
    graph->replay(main());
    expect_end();
  }

  // Records name their graph node: without graphs their owner is unknown.
  bool record_work(bool on) override {
    if (!options_.graphs) return false;
    if (on == recording_) return true;
    synchronize();
    Cupti::get().record(on);
    if (on) Cupti::get().take();  // of other work in this process
    recording_ = on;
    return true;
  }

  void push_range(const std::string& name) override {
    if (ranges_) ranges_->push(name);
  }
  void pop_range() override {
    if (ranges_) ranges_->pop();
  }

  int64_t other_bytes() const override {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
    return int64_t(free_at_start_) - int64_t(free) - allocated_;
  }

 private:
  // Memory from allocate_host(). Copies between it and the device end before main()'s next ones.
  struct Pinned {
    char* begin;
    int64_t bytes;
    bool registered;  // else from cudaHostAlloc
  };
  bool is_pinned(const void* p) const {
    auto* c = static_cast<const char*>(p);
    return std::any_of(pinned_.begin(), pinned_.end(), [&](auto& b) { return b.begin <= c && c < b.begin + b.bytes; });
  }

  struct Read {
    void* to;
    int64_t offset, bytes;
  };
  // Small reads up to a mark: into `memory`, and from there to where they were wanted.
  struct Reads {
    std::unique_ptr<Event> event;
    char* memory = nullptr;
    std::vector<Read> list;
    void arrive() {
      for (auto& r : list) std::memcpy(r.to, memory + r.offset, size_t(r.bytes));
      list.clear();
    }
  };
  Reads& reads_of(Mark mark) { return reads_[size_t(mark % mark_places)]; }

  // A graph captured while records were on may carry recording nodes, so it is not used for
  // anything else.
  struct Replays {
    std::unique_ptr<Graph> plain, recorded;
    NodeMap nodes;  // of `recorded`
  };
  std::unique_ptr<Graph> capture(BoundProgram& p) {
    Launches launches(*this, p, options_.overlap);
    return std::make_unique<Graph>(
        main(), p.code.size(), [&] { launches.order.begin(); }, [&](size_t i) { launches.launch(i); },
        [&] { launches.order.end(); }, [this] { return settle(); });
  }
  static NodeMap node_map(const Graph& graph, const Program& program) {
    NodeMap map;
    for (size_t i = 0; i < program.code.size(); ++i)
      for (size_t n = graph.first_node(i); n < graph.first_node(i + 1); ++n)
        if (graph.makes_work(n)) map[Cupti::get().id_of(graph.nodes()[n])] = {int(i), int(program.code[i].stream)};
    return map;
  }

  // Launches the instructions of a Program on their CUDA streams, in its order.
  struct Launches : Streams {
    Launches(GpuRuntime& runtime, BoundProgram& program, bool overlap)
        : order(program, *this), r(runtime), p(program), overlaps(overlap && runtime.device_.sm >= 90) {
      while (r.order_events_.size() < size_t(order.events())) r.order_events_.push_back(std::make_unique<Event>());
    }
    void record(int event, int stream) override {
      check(cudaEventRecord(r.order_events_[size_t(event)]->event, r.streams_[size_t(stream)]), "event");
    }
    void wait(int stream, int event) override {
      check(cudaStreamWaitEvent(r.streams_[size_t(stream)], r.order_events_[size_t(event)]->event, 0), "event");
    }
    // With `started`, records it when the instruction may start.
    void launch(size_t i, Event* started = nullptr) {
      const Instr& instr = p.program->code[i];
      order.before(i);
      if (started) check(cudaEventRecord(started->event, r.streams_[size_t(instr.stream)]), "event");
      KernelCall call = r.call(p, i);
      call.overlap = overlaps && order.follows_kernel(i);
      if (r.ranges_) r.ranges_->push(range_name(p.code[i].kernel->name, instr.origin.text()));
      p.code[i].kernel->launch(call);
      count_progress();
      if (r.ranges_) r.ranges_->pop();
      order.after(i);
    }

    StreamOrder order;
    GpuRuntime& r;
    BoundProgram& p;
    bool overlaps;
  };

  // An instruction starts when the one before it on its stream ends or, where it waits for another
  // stream, when it has waited: both times are of its own stream.
  void run_traced(BoundProgram& p, StepTrace& trace) {
    size_t n = p.code.size();
    auto timed = [] { return std::make_shared<Event>(cudaEventDefault); };
    auto first = timed(), last = timed();
    std::vector<std::shared_ptr<Event>> starts(n), ends(n);
    std::array<std::shared_ptr<Event>, stream_count> before;
    Launches launches(*this, p, false);  // each is timed alone
    check(cudaEventRecord(first->event, main()), "event");
    launches.order.begin();
    for (size_t i = 0; i < n; ++i) {
      auto stream = size_t(p.program->code[i].stream);
      bool waits = launches.order.waits(i);
      starts[i] = waits ? timed() : before[stream];
      launches.launch(i, waits ? starts[i].get() : nullptr);
      before[stream] = ends[i] = timed();
      check(cudaEventRecord(ends[i]->event, streams_[stream]), "event");
    }
    launches.order.end();
    check(cudaEventRecord(last->event, main()), "event");
    // The last event of another stream is behind the one the main stream waits for.
    for (auto stream : streams_) finish(stream, "work of the GPU");
    double host_seconds = steady_seconds();
    trace.seconds.assign(n, 0);
    trace.starts.assign(n, 0);
    trace.total = elapsed(*first, *last);
    trace.start = host_seconds - trace.total;
    for (size_t i = 0; i < n; ++i) {
      trace.starts[i] = trace.start + elapsed(*first, *starts[i]);
      trace.seconds[i] = elapsed(*starts[i], *ends[i]);
    }
    ++p.runs;
  }

  // The end of a replayed Program is progress: without any, the watchdog ends a rank that waits
  // for a kernel forever. The host looks at as many Programs as there are events.
  void expect_end() {
    if (!groups_) return;
    count_ends();
    if (last_end_ - first_end_ == ends_.size()) return;
    auto& event = ends_[last_end_ % ends_.size()];
    if (!event) event = std::make_unique<Event>();
    check(cudaEventRecord(event->event, main()), "event");
    ++last_end_;
  }
  void count_ends() {
    for (; first_end_ < last_end_; ++first_end_) {
      if (cudaEventQuery(ends_[first_end_ % ends_.size()]->event) != cudaSuccess) return;
      count_progress();
    }
  }

  // Waits for a stream or an event. With other ranks the host looks whether they are there.
  void finish(cudaStream_t stream, const char* what) {
    if (!groups_) return check(cudaStreamSynchronize(stream), what);
    watch([&] { return cudaStreamQuery(stream); }, what);
  }
  void finish(const Event& event, const char* what) {
    if (!groups_) return check(cudaEventSynchronize(event.event), what);
    watch([&] { return cudaEventQuery(event.event); }, what);
  }
  template <class Query>
  bool watch(const Query& query, const char* what, std::optional<double> seconds = {}) {
    auto ended = [&] {
      cudaError_t code = query();
      if (code != cudaErrorNotReady) check(code, what);
      return code == cudaSuccess;
    };
    try {
      return watched_wait(
          ended,
          [&] {
            count_ends();
            groups_->check();
          },
          seconds);
    } catch (const PeerLost&) {
      abandon();
      throw;
    }
  }

  // Before memory goes: waits for the work. False if it never ends, because another rank is gone or
  // this one fails before it has queued its part.
  bool settle() {
    if (abandoned_) return false;
    constexpr double seconds_of_a_failure = 1;
    std::optional<double> limit;
    if (std::uncaught_exceptions() > 0) limit = seconds_of_a_failure;
    for (auto stream : streams_) {
      if (!groups_) {
        cudaStreamSynchronize(stream);
        continue;
      }
      try {
        if (watch([&] { return cudaStreamQuery(stream); }, "work of the GPU", limit)) continue;
      } catch (const std::exception&) {
      }
      abandon();
      return false;
    }
    return true;
  }

  // False: another rank is gone. A rank that fails does not wait for the others.
  bool unmapped_by_others(const void* memory) {
    if (!groups_) return true;
    try {
      groups_->released(memory, std::uncaught_exceptions() == 0);
      return true;
    } catch (const std::exception&) {
      abandon();
      return false;
    }
  }

  // The process ends without waiting for the device: neither here nor in the exit code of CUDA's
  // libraries.
  void abandon() {
    if (abandoned_) return;
    abandoned_ = true;
    groups_->leave();
    static std::once_flag once;
    std::call_once(once, [] {
      on_exit(
          [](int code, void*) {
            std::fflush(nullptr);
            _exit(code);
          },
          nullptr);
    });
  }

  static double elapsed(const Event& from, const Event& to) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, from.event, to.event), "event time");
    return double(ms) * 1e-3;
  }
  void activate() { check(cudaSetDevice(device_.index), "selection of the device"); }
  cudaStream_t main() const { return streams_[0]; }
  char* next_slot() {
    slot_ = (slot_ + 1) % slots;
    finish(*slot_events_[size_t(slot_)], "copy to the GPU");
    return ring_ + slot_ * slot_bytes;
  }

  const Device& device_;
  const MeshGroups* groups_;
  RuntimeOptions options_;
  std::optional<Ranges> ranges_;
  size_t free_at_start_ = 0;
  int64_t allocated_ = 0;
  std::array<cudaStream_t, stream_count> streams_ = {};
  std::vector<std::unique_ptr<Event>> order_events_;  // of StreamOrder, by number
  std::array<std::unique_ptr<Event>, slots> slot_events_;
  char* ring_ = nullptr;
  int64_t slot_ = 0;
  std::array<Reads, mark_places> reads_;
  std::array<std::unique_ptr<Event>, 64> ends_;  // of replayed Programs
  size_t first_end_ = 0, last_end_ = 0;
  std::vector<std::unique_ptr<Event>> stamps_;  // reused
  size_t stamped_ = 0;
  Mark first_mark_ = 1, next_mark_ = 1;  // the oldest without a wait, and the next one
  std::vector<Pinned> pinned_;
  bool recording_ = false;
  bool abandoned_ = false;          // some work never ends
  std::vector<GraphRun> recorded_;  // since the last synchronize()
};

}  // namespace

std::unique_ptr<Runtime> make_runtime(const Device& device, const MeshGroups* groups, const RuntimeOptions& options) {
  return std::make_unique<GpuRuntime>(device, groups, options);
}

void check(int code, const char* what) {
  if (code == cudaSuccess) return;
  auto error = static_cast<cudaError_t>(code);
  throw Error(Exit::failed, fmt::format("{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)), "GPU",
              error == cudaErrorMemoryAllocation
                  ? "The GPU has too little free memory for what Crest needs besides its plan: use a smaller --batch."
                  : "The GPU or its driver stopped this process; checkpoints written before are whole (--resume). See "
                    "dmesg and nvidia-smi -q for the cause.");
}

}  // namespace crest::cuda
#endif
