// Timing alternatives on the device, to choose one.
#pragma once
#include <functional>
#include <vector>

namespace crest::cuda {

// Puts one alternative's work on a stream (a cudaStream_t); throws an Error when it cannot.
using Alternative = std::function<void(void* stream)>;

// Microseconds of each alternative on the current device; infinity for one that threw or was
// clearly slower than the best. Clocks are warmed up once per process. Alternatives are interleaved
// and repeated, short ones as graphs of several runs, and the median counts. Takes some 2 ms for a
// good alternative, or a single run if longer. Waits for the device; the calling thread must not be
// capturing.
std::vector<double> time_alternatives(const std::vector<Alternative>& alternatives);

}  // namespace crest::cuda
