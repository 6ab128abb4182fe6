// A small profile made by hand: two micro steps and an update, with and without a GPU's kernels.
#pragma once
#include "profile/profile.h"

namespace crest::test {

struct SampleRow {
  const char *op, *phase, *op_class, *scope;
  int layer;
};

inline const SampleRow sample_rows[] = {
    {"embedding", "forward", "embedding", "wte", -1},
    {"linear", "forward", "contraction", "h.0.attn.qkv", 0},
    {"attention", "forward", "attention", "h.0.attn", 0},
    {"norm", "recompute", "normalization", "h.0.ln_1", 0},
    {"attention_grad", "backward", "attention", "h.0.attn", 0},
    {"linear_dw", "backward", "contraction", "h.0.attn.qkv", 0},
    {"adamw", "update", "optimizer", "optimizer", -1},
};

inline void add_program(Profile& p, const std::string& program, int first, int count, int calls) {
  for (int i = 0; i < count; ++i) {
    const SampleRow& r = sample_rows[first + i];
    ProfileInstr row;
    row.program = program, row.index = i, row.calls = calls;
    row.op = r.op, row.kernel = std::string("cpu.") + r.op, row.op_class = r.op_class;
    row.phase = r.phase, row.stream = "compute", row.scopes = {r.scope}, row.layer = r.layer;
    row.type = "bf16[8,256,128]", row.arithmetic = "bf16";
    row.flops = 1e6 * calls, row.bytes = 1e3 * calls, row.ms = 0.5 * calls, row.floor_ms = 0.1 * calls;
    p.instrs.push_back(row);
  }
}

// Persistent memory has a gap; block "x" lives through the Program, "t" takes the place of the dead
// "q".
inline void add_memory(Profile& p) {
  p.memory.persistent = {{"weights", "weights", 0, 1000}, {"moments", "optimizer_state", 1024, 2000}};
  p.memory.persistent_bytes = 3024;
  p.memory.blocks = {
      {"x", "train", "activations", "forward", "wte", -1, 0, 512, 0, 5},
      {"q", "train", "activations", "forward", "h.0.attn.qkv", 0, 512, 256, 1, 2},
      {"t", "train", "temporary", "recompute", "h.0.ln_1", 0, 512, 128, 3, 4},
      {"workspace of adamw", "update", "workspace", "update", "optimizer", -1, 0, 640, 0, 0},
  };
  p.memory.transient_bytes = 768;
  p.memory.planned_bytes = 3792;
}

// With a GPU every instruction has two kernels, the second of attention on another stream, at the
// same time.
inline Profile sample_profile(bool gpu) {
  Profile p;
  p.recipe = {{"model", "nano"}, {"batch", 8}};
  p.device = {{"kind", gpu ? "cuda" : "cpu"}, {"name", "sample"}, {"memory_bytes", 1 << 30}};
  p.method = gpu ? "cupti" : "timers";
  p.step_ms = p.profiled_ms = {8, 8.1, 7.9};
  p.calls = {"train", "train", "update"};
  add_program(p, "train", 0, 6, 2);
  add_program(p, "update", 6, 1, 1);
  add_memory(p);
  if (gpu)
    for (int i = 0; i < int(p.instrs.size()); ++i)
      for (const char* part : {"_main", "_tail"})
        p.kernels.push_back({.name = "void crest::" + p.instrs[size_t(i)].op + part + "<float>(int)", .instr = i});
  double at = 0.1;
  for (int call = 0; call < 3; ++call)
    for (int i = 0; i < int(p.instrs.size()); ++i) {
      if (p.instrs[size_t(i)].program != p.calls[size_t(call)]) continue;
      if (gpu) {
        bool side = p.instrs[size_t(i)].op == "attention";
        p.intervals.push_back({i, 2 * i, call, 7, at, 0.3});
        p.intervals.push_back({i, 2 * i + 1, call, side ? 8 : 7, side ? at + 0.1 : at + 0.3, 0.2});
      } else {
        p.intervals.push_back({i, -1, call, 0, at, 0.5});
      }
      at += 0.55;
    }
  p.span_ms = at - 0.05;
  return p;
}

}  // namespace crest::test
