// Instructions of a profile that do the same in every layer, as one row.
#pragma once
#include <string>
#include <vector>

#include "measure/profile.h"

namespace crest {

struct InstrGroup {
  std::string label;  // "mlp.fc linear_gelu"
  std::string phase, op_class, kernel, arithmetic;
  int64_t calls = 0;
  double ms = 0, floor_ms = 0, flops = 0, bytes = 0;
  double gap_ms() const { return ms - floor_ms; }
};
// Longest first.
std::vector<InstrGroup> instr_groups(const Profile& profile);

// What an instruction is called: its role and operation; a fused one by its parts.
std::string label_of(const ProfileInstr& instr);

}  // namespace crest
