// The detail table of a measurement, for [columns]: one row per instruction, memory block and value
// of its Programs.
#pragma once
#include "lab/table.h"
#include "plan/compile.h"
#include "profile/profile.h"

namespace crest::lab {

// Rows of instructions (row=instr) and of blocks of the transient arena (row=block).
Table detail_rows(const Profile& profile);
// Values that own memory (row=value), each name once: weights, gradients, state, activations, with
// dtype, role and lifetime.
Table value_rows(const CompiledSession& session);

}  // namespace crest::lab
