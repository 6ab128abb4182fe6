#include "backend/cpu/simd/optimizer.h"

#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

CREST_INLINE Vf square_root(Vf x) {
#if defined(__x86_64__) && CREST_LANES == 16
  return (Vf)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);
#elif defined(__x86_64__) && CREST_LANES == 8
  return (Vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__x86_64__)
  return (Vf)_mm_sqrt_ps((__m128)x);
#else
  for (int i = 0; i < lanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (ICLR 2019), algorithm 2.
template <class G, class W>
void adamw_range(const AdamwArgs& a, const G* g, W* w, int64_t begin, int64_t end) {
  for_vectors(end - begin, [&](int64_t offset, int64_t k) {
    int64_t i = begin + offset;
    Vf grad = load_some(g + i, k) * a.gradient_factor;
    Vf m = load_some(a.m + i, k) * a.beta1 + grad * a.one_minus_beta1;
    Vf v = load_some(a.v + i, k) * a.beta2 + grad * grad * a.one_minus_beta2;
    Vf p = load_some(a.master + i, k);
    Vf update = m * a.correction1 / (square_root(v * a.correction2) + a.eps);
    p = p - p * a.decay - update * a.lr;
    store_some(a.m + i, m, k);
    store_some(a.v + i, v, k);
    store_some(a.master + i, p, k);
    if (w) store_some(w + i, p, k);
  });
}

template <class G>
void adamw_gradient(const AdamwArgs& a, int64_t begin, int64_t end) {
  auto* g = (const G*)a.gradient;
  if (!a.weight)
    adamw_range(a, g, (float*)nullptr, begin, end);
  else if (a.weight_dtype == DType::f32)
    adamw_range(a, g, (float*)a.weight, begin, end);
  else if (a.weight_dtype == DType::bf16)
    adamw_range(a, g, (bfloat16*)a.weight, begin, end);
  else
    adamw_range(a, g, (float16*)a.weight, begin, end);
}

void adamw(const AdamwArgs& a, int64_t begin, int64_t end) {
  if (a.gradient_dtype == DType::f32)
    adamw_gradient<float>(a, begin, end);
  else if (a.gradient_dtype == DType::bf16)
    adamw_gradient<bfloat16>(a, begin, end);
  else
    adamw_gradient<float16>(a, begin, end);
}

}  // namespace

const OptimizerFunctions optimizer_functions = {adamw};

}  // namespace crest::cpu::CREST_ISA
