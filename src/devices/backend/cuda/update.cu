// One step of an element-wise optimizer over a tensor or a flat group, in one launch.
#include "backend/cuda/device/update.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

template <class Rule>
void launch_op(const KernelCall& c) {
  if constexpr (Rule::bf16)
    if (c.in_value(parameter_input).dtype == DType::bf16) return launch_bf16_update<Rule>(c);
  launch_update<Rule>(c);
}

}  // namespace

#define CREST_UPDATE_KERNEL(op, inputs, outputs)                                                        \
  Kernel op##_kernel() {                                                                                \
    return {#op,     "cuda." #op, reject_unless_float,                                                  \
            nullptr, nullptr,     CREST_DEVICE_CODE((launch_op<update_rules::op<ScalarMath<float>>>))}; \
  }
CREST_UPDATE_OPS(CREST_UPDATE_KERNEL)
#undef CREST_UPDATE_KERNEL

}  // namespace crest::cuda
