// The scalars of a training step are one struct in the persistent arena (on a GPU: in device
// memory), so captured graphs and bound pointers never change. The host writes the first block
// before a step; kernels write the second. Every Program sees it as the value `scalars`
// (u8[sizeof(Scalars)]).
#pragma once
#include <cstdint>

namespace crest {

struct Scalars {
  // Written by the host.
  uint64_t seed;        // for dropout and stochastic rounding
  int64_t sample_base;  // global number of the first sample of this micro batch; determines dropout masks
  float lr;
  int32_t position;       // inference: position of the first token of this call in the sequence
  int32_t length;         // inference: number of valid tokens of this call (the rest is padding)
  float loss_weight = 1;  // factor on losses and gradients: target slots of the step / counted targets

  // Written by kernels.
  int64_t adam_step;   // successful optimizer steps so far
  float loss_scale;    // factor on the loss of fp16 training; 1 otherwise
  float grad_norm;     // global L2 norm of the unscaled gradients
  float grad_factor;   // the optimizer's factor for gradients: clip / loss_scale
  int32_t found_inf;   // this step's gradients held NaN or infinity: the update is skipped
  int32_t good_steps;  // successful steps since the loss scale last changed
  int32_t skipped;     // steps skipped so far
};
static_assert(sizeof(Scalars) == 64);

}  // namespace crest
