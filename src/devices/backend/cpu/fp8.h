// Quantization inside of other CPU kernels.
#pragma once
#include "backend/backend.h"

namespace crest::cpu {

// Bytes of workspace that quantization of tensors like x needs.
size_t quantize_scratch(const Value& x, int threads);
// Runs an instruction that quantizes (ops/fused.h); the workspace is the call's.
void launch_quantizer(const KernelCall& call);

}  // namespace crest::cpu
