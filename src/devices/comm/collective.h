// The collectives by name, their bus bandwidth, and the fit of start-up time and seconds per byte
// to several sizes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace crest {

enum class Collective { all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_receive };
extern const std::vector<Collective> all_collectives;
const char* name(Collective c);  // "all-reduce"
// Throws a usage error that suggests the nearest name.
Collective parse_collective(const std::string& text);

// Bus bandwidth / algorithm bandwidth (size / time), as in NCCL's tests: the bytes on the slowest
// link per byte of the size. all-reduce 2 (n - 1) / n, all-gather, reduce-scatter and all-to-all
// (n - 1) / n, broadcast and send-receive 1. The size is for the whole buffer (all-gather: the
// result, reduce-scatter: the input). all-to-all and send-receive, where every rank sends to the
// next one, have an input and a result of this size each.
double bus_factor(Collective c, int ranks);

// Elements of the whole buffer for a size: a multiple of the ranks if each has a part, and at least
// one element each.
int64_t elements_for(Collective c, int ranks, DType dtype, int64_t bytes);
// Bytes of both buffers of one rank for this number of elements.
int64_t buffer_bytes(Collective c, int ranks, DType dtype, int64_t elements);

struct TransferPoint {
  double bytes = 0, seconds = 0;
};
// seconds = startup + bytes * seconds_per_byte, by least squares of the relative errors (a plain
// fit would follow only the largest sizes). A negative start-up time is too small to measure with
// these sizes.
struct TransferFit {
  double startup = 0, seconds_per_byte = 0;
  double worst = 0;  // largest |measured / fitted - 1|
  int points = 0;    // 0: no fit, for lack of two different sizes
};
TransferFit fit_transfer(const std::vector<TransferPoint>& points);

}  // namespace crest
