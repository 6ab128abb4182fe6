// Addresses for every value of a Program, decided before anything runs.
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

// A piece of the transient arena, and the instructions [first, last] of its use. A use by another
// stream than compute lasts until the compute stream waits for it.
struct Block {
  std::string name;  // of the storage value, or "workspace of OP"
  ValueId storage;   // no_value for workspace
  int64_t offset, bytes;
  int first, last;
  Category category;
};

struct MemoryPlan {
  std::vector<Block> blocks;
  std::vector<int> block_of_value;  // by storage value: its block, -1 if it is elsewhere (persistent, gradients)
  std::vector<int> block_of_instr;  // workspace block of an instruction, -1 for none
  int64_t bytes = 0;                // size of the transient arena
  int64_t live_peak = 0;            // largest sum of live blocks: no plan can be smaller
  int peak_instr = -1;              // instruction of live_peak
  CategoryBytes at_peak{};          // live bytes by category there
};

// workspace[i]: workspace bytes of instruction i. fixed: blocks with a given address
// (plan/gradient_storage.h). Values with a storage that is persistent or lives for the step are not
// placed here. Best fit, longest-lived first, or in other orders if this wastes over 1%.
// Near-linear in the number of instructions.
MemoryPlan plan_memory(const Program& program, const std::vector<int64_t>& workspace,
                       const std::vector<Block>& fixed = {});
// Throws an internal error if two blocks overlap in both time and address.
void verify(const MemoryPlan& plan);
// A table of the largest blocks, and the peak.
std::string print(const MemoryPlan& plan, const Program& program, int rows = 20);

}  // namespace crest
