// Collectives on the communication stream start as early as they can: right behind the last
// instruction that uses their memory. Others stay where they are, on the compute stream. If a rank
// belongs to several groups, or the ranks exchange rows inside the layers, all its collectives are
// on the communication stream: two of NCCL's that run at once may wait for each other forever
// (NVIDIA/nccl #195).
#include <algorithm>
#include <deque>

#include "passes/pass.h"
#include "passes/rewrite.h"
#include "program/op.h"
#include "program/placements.h"
#include "program/waits.h"

namespace crest {

namespace {

bool overlap(const Access& a, const Access& b) { return a.memory == b.memory && a.begin < b.end && b.begin < a.end; }

bool share_memory(const std::vector<Access>& a, const std::vector<Access>& b) {
  for (auto& x : a)
    for (auto& y : b)
      if (overlap(x, y)) return true;
  return false;
}
bool in_conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
  for (auto& x : a)
    for (auto& y : b)
      if (overlap(x, y) && (x.writes || y.writes)) return true;
  return false;
}

bool exchanges_rows(const Instr& instr) { return is(instr, "gather_rows") || is(instr, "scatter_rows"); }

void start_early(Program& program) {
  Accesses accesses = accesses_by_storage(program);
  auto early = [&](size_t i) {
    const Instr& instr = program.code[i];
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

// What follows a layer's collective waits for it. Products of weight gradients wait for nothing:
// each goes behind the next collective, and hides it.
void hide_collectives(Program& program) {
  constexpr size_t most = 3;  // products that wait, with their inputs in memory
  const Accesses accesses = accesses_by_storage(program);
  std::vector<size_t> order;
  std::deque<size_t> waiting;
  auto run_first = [&] {
    order.push_back(waiting.front());
    waiting.pop_front();
  };
  for (size_t i = 0; i < program.code.size(); ++i) {
    const Instr& instr = program.code[i];
    if (is(instr, "linear_dw")) {
      waiting.push_back(i);
      if (waiting.size() > most) run_first();
      continue;
    }
    auto conflicts = [&](size_t product) { return in_conflict(accesses[product], accesses[i]); };
    while (std::any_of(waiting.begin(), waiting.end(), conflicts)) run_first();
    order.push_back(i);
    if (exchanges_rows(instr) && !waiting.empty()) run_first();
  }
  while (!waiting.empty()) run_first();
  std::vector<Instr> code;
  for (size_t i : order) code.push_back(std::move(program.code[i]));
  program.code = std::move(code);
}

}  // namespace

void assign_streams(Program& program, const PassContext&) {
  const bool rows = std::any_of(program.code.begin(), program.code.end(), exchanges_rows);
  if (rows || !communicates_in_one_order(program))
    for (Instr& instr : program.code)
      if (instr.op->op_class == OpClass::communication) instr.stream = Stream::comm;
  start_early(program);
  if (rows) hide_collectives(program);
}

}  // namespace crest
