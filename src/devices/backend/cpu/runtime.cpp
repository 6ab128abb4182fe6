#include "backend/cpu/runtime.h"

#include <omp.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <utility>

#include "backend/cpu/common.h"
#include "backend/cpu/stream_threads.h"
#include "comm/comm.h"
#include "comm/mesh_groups.h"
#include "core/error.h"
#include "core/text.h"
#include "core/timer.h"
#include "host/progress.h"
#include "program/op.h"

namespace crest {

namespace {

size_t mapped_bytes(int64_t bytes) { return size_t((bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20)); }

class HostRuntime : public Runtime {
 public:
  HostRuntime(const Device& device, const MeshGroups* groups) : device_(device), groups_(groups) {}

  // Pages are zero at first; large blocks ask for huge pages.
  void* allocate(int64_t bytes) override {
    size_t mapped = mapped_bytes(bytes);
    if (mapped == 0) return nullptr;
    void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      throw Error(Exit::does_not_fit, "the system refused " + format_bytes(double(bytes)), "out of memory",
                  "Use a smaller --batch, --recompute, or a smaller model.");
    if (mapped >= (8 << 20)) madvise(p, mapped, MADV_HUGEPAGE);
    return p;
  }
  void release(void* memory, int64_t bytes) override {
    if (memory) munmap(memory, mapped_bytes(bytes));
  }
  bool host_memory() const override { return true; }
  // The first thread to touch a page decides its
  // socket, so the threads share large memory.
  void write(void* to, const void* from, int64_t bytes) override {
    int threads = cpu::threads_for(device_.threads, bytes, 4 << 20);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; ++t) {
      int64_t begin = cpu::part_begin(bytes, t, threads), end = cpu::part_begin(bytes, t + 1, threads);
      std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, size_t(end - begin));
    }
  }
  void read(void* to, const void* from, int64_t bytes) override { std::memcpy(to, from, size_t(bytes)); }
  void read_later(void* to, const void* from, int64_t bytes) override { read(to, from, bytes); }
  void stamp() override { stamps_.push_back(steady_seconds()); }
  std::vector<double> take_stamps() override { return std::exchange(stamps_, {}); }
  void synchronize() override {}
  void zero(void* to, int64_t bytes) override { std::memset(to, 0, size_t(bytes)); }

  KernelCall call(const BoundProgram& p, size_t i) override {
    const BoundInstr& b = p.code[i];
    return {*p.program,       p.program->code[i], b.in.data(), b.out.data(), b.workspace,
            b.prepared.get(), device_.threads,    groups_,     nullptr,      &device_};
  }

  // The compute stream is the calling thread; others have a thread of their own.
  void run(BoundProgram& p, StepTrace* trace) override {
    omp_set_num_threads(device_.threads);  // also between steps: teams have one size (threads_for)
    size_t n = p.code.size();
    if (trace) {
      trace->seconds.assign(n, 0);
      trace->starts.assign(n, 0);
      trace->start = steady_seconds();
    }
    if (!p.waits || p.waits->empty()) {
      double before = trace ? trace->start : 0;
      for (size_t i = 0; i < n; ++i) before = launch(p, i, trace, before, true);
    } else {
      const double waited = threads_.run(*p.program, *p.waits, [&](size_t i) {
        const bool computes = p.program->code[i].stream == Stream::compute;
        launch(p, i, trace, trace ? steady_seconds() : 0, computes);
      });
      if (groups_) groups_->waited(waited);
    }
    if (trace) trace->total = steady_seconds() - trace->start;
  }

 private:
  // Returns its end time, if measured. computes: the computation waits for it.
  double launch(BoundProgram& p, size_t i, StepTrace* trace, double start, bool computes) {
    if (groups_) groups_->check();
    const bool communicates = groups_ && computes && p.program->code[i].op->op_class == OpClass::communication;
    const double before = communicates ? steady_seconds() : 0;
    p.code[i].kernel->launch(call(p, i));
    if (communicates) groups_->waited(steady_seconds() - before);
    count_progress();
    if (!trace) return 0;
    double end = steady_seconds();
    trace->starts[i] = start, trace->seconds[i] = end - start;
    return end;
  }

  const Device& device_;
  const MeshGroups* groups_;
  cpu::StreamThreads threads_;
  std::vector<double> stamps_;
};

}  // namespace

std::unique_ptr<Runtime> make_host_runtime(const Device& device, const MeshGroups* groups) {
  return std::make_unique<HostRuntime>(device, groups);
}

void forget_pages(void* memory, int64_t bytes) {
  if (memory) madvise(memory, mapped_bytes(bytes), MADV_DONTNEED);
}

}  // namespace crest
