// Random but valid Programs for the planner: pointwise chains, views, copies, row operations,
// in-place collectives on their own stream, tensors of several sizes, dead results, early and late
// last uses.
#pragma once
#include <cstdint>
#include <vector>

#include "program/builder.h"

namespace crest::test {

struct RandomProgram {
  Program program;
  std::vector<int64_t> workspace;  // per instruction
};

// One instruction a choice; any list of numbers gives a valid Program.
inline RandomProgram random_program(const std::vector<uint32_t>& choices) {
  RandomProgram r;
  Program& p = r.program;
  p.name = "random";
  Builder b(p);
  constexpr int sizes = 4;
  const int64_t tokens[sizes] = {1, 4, 19, 100};
  std::vector<ValueId> pool[sizes];   // [1, T, 8], contiguous, of the micro step
  std::vector<ValueId> views[sizes];  // [1, 2, T, 4], of a member of the pool
  for (int s = 0; s < sizes; ++s) {
    for (const char* part : {"a", "b"}) {
      ValueId v = b.declare(std::string(part) + std::to_string(s), DType::f32, {1, tokens[s], 8}, Role::input,
                            Lifetime::micro_step);
      pool[s].push_back(v);
      p.inputs.push_back(v);
    }
    b.declare("w" + std::to_string(s), DType::f32, {1, tokens[s], 8}, Role::weight, Lifetime::persistent);
  }
  b.origin = Origin("random");
  for (uint32_t c : choices) {
    int s = int(c >> 4) % sizes;
    auto pick = [&](const std::vector<ValueId>& from, int shift) {
      // Mostly something recent, as in real Programs; sometimes something old.
      size_t back = (c >> shift) % 4 == 3 ? (c >> (shift + 2)) % from.size() : (c >> (shift + 2)) % 3;
      return from[from.size() - 1 - std::min(back, from.size() - 1)];
    };
    ValueId x = pick(pool[s], 6), y = pick(pool[s], 12);
    b.phase = p.code.size() > choices.size() / 2 ? Phase::backward : Phase::forward;
    b.stream = Stream::compute;
    switch (c % 12) {
      case 0:
      case 1: pool[s].push_back(b.emit1("add", {x, y})); break;
      case 2: pool[s].push_back(b.emit1("mul", {x, p.find("w" + std::to_string(s))})); break;
      case 3:
      case 4: pool[s].push_back(b.emit1("scale", {x}, Attrs().set("value", 0.5))); break;
      case 5: pool[s].push_back(b.emit1("tanh_grad", {x, y})); break;
      case 6: pool[s].push_back(b.emit1("softmax", {x})); break;
      case 7: views[s].push_back(b.emit1("split_heads", {x}, Attrs().set("heads", 2).set("kv_heads", 0))); break;
      case 8:
        if (!views[s].empty()) pool[s].push_back(b.emit1("join_heads", {pick(views[s], 18)}));
        break;
      case 9:
        if (!views[s].empty()) {
          ValueId q = pick(views[s], 18), k = pick(views[s], 24);
          b.emit1("matmul", {q, k}, Attrs().set("transpose_b", 1));  // nobody reads it
        }
        break;
      default: {
        if (pool[s].size() < 3) break;
        b.stream = Stream::comm;
        ValueId sum = b.emit1("all_reduce", {x}, Attrs().set("mean", 0));
        auto same = [&](ValueId v) { return p.at(v).layout.storage == p.at(x).layout.storage; };
        std::erase_if(pool[s], same);
        std::erase_if(views[s], same);
        pool[s].push_back(sum);
      }
    }
  }
  for (auto& list : pool)
    if (choices.size() % 3) p.outputs.push_back(list.back());
  for (size_t i = 0; i < p.code.size(); ++i) {
    uint32_t c = choices.empty() ? 0 : choices[i % choices.size()];
    r.workspace.push_back(c % 5 == 0 ? int64_t(c >> 8) % 20'000 : 0);
  }
  return r;
}

}  // namespace crest::test
