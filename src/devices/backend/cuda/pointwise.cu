// The elementary pointwise operations left alone by fusion.
#include "backend/cuda/device/pointwise.h"

#include "backend/cuda/device/activation.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

#define CREST_POINTWISE_FUNCTION(op, inputs, outputs)                                           \
  struct op##_function {                                                                        \
    static constexpr bool binary = in::op::count == 2;                                          \
    float value;                                                                                \
    __device__ float operator()(float a, float b) const { return pointwise_##op(a, b, value); } \
  };
CREST_POINTWISE_OPS(CREST_POINTWISE_FUNCTION)
#undef CREST_POINTWISE_FUNCTION

template <class F>
void launch_op(const KernelCall& c) {
  F f{float(c.instr.attrs.number("value", 0.0))};
  with_type(c.in_value(0).dtype, [&](auto t) {
    using T = decltype(t);
    const T* b = nullptr;
    if constexpr (F::binary) b = c.input<T>(1);
    launch_pointwise<F::binary>(c, c.input<T>(0), b, c.output<T>(0), c.in_value(0).numel(), f);
  });
}

template <class F>
Kernel kernel(const char* op, const char* name) {
  return {op, name, reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_op<F>)};
}

}  // namespace

#define CREST_POINTWISE_KERNEL(op, inputs, outputs) \
  Kernel op##_kernel() { return kernel<op##_function>(#op, "cuda." #op ".vector"); }
CREST_POINTWISE_OPS(CREST_POINTWISE_KERNEL)
#undef CREST_POINTWISE_KERNEL

}  // namespace crest::cuda
