// AdamW's rule (Loshchilov & Hutter 2019, algorithm 2).
#pragma once
#include <cmath>

#include "backend/cuda/device/numeric.h"
#include "core/scalars.h"
#include "core/step_factor.h"
#include "program/attrs.h"

namespace crest::cuda {

struct AdamW {
  static constexpr int states = 2;
  float beta1, beta2, one_minus_beta1, one_minus_beta2, eps, weight_decay;
  double log_beta1, log_beta2;

  struct Factors {
    float gradient, correction1, correction2, lr, decay, beta1, beta2, one_minus_beta1, one_minus_beta2, eps;
  };
  // Two threads compute the bias corrections, which are in double.
  __device__ Factors factors(const Scalars* scalars) const {
    __shared__ float correction[2];
    if (threadIdx.x < 2)
      correction[threadIdx.x] =
          float(1 / bias_correction(threadIdx.x == 0 ? log_beta1 : log_beta2, scalars->adam_step));
    __syncthreads();
    return {scalars->grad_factor,
            correction[0],
            correction[1],
            scalars->lr,
            scalars->lr * weight_decay,
            beta1,
            beta2,
            one_minus_beta1,
            one_minus_beta2,
            eps};
  }
  __device__ static void apply(const Factors& f, float g, float& p, float* state) {
    g *= f.gradient;
    float m = state[0] = f.beta1 * state[0] + f.one_minus_beta1 * g;
    float v = state[1] = f.beta2 * state[1] + f.one_minus_beta2 * g * g;
    float step = m * f.correction1 / (sqrtf(v * f.correction2) + f.eps);
    p = p - p * f.decay - step * f.lr;
  }
};

inline AdamW adamw_rule(const Attrs& a) {
  double beta1 = a.number("beta1"), beta2 = a.number("beta2");
  return {float(beta1),     float(beta2),           float(1 - beta1),
          float(1 - beta2), float(a.number("eps")), float(a.number("weight_decay")),
          std::log(beta1),  std::log(beta2)};
}

}  // namespace crest::cuda
