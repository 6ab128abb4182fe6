// GELU in its tanh form on vectors.
#pragma once
#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {

constexpr float gelu_c = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float gelu_k = 0.044715f;

// x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
CREST_INLINE Vf gelu_of(Vf x) {
  Vf u = 2.0f * gelu_c * (x + gelu_k * x * x * x);
  return x * sigmoid(u);
}

}  // namespace crest::cpu::CREST_ISA
