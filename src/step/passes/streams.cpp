// Collectives on the communication stream start as early as possible: right after the last access
// to their memory. On the compute stream they stay in place. If ranks also communicate inside
// layers, all collectives are on one stream: two concurrent NCCL collectives can deadlock
// (NVIDIA/nccl #195).
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "program/op.h"
#include "program/placements.h"
#include "program/waits.h"

namespace crest {

namespace {

bool share_memory(const std::vector<Access>& a, const std::vector<Access>& b) {
  for (auto& x : a)
    for (auto& y : b)
      if (overlap(x, y)) return true;
  return false;
}

void start_early(Program& program) {
  Accesses accesses = accesses_by_storage(program);
  auto early = [&](size_t i) {
    const Instr& instr = program.code[i];
    if (is(instr, "send") || is(instr, "receive")) return false;           // stages agree on their order
    bool gathers_ahead = is(instr, "all_gather") && instr.in.size() == 1;  // passes/gather_weights.cpp placed it
    return instr.stream == Stream::comm && instr.op->op_class == OpClass::communication && !gathers_ahead;
  };
  size_t n = program.code.size();
  std::vector<std::vector<size_t>> behind(n + 1);  // by the number of instructions before it
  for (size_t i = 0; i < n; ++i) {
    if (!early(i)) continue;
    size_t last = i;
    while (last > 0 && !share_memory(accesses[i], accesses[last - 1])) --last;
    behind[last].push_back(i);
  }
  std::vector<Instr> code;
  code.reserve(n);
  for (size_t i = 0; i <= n; ++i) {
    for (size_t k : behind[i]) code.push_back(program.code[k]);
    if (i < n && !early(i)) code.push_back(program.code[i]);
  }
  program.code = std::move(code);
}

}  // namespace

void assign_streams(Program& program, const PassContext&) {
  if (!communicates_in_one_order(program))
    for (Instr& instr : program.code)
      if (instr.op->op_class == OpClass::communication) instr.stream = Stream::comm;
  start_early(program);
}

}  // namespace crest
