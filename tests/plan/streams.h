// Sessions whose instructions run on several streams, as later passes may make them.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <string>
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

// Instead of one all-reduce behind all gradients, one for each tensor as soon as it is final.
inline void reduce_early(CompiledSession& s) {
  for (auto& c : s.programs) {
    Program& p = c.program;
    auto found =
        std::find_if(p.code.begin(), p.code.end(), [](auto& i) { return i.op->op_class == OpClass::communication; });
    if (found == p.code.end()) continue;
    const Instr all = *found;
    const auto index = size_t(found - p.code.begin());
    std::vector<int> producers = p.producers();
    std::map<size_t, std::vector<Instr>> behind;  // by the instruction that they follow
    auto reduce = [&](ValueId in, ValueId out) {
      ValueId root = p.at(in).layout.storage;
      Extent bytes = extent_of(p.at(in));
      size_t last = 0;
      for (size_t i = 0; i < index; ++i)
        for (auto* list : {&p.code[i].in, &p.code[i].out})
          for (ValueId v : *list)
            if (v != no_value && p.at(v).layout.storage == root) {
              Extent e = extent_of(p.at(v));
              if (e.begin < bytes.end && bytes.begin < e.end) last = i;
            }
      Instr one = all;
      one.in = {in}, one.out = {out};
      behind[last].push_back(one);
    };
    for (size_t k = 0; k < all.in.size(); ++k) {
      ValueId root = all.in[k];
      std::map<int64_t, ValueId> tensors;  // of a group, by offset: the last version of each
      for (size_t v = 0; v < p.values.size(); ++v)
        if (ValueId id(v); id != root && id != all.out[k] && p.at(id).layout.storage == root && producers[v] >= 0) {
          ValueId& known = tensors.try_emplace(p.at(id).layout.offset, id).first->second;
          if (producers[v] >= producers[size_t(known)]) known = id;
        }
      if (tensors.empty()) {
        reduce(root, all.out[k]);
        continue;
      }
      for (auto& [offset, v] : tensors) {
        Value sum = p.at(v);
        sum.name += ".sum";
        p.values.push_back(sum);
        reduce(v, ValueId(p.values.size()) - 1);
      }
      std::replace(p.outputs.begin(), p.outputs.end(), all.out[k], root);
    }
    std::vector<Instr> code;
    std::vector<const Kernel*> kernels;
    std::vector<int64_t> workspace;
    auto add = [&](const Instr& instr, const Kernel* kernel, int64_t bytes) {
      code.push_back(instr), kernels.push_back(kernel), workspace.push_back(bytes);
    };
    for (size_t i = 0; i < p.code.size(); ++i) {
      if (i != index) add(p.code[i], c.kernels[i], c.workspace[i]);
      for (auto& instr : behind[i]) add(instr, c.kernels[index], c.workspace[index]);
    }
    p.code = code, c.kernels = kernels, c.workspace = workspace;
  }
  place(s);
}

// Reorders the instructions as streams may run them: `next` chooses among those (the first of each
// stream that is not done and waits for nobody) of which any may be the next.
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
