// One AdamW step over a tensor or a flat group, in one launch. Parameters in f32 (whole or in halves), or in bf16
// without a master.
#include "backend/cuda/device/adamw.h"

#include "backend/cuda/device/update.h"

namespace crest::cuda {

namespace {

void launch_adamw(const KernelCall& c) {
  AdamW rule = adamw_rule(c.instr.attrs);
  if (c.in_value(1).dtype == DType::bf16)
    launch_bf16_update(c, rule);
  else
    launch_update(c, rule);
}

}  // namespace

Kernel adamw_kernel() { return {"adamw", "cuda.adamw", reject_unless_float, nullptr, nullptr, launch_adamw}; }

}  // namespace crest::cuda
