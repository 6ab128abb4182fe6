// What instructions of different streams wait for: streams run concurrently, and instructions of
// one stream in their order.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace crest {

// Bytes [begin, end) of a memory that an instruction reads or writes. Different memories share no
// bytes.
struct Access {
  int memory = 0;
  int64_t begin = 0, end = 0;
  bool writes = false;
};
using Accesses = std::vector<std::vector<Access>>;  // by instruction

// By instruction: those of other streams that must have ended when it starts. All are earlier in
// the Program, so that launching in its order never waits for what is not launched yet. Empty for a
// Program of one stream.
using Waits = std::vector<std::vector<int>>;

bool has_several_streams(const Program& program);

// The bytes of its storage that a value's elements occupy, from the first to the last.
struct Extent {
  int64_t begin, end;
};
Extent extent_of(const Value& value);

// Accesses to values where every storage is a memory of its own: what follows from the Program
// alone, whatever addresses it gets.
Accesses accesses_by_storage(const Program& program);

// The fewest waits with which nothing that is accessed by two streams, and written by one of them,
// is accessed out of the Program's order.
Waits plan_waits(const Program& program, const Accesses& accesses);

// Which instructions have ended when another starts, given the waits between streams: vector clocks
// over the streams.
class HappensBefore {
 public:
  // Throws an internal error if an instruction waits for one that is not before it in the Program
  // and on another stream.
  HappensBefore(const Program& program, const Waits& waits);
  bool operator()(int earlier, int later) const;
  // The first instruction of a stream that starts when instruction i has ended; -1: none does.
  int first_after(int i, Stream stream) const;

 private:
  const Program& program_;
  // By instruction: the last one of each stream that has ended when it starts, -1 for none.
  std::vector<std::array<int, stream_count>> ended_;
};

// Checks, for every pair of instructions of two streams that access the same bytes, one of them
// writing, that the later one starts when the earlier one has ended. Throws an internal error that
// names both.
void verify_waits(const Program& program, const Accesses& accesses, const Waits& waits);

}  // namespace crest
