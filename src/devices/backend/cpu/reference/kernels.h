// The reference kernels: every operation of a single rank has a function of its name, and a kernel
// `cpu.NAME.reference` calling it.
#pragma once
#include "backend/backend.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"

namespace crest::reference {

#define CREST_DECLARE_KERNEL(op, inputs, outputs) void op(const KernelCall&);
CREST_LOCAL_OPS(CREST_DECLARE_KERNEL) CREST_QUANTIZED_NORMS(CREST_DECLARE_KERNEL)
#undef CREST_DECLARE_KERNEL

}  // namespace crest::reference
