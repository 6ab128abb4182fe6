#include "backend/cuda/device/pointwise.h"

namespace crest::cuda {

namespace {

struct Same {
  __device__ float operator()(float a, float) const { return a; }
};

void launch_cast(const KernelCall& c) {
  with_type(c.in_value(0).dtype, [&](auto from) {
    with_type(c.out_value(0).dtype, [&](auto to) {
      using In = decltype(from);
      using Out = decltype(to);
      launch_pointwise<false>(c, c.input<In>(0), static_cast<const In*>(nullptr), c.output<Out>(0),
                              c.in_value(0).numel(), Same());
    });
  });
}

}  // namespace

Kernel cast_kernel() { return {"cast", "cuda.cast.vector", reject_unless_float, nullptr, nullptr, launch_cast}; }

}  // namespace crest::cuda
