// The executor's view of a device: memory, copies in order with the work, and running bound
// Programs.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "program/waits.h"

namespace crest {

// A piece of work reported by the device itself: a kernel, a copy, a memset.
struct DeviceWork {
  std::string name;      // demangled
  int instruction = -1;  // its instruction; -1: none (copies of inputs)
  int stream = 0;
  double start = 0, seconds = 0;
};

// One run of a Program, measured; row i is instruction i. Starts are in seconds on a clock shared
// by all traces of a step.
struct StepTrace {
  std::vector<double> seconds, starts;
  double start = 0, total = 0;
  // With Runtime::record_work: the work, in order of start; seconds[i] is then the sum of
  // instruction i's work. Filled by the next synchronize().
  std::vector<DeviceWork> work;
};

struct BoundInstr {
  const Kernel* kernel = nullptr;
  std::vector<void*> in, out;
  void* workspace = nullptr;
  std::shared_ptr<void> prepared;
};

// A Program with kernels and addresses; `replay` holds a runtime's means to repeat it (a captured
// graph).
struct BoundProgram {
  const Program* program = nullptr;
  const Waits* waits = nullptr;  // between streams
  std::vector<BoundInstr> code;
  std::shared_ptr<void> replay;
  int runs = 0;
};

// How a Program's work is put on a GPU; the CPU has nothing of the kind.
struct RuntimeOptions {
  bool graphs = true;   // a captured graph from the second run on, or always kernel by kernel
  bool overlap = true;  // a kernel may begin while the one before it runs, if the device can
  bool ranges = false;  // names launches for watching tools
};

// The memory and the order of work of one device. Used by one thread at a time.
class Runtime {
 public:
  virtual ~Runtime() = default;
  // Zeroed memory, aligned to 256 bytes or more. Throws does_not_fit.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory, int64_t bytes) = 0;
  // Zeroed memory of the host for the device's copies. read, write and zero accept it, too. Throws
  // does_not_fit.
  virtual void* allocate_host(int64_t bytes) { return allocate(bytes); }
  virtual void release_host(void* memory, int64_t bytes) { release(memory, bytes); }
  // Whether the host may use addresses of this memory itself.
  virtual bool host_memory() const = 0;
  // Copies between host and device memory, ordered after all work before them. `from` of a write
  // may be reused at once; a read has arrived on return.
  virtual void write(void* to, const void* from, int64_t bytes) = 0;
  virtual void read(void* to, const void* from, int64_t bytes) = 0;
  // A small read (at most 4 KiB) in order with the work, without waiting: it has arrived after the
  // next synchronize(), or after wait() for a mark made since.
  virtual void read_later(void* to, const void* from, int64_t bytes) = 0;
  // A point after all work queued so far. The last two marks can be waited for; a device with
  // synchronous calls needs none.
  using Mark = uint64_t;
  virtual Mark mark() { return 0; }
  virtual void wait(Mark) {}
  // Whether all work before the mark is done, without waiting.
  virtual bool reached(Mark) { return true; }
  // A point in time: when all work queued so far is done. take_stamps() waits for them and returns
  // those since its last call, in seconds. Differences are exact. On a GPU the last one counts as
  // now, by steady_seconds().
  virtual void stamp() = 0;
  virtual std::vector<double> take_stamps() = 0;
  virtual void zero(void* to, int64_t bytes) = 0;
  // Runs every instruction: in the order of its stream, and after the instructions it waits for.
  // With a trace each instruction is timed on its own, unless record_work is on. The trace must
  // stay where it is until synchronize().
  virtual void run(BoundProgram& program, StepTrace* trace) = 0;
  // One instruction's call, outside of a Program's run (for tuning).
  virtual KernelCall call(const BoundProgram& program, size_t instruction) = 0;
  // Waits for all work; throws its error.
  virtual void synchronize() = 0;
  // On: traces are filled from the device's own records while the Program runs as it always does (a
  // replayed graph). False: this runtime has no such records. Throws when they should be there but
  // are not (library, permission).
  virtual bool record_work(bool) { return false; }
  // RuntimeOptions::ranges: launches of the calling thread up to pop_range() belong to `name`.
  // Ranges nest.
  virtual void push_range(const std::string& name) { (void)name; }
  virtual void pop_range() {}
  // Bytes of device memory taken besides allocate():
  // context, code, library handles, graphs.
  virtual int64_t other_bytes() const { return 0; }
};

// The device and the groups (null: this is the only rank) must outlive the runtime.
std::unique_ptr<Runtime> make_runtime(const Device& device, const MeshGroups* groups,
                                      const RuntimeOptions& options = {});
std::unique_ptr<Runtime> make_runtime(Device&&, const MeshGroups*, const RuntimeOptions& = {}) = delete;

class RangeScope {
 public:
  RangeScope(Runtime& runtime, const std::string& name) : runtime_(runtime) { runtime_.push_range(name); }
  ~RangeScope() { runtime_.pop_range(); }
  RangeScope(const RangeScope&) = delete;
  RangeScope& operator=(const RangeScope&) = delete;

 private:
  Runtime& runtime_;
};

// A tensor in a runtime's memory.
struct TensorRef {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape = {};
  Runtime* runtime = nullptr;

  int64_t bytes() const { return shape.numel() * int64_t(size_of(dtype)); }
  bool on_host() const { return !runtime || runtime->host_memory(); }
  // The first `count` bytes (all by default).
  void read(void* to, int64_t count = -1) const { runtime->read(to, data, count < 0 ? bytes() : count); }
  void read_later(void* to) const { runtime->read_later(to, data, bytes()); }
  void write(const void* from, int64_t count = -1) const { runtime->write(data, from, count < 0 ? bytes() : count); }
  // The first `count` elements (all by default), converted.
  std::vector<float> floats(int64_t count = -1) const;
  // Writes floats.size() elements, rounded to the dtype, and zeros behind them.
  void set_floats(const float* from, int64_t count) const;
};

}  // namespace crest
