// Where ranks wait for each other when copy engines move data between them (Communicator::pull).
#pragma once
#include "program/waits.h"

namespace crest {

// While an instruction copies, the other ranks read its first operand in this rank's memory. The
// streams of different ranks know nothing of each other except at a barrier: each stream waits
// there until all ranks have arrived. So a barrier lies between each write of the operand and its
// copies, and another one between the copies and the next write of the same bytes. In a Program, a
// barrier comes before the first copies and one after the last, so other Programs and the host may
// write anything.
//
// A rank that arrives raises a flag at every other rank. A rank that waits takes down its own
// flags. A flag raised twice could be lost, so neighboring barriers have different flags. Programs
// run in any order, so only their last barrier has closing_flag.
inline constexpr int no_barrier = -1, closing_flag = 2, barrier_flags = 3;

// The flags of the barriers next to an instruction's copies: attributes of the instruction. Its own
// writes may run between the arrival at a barrier and the end of the wait.
int barrier_before(const Instr& instr);
int barrier_after(const Instr& instr);

// Sets them with the fewest barriers. copying: the instructions that copy between the ranks of one
// communicator, all on one stream.
void place_barriers(Program& program, const Accesses& accesses, const Waits& waits, const std::vector<int>& copying);

// Checks every write of a copied operand, and the flags. Throws an internal error with both
// instructions.
void verify_barriers(const Program& program, const Accesses& accesses, const Waits& waits,
                     const std::vector<int>& copying);

}  // namespace crest
