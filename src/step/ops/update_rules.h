// One step of an element-wise optimizer on a parameter and its states, written once for all
// kernels. A rule is a struct named as its operation (ops/update_ops.h):
//   states          tensors besides the parameter
//   bias_corrected  reads correction1 and correction2
//   bf16            the parameter may be bf16 without a master
//   apply           g: the gradient times gradient_factor; changes the parameter p and the states
// Math defines the numbers: Number (double, float, a vector of floats), Factor (double, float),
// splat, root.
#pragma once
#include <cmath>

#include "core/host_device.h"

namespace crest {

// The factors of a step.
template <class Factor>
struct UpdateStep {
  Factor gradient_factor, lr, decay;  // decay = lr * weight_decay
  Factor beta1, beta2, one_minus_beta1, one_minus_beta2;
  Factor correction1, correction2;  // 1 / (1 - beta^t)
  Factor eps;
};

template <class T>
struct ScalarMath {
  using Number = T;
  using Factor = T;
  CREST_BOTH_INLINE static T splat(T x) { return x; }
  CREST_BOTH_INLINE static T root(T x) { return sqrt(x); }
};

namespace update_rules {

// Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (ICLR 2019), algorithm 2.
template <class Math>
struct adamw {
  static constexpr int states = 2;
  static constexpr bool bias_corrected = true, bf16 = true;
  using X = typename Math::Number;
  CREST_BOTH_INLINE static void apply(const UpdateStep<typename Math::Factor>& s, X g, X& p, X* state) {
    X m = state[0] = state[0] * s.beta1 + g * s.one_minus_beta1;
    X v = state[1] = state[1] * s.beta2 + g * g * s.one_minus_beta2;
    X update = m * s.correction1 / (Math::root(v * s.correction2) + s.eps);
    p = p - p * s.decay - update * s.lr;
  }
};

// Momentum (beta1) in PyTorch's form (Sutskever et al. 2013), with decoupled decay.
template <class Math>
struct sgd {
  static constexpr int states = 1;
  static constexpr bool bias_corrected = false, bf16 = false;
  using X = typename Math::Number;
  CREST_BOTH_INLINE static void apply(const UpdateStep<typename Math::Factor>& s, X g, X& p, X* state) {
    state[0] = state[0] * s.beta1 + g;
    p = p - p * s.decay - state[0] * s.lr;
  }
};

// Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023), algorithm 2.
template <class Math>
struct lion {
  static constexpr int states = 1;
  static constexpr bool bias_corrected = false, bf16 = false;
  using X = typename Math::Number;
  CREST_BOTH_INLINE static void apply(const UpdateStep<typename Math::Factor>& s, X g, X& p, X* state) {
    X direction = state[0] * s.beta1 + g * s.one_minus_beta1, zero = Math::splat(0);
    X step = direction > zero ? Math::splat(s.lr) : zero;
    step = direction < zero ? Math::splat(-s.lr) : step;
    p = p - p * s.decay - step;
    state[0] = state[0] * s.beta2 + g * s.one_minus_beta2;
  }
};

}  // namespace update_rules
}  // namespace crest
