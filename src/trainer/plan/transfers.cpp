#include "plan/transfers.h"

#include <algorithm>
#include <array>
#include <vector>

#include "program/op.h"

namespace crest {

// When the last instruction ends. Each starts when its stream and its waits have ended.
static double end_of(const CompiledProgram& c, const std::function<double(size_t)>& seconds) {
  std::vector<double> ends(c.program.code.size());
  std::array<double, stream_count> free = {};
  for (size_t i = 0; i < ends.size(); ++i) {
    // Two kernels at once take about as long as in series.
    const Stream own = c.program.code[i].stream;
    double& stream = free[size_t(own == Stream::gradients ? Stream::compute : own)];
    double start = stream;
    if (!c.waits.empty())
      for (int w : c.waits[i]) start = std::max(start, ends[size_t(w)]);
    ends[i] = stream = start + seconds(i);
  }
  return *std::max_element(free.begin(), free.end());
}

double exposed_transfers(const CompiledProgram& c, const std::function<double(size_t instr)>& seconds, double link) {
  auto time = [&](size_t i, bool transfers) {
    const Instr& instr = c.program.code[i];
    if (!instr.op->crosses_memories()) return seconds(i);
    return transfers ? instr.op->cost(c.program, instr).bytes() / link : 0;
  };
  return end_of(c, [&](size_t i) { return time(i, true); }) - end_of(c, [&](size_t i) { return time(i, false); });
}

}  // namespace crest
