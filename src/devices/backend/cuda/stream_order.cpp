#include "backend/cuda/stream_order.h"

#include <algorithm>

#include "program/op.h"

namespace crest::cuda {

StreamOrder::StreamOrder(const BoundProgram& program, Streams& streams) : program_(program), streams_(streams) {
  size_t n = program.code.size();
  first_.assign(n, false), event_.assign(n, -1);
  std::array<int, stream_count> last{};
  last.fill(-1);
  for (size_t i = 0; i < n; ++i) {
    first_[i] = last[stream(i)] < 0;
    if (first_[i] && waits_of(i).empty() && stream(i) > 0) forked_.push_back(int(stream(i)));
    last[stream(i)] = int(i);
  }
  if (std::all_of(last.begin() + 1, last.end(), [](int i) { return i < 0; })) return;
  HappensBefore ordered(*program.program, program.waits ? *program.waits : Waits());
  for (int s = 1; s < stream_count; ++s) {
    int i = last[size_t(s)];
    if (i < 0) continue;
    bool waited = std::any_of(last.begin(), last.end(), [&](int j) { return i < j && ordered(i, j); });
    if (!waited) joined_.push_back(s);
  }
  events_ = stream_count;  // the start, and the end of every other stream
  for (size_t i = 0; i < n; ++i)
    for (int j : waits_of(i))
      if (event_[size_t(j)] < 0) event_[size_t(j)] = events_++;
}

const std::vector<int>& StreamOrder::waits_of(size_t i) const {
  static const std::vector<int> none;
  return program_.waits && !program_.waits->empty() ? (*program_.waits)[i] : none;
}

void StreamOrder::begin() {
  kernel_ = {};
  if (!forked_.empty()) streams_.record(0, 0);
  for (int s : forked_) streams_.wait(s, 0);
}

void StreamOrder::before(size_t i) {
  for (int j : waits_of(i)) {
    streams_.wait(int(stream(i)), event_[size_t(j)]);
    kernel_[stream(i)] = false;
  }
}

bool StreamOrder::follows_kernel(size_t i) const { return kernel_[stream(i)]; }

void StreamOrder::after(size_t i) {
  // Some instructions of class movement launch nothing (views).
  const OpDef& op = *program_.program->code[i].op;
  OpClass c = op.op_class;
  if (c == OpClass::communication || op.crosses_memories())
    kernel_[stream(i)] = false;
  else if (c != OpClass::movement)
    kernel_[stream(i)] = true;
  if (event_[i] >= 0) streams_.record(event_[i], int(stream(i)));
}

void StreamOrder::end() {
  for (int s : joined_) {
    streams_.record(s, s);
    streams_.wait(0, s);
  }
}

}  // namespace crest::cuda
