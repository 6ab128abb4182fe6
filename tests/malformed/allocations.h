// Memory of this program by operator new, counted: a parser's memory for an input.
#pragma once
#include <cstddef>

namespace crest::test {

// Sanitizers keep freed memory and have an operator
// new of their own: then nothing is counted.
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
