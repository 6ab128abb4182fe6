// Waits between streams. Streams run concurrently; the instructions of one stream run in order.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace crest {

// Bytes [begin, end) of a memory read or written by an instruction. Different memories share no
// bytes.
struct Access {
  int memory = 0;
  int64_t begin = 0, end = 0;
  bool writes = false;
  // Of a piece of rows (Layout::pieces): its storage, and the bytes of all pieces. Which of them it
  // is depends on the rank.
  ValueId pieces_of = no_value;
  int64_t pieces_begin = 0, pieces_end = 0;
};
// Whether two accesses may reach the same bytes, on any rank.
bool overlap(const Access& a, const Access& b);
using Accesses = std::vector<std::vector<Access>>;  // by instruction

// For each instruction: the instructions of other streams to finish before it starts. All are
// earlier in the Program, so launching in its order never waits for an instruction not launched
// yet. Empty for a Program of one stream.
using Waits = std::vector<std::vector<int>>;

bool has_several_streams(const Program& program);

// The bytes of a value's elements in its storage, from the first to the last.
struct Extent {
  int64_t begin, end;
};
Extent extent_of(const Value& value);

// The access of an operand whose bytes begin here.
Access access_of(const Value& value, int memory, int64_t begin, bool writes);

// Accesses to values if every storage were a memory of its own: the order required by the Program
// alone, with any addresses.
Accesses accesses_by_storage(const Program& program);

// The fewest waits for a correct result: where two streams access the same bytes and one of them
// writes, they do so in the Program's order.
Waits plan_waits(const Program& program, const Accesses& accesses);

// The instructions finished when another one starts, given the waits between streams: vector clocks
// over the streams.
class HappensBefore {
 public:
  // Throws an internal error unless each instruction waits for earlier instructions of other
  // streams only.
  HappensBefore(const Program& program, const Waits& waits);
  bool operator()(int earlier, int later) const;
  // The first instruction of `stream` to start after the end of instruction i; -1: none.
  int first_after(int i, Stream stream) const;

 private:
  const Program& program_;
  // For each instruction: the last finished instruction of each stream when it starts; -1: none.
  std::vector<std::array<int, stream_count>> ended_;
};

// Checks every pair of instructions of two streams with access to the same bytes, at least one of
// them a write: the later one must start after the end of the earlier one. Throws an internal error
// with both names.
void verify_waits(const Program& program, const Accesses& accesses, const Waits& waits);

}  // namespace crest
