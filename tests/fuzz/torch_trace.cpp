// Any bytes as a PyTorch trace: a clear error, or steps with consistent times and a Profile with
// consistent rows.
#include "traces/torch_trace.h"

#include <cmath>

#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

static void fuzz_torch_trace(std::string_view text) {
  or_error([&] {
    TorchTrace trace = read_torch_trace(as_file(text));
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
  });
}
CREST_FUZZ_TARGET(fuzz_torch_trace)
