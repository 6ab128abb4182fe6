// Reads the export of PyTorch's profiler (prof.export_chrome_trace): device kernels and copies, or
// the operations of a CPU-only trace, by training step. Each has an operation class and, if
// autograd marks it, a phase. Described in docs/reference/traces.md.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "profile/profile.h"

namespace crest {

// A kernel, copy or memset on a GPU. In a CPU-only trace, an interval of an operation's own work,
// without inner operations.
struct TorchWork {
  int name = 0;          // row of TorchTrace::names: kernel, or operation on a CPU
  int64_t launch = 0;    // the same for all intervals of one call of an operation
  std::string op_class;  // program/op.h, or "other"
  std::string phase;     // forward, backward, update, or "unknown" without autograd's marks
  int stream = 0;        // CUDA stream; on a CPU a thread number
  double start_ms = 0, ms = 0;
};

// The time between two calls of prof.step(), or the whole trace without such calls.
struct TorchStep {
  std::string name;  // "ProfilerStep#5"
  // On a GPU, from the start of its work to the start of the next step's work. The last step is
  // omitted, unless it is the only one; then it ends with its work. On a CPU, between the step's
  // marks. busy is the union of all work, idle the rest.
  double start_ms = 0, span_ms = 0, busy_ms = 0, idle_ms = 0;
  std::vector<TorchWork> work;  // in order of start
};

struct TorchTrace {
  std::string file;
  std::string device;  // name of the GPU; "" if not in the trace
  bool gpu = false;    // has device work
  std::vector<std::string> names;
  std::vector<TorchStep> steps;
  int64_t events = 0;     // in the file
  double outside_ms = 0;  // work outside all steps
};

// Streams the file, gzip or plain: memory grows with the number of operations and kernels, not with
// the file size. Throws for other files, damaged files, and above the limits (8 GiB, 20 million
// kept events).
TorchTrace read_torch_trace(const std::string& path);

// The step nearest to the median, with a row per operation class and phase, and its kernels.
// Without recipe, costs and memory.
Profile profile_of(const TorchTrace& trace);

}  // namespace crest
