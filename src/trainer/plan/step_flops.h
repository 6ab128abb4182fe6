// The FLOPs of a training step.
#pragma once
#include <functional>
#include <string>

#include "plan/compile.h"

namespace crest {

// The sum over all instructions of one rank in an optimizer step (or in the session's forward
// pass), each as often as it runs.
double sum_of_step(const CompiledSession& session, const std::function<double(const Program&, const Instr&)>& each);
// FLOPs of all instructions of one rank in an
// optimizer step, padding and recompute included.
double executed_flops(const CompiledSession& session);
// The count of flops_per_token, or a third of it for a forward pass; printed with the figure.
std::string palm_convention(const Recipe& recipe, bool forward);

}  // namespace crest
