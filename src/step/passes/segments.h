// A stage's Program of a micro step, cut at its transfers: then several micro steps can be on their
// way at once (plan/schedule.h).
#pragma once
#include <string>
#include <vector>

#include "program/program.h"

namespace crest {

// In the order of a Program. share: a borrowed weight, before all micro steps. after: behind the
// last micro step, such as sums over the ranks. The last stage has no part `forward`: nobody waits
// between its forward and its backward pass.
enum class SegmentKind : uint8_t {
  share,
  receive_forward,
  forward,
  send_forward,
  receive_backward,
  backward,
  send_backward,
  weights,
  after
};
std::string_view name(SegmentKind kind);  // "receive-forward"

struct Segment {
  SegmentKind kind;
  Program program;
};

// Values of several segments get lifetime `slot`. splits_weights: gradients of weights are a
// segment of their own, unless another stage waits for them. There are several segments `after`,
// and at most one of every other kind.
std::vector<Segment> cut_segments(const Program& program, bool splits_weights);

}  // namespace crest
