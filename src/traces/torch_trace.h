// Reads what PyTorch's profiler exports (prof.export_chrome_trace): device kernels and copies, or on a CPU-only trace
// the operations themselves, by training step, with an operation class and, where autograd says so, a phase each.
// Described in docs/guides/traces.md.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "profile/profile.h"

namespace crest {

// A kernel, copy or memset of a GPU; on a CPU-only trace a stretch in which an operation ran itself, not those it
// calls.
struct TorchWork {
  int name = 0;          // row of TorchTrace::names: the kernel, on a CPU the operation
  int64_t launch = 0;    // the same for all stretches of one call of an operation
  std::string op_class;  // program/op.h, or "other"
  std::string phase;     // forward, backward, update, or "unknown" without autograd's marks
  int stream = 0;        // CUDA stream, on a CPU a number of the thread
  double start_ms = 0, ms = 0;
};

// Between two calls of prof.step(), or the whole trace when there are none.
struct TorchStep {
  std::string name;  // "ProfilerStep#5"
  // On a GPU from the first piece of its work to that of the next step, so that the last one is left out unless it is
  // alone: then it ends with its work. On a CPU the step's own marks. busy is the union of all work, idle the rest.
  double start_ms = 0, span_ms = 0, busy_ms = 0, idle_ms = 0;
  std::vector<TorchWork> work;  // in order of start
};

struct TorchTrace {
  std::string file;
  std::string device;  // name of the GPU, "" when the trace does not tell
  bool gpu = false;    // has device work
  std::vector<std::string> names;
  std::vector<TorchStep> steps;
  int64_t events = 0;     // in the file
  double outside_ms = 0;  // work that belongs to no step
};

// The file, packed with gzip or not, is read as a stream: memory grows with the number of operations and kernels, not
// with the file's size. Throws for what is no such trace, is damaged, or beyond the caps (8 GiB, 20 million kept
// events).
TorchTrace read_torch_trace(const std::string& path);

// A row for every operation class and phase, with its kernels beneath, of the step nearest to the median. There is no
// recipe, no cost and no memory in it.
Profile profile_of(const TorchTrace& trace);

}  // namespace crest
