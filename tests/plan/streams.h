// Sessions with instructions on several streams, as possible for later passes.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "core/random.h"
#include "plan/compile.h"
#include "program/op.h"

namespace crest::test {

// Instructions on random streams, a few in a row on each. Collectives stay where they are: ranks
// must call them in one order.
inline void use_random_streams(CompiledSession& s, uint64_t seed) {
  uint64_t drawn = 0;
  for (auto& c : s.programs) {
    auto stream = Stream::compute;
    for (auto& instr : c.program.code) {
      uint32_t bits = random_bits(seed, 77, drawn++);
      if (bits % 4 == 0) stream = Stream(bits / 4 % stream_count);
      if (instr.op->op_class != OpClass::communication) instr.stream = stream;
    }
  }
  place(s);
}

// Reorders the instructions as streams may run them: `next` chooses among the possible next ones
// (the first of each stream, neither done nor waiting).
inline void interleave(CompiledSession& s, const std::function<size_t(const std::vector<int>&)>& next) {
  for (auto& c : s.programs) {
    if (c.waits.empty()) continue;
    Program& p = c.program;
    size_t n = p.code.size();
    std::vector<bool> done(n, false);
    std::vector<int> order;
    while (order.size() < n) {
      std::vector<int> ready;
      for (int stream = 0; stream < stream_count; ++stream)
        for (size_t i = 0; i < n; ++i) {
          if (done[i] || int(p.code[i].stream) != stream) continue;
          if (std::all_of(c.waits[i].begin(), c.waits[i].end(), [&](int j) { return done[size_t(j)]; }))
            ready.push_back(int(i));
          break;
        }
      order.push_back(ready.at(next(ready)));
      done[size_t(order.back())] = true;
    }
    CompiledProgram old = c;
    std::vector<int> place_of(n);
    for (size_t i = 0; i < n; ++i) place_of[size_t(order[i])] = int(i);
    for (size_t i = 0; i < n; ++i) {
      auto from = size_t(order[i]);
      p.code[i] = old.program.code[from], c.kernels[i] = old.kernels[from], c.workspace[i] = old.workspace[from];
      c.memory.block_of_instr[i] = old.memory.block_of_instr[from];
      c.waits[i].clear();
      for (int j : old.waits[from]) c.waits[i].push_back(place_of[size_t(j)]);
    }
  }
}

}  // namespace crest::test
