// The FLOPs of a training step.
#pragma once
#include <functional>
#include <string>

#include "plan/compile.h"

namespace crest {

// Sums `each` over all instructions of one rank in an optimizer step (or the session's forward
// pass), as often as they run.
double sum_of_step(const CompiledSession& session, const std::function<double(const Program&, const Instr&)>& each);
// FLOPs of one rank in an optimizer step, including padding and recompute.
double executed_flops(const CompiledSession& session);
// FLOPs of the matmuls and of attention that a step of all ranks computes again for --recompute.
// Attention counts as in flops_per_token: without a causal discount.
double recomputed_flops(const CompiledSession& session);
// The FLOPs behind MFU and HFU, of a step of all ranks. crest flops has the same conventions for
// steps without a Program (plan/flops_rate.h).
struct StepFlops {
  double model = 0;     // flops_per_token
  double hardware = 0;  // and the recomputed ones
};
StepFlops step_flops(const CompiledSession& session);
// The convention of flops_per_token (a third of it for a forward pass), printed with the figure.
std::string palm_convention(const Recipe& recipe, bool forward);

}  // namespace crest
