// One Lion step over a tensor or a flat group (Chen et al. 2023, algorithm 2).
#include "backend/cuda/device/update.h"

namespace crest::cuda {

namespace {

struct Lion {
  static constexpr int states = 1;
  float beta1, beta2, one_minus_beta1, one_minus_beta2, weight_decay;

  struct Factors {
    float gradient, lr, decay, beta1, beta2, one_minus_beta1, one_minus_beta2;
  };
  __device__ Factors factors(const Scalars* s) const {
    return {s->grad_factor, s->lr, s->lr * weight_decay, beta1, beta2, one_minus_beta1, one_minus_beta2};
  }
  __device__ static void apply(const Factors& f, float g, float& p, float* m) {
    g *= f.gradient;
    float direction = f.beta1 * m[0] + f.one_minus_beta1 * g;
    float step = direction > 0 ? f.lr : direction < 0 ? -f.lr : 0.f;
    p = p - p * f.decay - step;
    m[0] = f.beta2 * m[0] + f.one_minus_beta2 * g;
  }
};

void launch_lion(const KernelCall& c) {
  const Attrs& a = c.instr.attrs;
  double beta1 = a.number("beta1"), beta2 = a.number("beta2");
  launch_update(c,
                Lion{float(beta1), float(beta2), float(1 - beta1), float(1 - beta2), float(a.number("weight_decay"))});
}

}  // namespace

Kernel lion_kernel() { return {"lion", "cuda.lion", reject_unless_float, nullptr, nullptr, launch_lion}; }

}  // namespace crest::cuda
