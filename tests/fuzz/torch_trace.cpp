// Any bytes as a PyTorch trace: a clear error, or steps whose times add up and a Profile whose rows fit together.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "measure/torch_trace.h"

static void check(bool condition) {
  if (!condition) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace crest;
  static const int fd = ::memfd_create("trace", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  check(::ftruncate(fd, 0) == 0 && ::pwrite(fd, data, size, 0) == ssize_t(size));
  try {
    TorchTrace trace = read_torch_trace(path);
    check(!trace.steps.empty());
    for (auto& s : trace.steps) {
      check(!s.work.empty() && s.busy_ms >= 0 && std::isfinite(s.span_ms));
      check(s.busy_ms <= s.span_ms * (1 + 1e-6) + 1e-3);
      double last = s.work[0].start_ms;
      for (auto& w : s.work) {
        check(w.ms >= 0 && w.start_ms >= last && size_t(w.name) < trace.names.size());
        last = w.start_ms;
      }
    }
    Profile p = profile_of(trace);
    for (auto& k : p.kernels) check(k.instr >= 0 && size_t(k.instr) < p.instrs.size() && k.min_ms <= k.max_ms);
    for (auto& i : p.intervals) check(i.instr == p.kernels[size_t(i.kernel)].instr);
  } catch (const Error&) {
  }
  return 0;
}
