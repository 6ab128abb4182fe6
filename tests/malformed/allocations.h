// Memory that this program takes by operator new, counted: what an input makes a parser take.
#pragma once
#include <cstddef>

namespace crest::test {

// Sanitizers keep memory that was freed and have an operator new of their own: then nothing is
// counted.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool counts_allocations = false;
#else
inline constexpr bool counts_allocations = true;
#endif

struct Allocations {
  size_t peak = 0;     // bytes at once
  size_t largest = 0;  // of one allocation
};

// Counts from zero on.
void begin_counting();
// Since begin_counting().
Allocations counted();

}  // namespace crest::test
