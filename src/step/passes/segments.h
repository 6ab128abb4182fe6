// A stage's micro step, cut at its transfers: several micro steps can be in flight
// (plan/schedule.h).
#pragma once
#include <string>
#include <vector>

#include "program/program.h"

namespace crest {

// In Program order. share: a borrowed weight, before all micro steps. after: behind the last micro
// step, such as sums over the ranks. The last stage has no `forward`: its forward and backward pass
// need no transfer between them.
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

// Values used in several segments get lifetime `slot`. splits_weights: weight gradients are a
// separate segment, unless another stage waits for them. Only `after` may occur several times.
std::vector<Segment> cut_segments(const Program& program, bool splits_weights);

}  // namespace crest
