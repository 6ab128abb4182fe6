// The table behind a cell, which [columns] read: a row an instruction, a block of memory, a value of its Programs.
#pragma once
#include "lab/table.h"
#include "plan/compile.h"
#include "profile/profile.h"

namespace crest::lab {

// Rows of instructions (row=instr) and blocks of the transient arena (row=block). Bytes of a value are its own.
Table detail_rows(const Profile& profile);
// Values that own memory (row=value), each name once: weights, gradients, state, activations; dtype, role, lifetime.
Table value_rows(const CompiledSession& session);

}  // namespace crest::lab
