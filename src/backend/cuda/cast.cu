#include "backend/cuda/device/pointwise.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

struct Same {
  __device__ float operator()(float a, float) const { return a; }
};

void launch_cast(const KernelCall& c) {
  with_type(c.in_value(in::cast::x).dtype, [&](auto from) {
    with_type(c.out_value(out::cast::y).dtype, [&](auto to) {
      using In = decltype(from);
      using Out = decltype(to);
      launch_pointwise<false>(c, c.input<In>(in::cast::x), static_cast<const In*>(nullptr), c.output<Out>(out::cast::y),
                              c.in_value(in::cast::x).numel(), Same());
    });
  });
}

}  // namespace

Kernel cast_kernel() {
  return {"cast", "cuda.cast.vector", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_cast)};
}

}  // namespace crest::cuda
