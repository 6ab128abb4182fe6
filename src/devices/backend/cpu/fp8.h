// Quantization inside of other CPU kernels.
#pragma once
#include "backend/backend.h"

namespace crest::cpu {

// Bytes of workspace for quantizing tensors like x.
size_t quantize_scratch(const Value& x, int threads);
// Runs a quantizing instruction (ops/fused.h) in the call's workspace.
void launch_quantizer(const KernelCall& call);

}  // namespace crest::cpu
