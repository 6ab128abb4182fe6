// The collectives by name, their bus bandwidth, and the fit of start-up time and seconds per byte
// to a series of sizes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace crest {

enum class Collective { all_reduce, all_gather, reduce_scatter, broadcast };
extern const std::vector<Collective> all_collectives;
const char* name(Collective c);  // "all-reduce"
// Throws a usage error with the nearest name.
Collective parse_collective(const std::string& text);

// Bus bandwidth over algorithm bandwidth (size / time), as NCCL's tests define it: the bytes that
// the slowest link must carry per byte of the size. all-reduce 2 (n - 1) / n, all-gather and
// reduce-scatter (n - 1) / n, broadcast 1. The size is that of the whole buffer (all-gather: of the
// result, reduce-scatter: of the input).
double bus_factor(Collective c, int ranks);

// Elements of the whole buffer for a size: a multiple of the ranks if each has a part; at least one
// element each.
int64_t elements_for(Collective c, int ranks, DType dtype, int64_t bytes);
// Bytes of both buffers that one rank needs for this number of elements.
int64_t buffer_bytes(Collective c, int ranks, DType dtype, int64_t elements);

struct TransferPoint {
  double bytes = 0, seconds = 0;
};
// seconds = startup + bytes * seconds_per_byte, by least squares of the relative errors (a plain
// fit would follow the largest sizes only). A negative start-up time is too small to resolve with
// these sizes.
struct TransferFit {
  double startup = 0, seconds_per_byte = 0;
  double worst = 0;  // largest |measured / fitted - 1|
  int points = 0;    // 0: no fit, which needs two different sizes
};
TransferFit fit_transfer(const std::vector<TransferPoint>& points);

}  // namespace crest
