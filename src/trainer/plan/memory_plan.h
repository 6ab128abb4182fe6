// Assigns an address to every value of a Program before anything runs.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace crest {

enum class Category : uint8_t {
  weights,
  gradients,
  optimizer_state,
  activations,
  temporary,
  workspace,
  comm_buffers,
  kv_cache,
  library_context
};
inline constexpr int category_count = 9;
std::string_view name(Category);
using CategoryBytes = std::array<int64_t, category_count>;
int64_t total(const CategoryBytes&);

// A piece of the transient arena, used by instructions [first, last]. If a stream other than
// compute uses it, the use lasts until the compute stream waits for it, or for some transfers more.
struct Block {
  std::string name;  // of the storage, or "workspace of OP"
  ValueId storage;   // no_value for workspace
  int64_t offset, bytes;
  int first, last;
  Category category;
};

struct MemoryPlan {
  std::vector<Block> blocks;
  std::vector<int> block_of_value;  // by storage; -1: not in this arena (persistent, gradients)
  std::vector<int> block_of_instr;  // the instruction's workspace; -1: none
  int64_t bytes = 0;                // size of the transient arena
  int64_t live_peak = 0;            // largest sum of live blocks, a lower bound for any plan
  int peak_instr = -1;              // where live_peak occurs
  CategoryBytes at_peak{};          // live bytes there, by category
};

// For each instruction, the last one that must not take its memory. Another stream may still be
// running it until the compute stream waits for it: only then is the memory free. At most three
// collectives of gradients, two activations on their way to the host and four gradients on a stream
// of their own hold memory.
std::vector<int> ends_of_use(const Program& program);
// workspace[i]: workspace bytes of instruction i. fixed: blocks with a given address
// (plan/gradient_storage.h). Values in persistent or step-long storage are not placed here. Best
// fit, longest-lived first; tries other orders if this wastes over 1%. Nearly linear in the number
// of instructions.
MemoryPlan plan_memory(const Program& program, const std::vector<int64_t>& workspace,
                       const std::vector<Block>& fixed = {});
// The Program's copies of activations in host memory (--offload activations).
MemoryPlan plan_host_memory(const Program& program);
// Throws an internal error if two blocks overlap in both time and address.
void verify(const MemoryPlan& plan);
// A table of the largest blocks, and the peak.
std::string print(const MemoryPlan& plan, const Program& program, int rows = 20);

}  // namespace crest
