// One step of SGD with momentum over a tensor or a flat group.
#include "backend/cuda/device/update.h"

namespace crest::cuda {

namespace {

struct Sgd {
  static constexpr int states = 1;
  float momentum, weight_decay;

  struct Factors {
    float gradient, momentum, lr, decay;
  };
  __device__ Factors factors(const Scalars* s) const { return {s->grad_factor, momentum, s->lr, s->lr * weight_decay}; }
  __device__ static void apply(const Factors& f, float g, float& p, float* m) {
    m[0] = f.momentum * m[0] + g * f.gradient;
    p = p - p * f.decay - m[0] * f.lr;
  }
};

void launch_sgd(const KernelCall& c) {
  const Attrs& a = c.instr.attrs;
  launch_update(c, Sgd{float(a.number("momentum")), float(a.number("weight_decay"))});
}

}  // namespace

Kernel sgd_kernel() { return {"sgd", "cuda.sgd", reject_unless_float, nullptr, nullptr, launch_sgd}; }

}  // namespace crest::cuda
