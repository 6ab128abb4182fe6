#include "backend/cpu/simd/softmax.h"

#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

constexpr float infinity = __builtin_inff();

template <class T>
void forward_rows(const T* x, T* y, int64_t n, int64_t begin, int64_t end, float* e) {
  for (int64_t r = begin; r < end; ++r) {
    const T* xr = x + r * n;
    T* yr = y + r * n;
    Vf m = splat(-infinity);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) m = max(load(xr + i), m);
    float top = max_of(m);
    if (i < n) {
      float tail[lanes];
      store(tail, load_n(xr + i, n - i));
      for (int64_t k = 0; k < n - i; ++k) top = tail[k] > top ? tail[k] : top;
    }
    if (top == -infinity) top = 0;
    Vf total{};
    for (i = 0; i + lanes <= n; i += lanes) {
      Vf p = exp(load(xr + i) - top);
      store(e + i, p);
      total += p;
    }
    float s = sum(total);
    if (i < n) {
      store_n(e + i, exp(load_n(xr + i, n - i) - top), n - i);
      for (; i < n; ++i) s += e[i];
    }
    float inverse = s == 0 ? 0.0f : 1.0f / s;
    for_vectors(n, [&](int64_t j, int64_t k) { store_some(yr + j, load_some(e + j, k) * inverse, k); });
  }
}

template <class T>
void backward_rows(const T* dy, const T* y, T* dx, int64_t n, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* d = dy + r * n;
    const T* p = y + r * n;
    T* out = dx + r * n;
    Vf total{};
    for_vectors(n, [&](int64_t i, int64_t k) { total += load_some(d + i, k) * load_some(p + i, k); });
    float s = sum(total);
    for_vectors(n,
                [&](int64_t i, int64_t k) { store_some(out + i, load_some(p + i, k) * (load_some(d + i, k) - s), k); });
  }
}

template <class T>
void mask_rows(const T* x, T* y, int64_t size, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    int64_t visible = r % size + 1;
    const T* xr = x + r * size;
    T* yr = y + r * size;
    if (x != y) for_vectors(visible, [&](int64_t i, int64_t k) { store_some(yr + i, load_some(xr + i, k), k); });
    for_vectors(size - visible, [&](int64_t i, int64_t k) { store_some(yr + visible + i, splat(-infinity), k); });
  }
}

void forward(const void* x, void* y, DType t, int64_t n, int64_t begin, int64_t end, float* scratch) {
  if (t == DType::f32)
    forward_rows((const float*)x, (float*)y, n, begin, end, scratch);
  else if (t == DType::bf16)
    forward_rows((const bfloat16*)x, (bfloat16*)y, n, begin, end, scratch);
  else
    forward_rows((const float16*)x, (float16*)y, n, begin, end, scratch);
}
void backward(const void* dy, const void* y, void* dx, DType t, int64_t n, int64_t begin, int64_t end) {
  if (t == DType::f32)
    backward_rows((const float*)dy, (const float*)y, (float*)dx, n, begin, end);
  else if (t == DType::bf16)
    backward_rows((const bfloat16*)dy, (const bfloat16*)y, (bfloat16*)dx, n, begin, end);
  else
    backward_rows((const float16*)dy, (const float16*)y, (float16*)dx, n, begin, end);
}
void causal_mask(const void* x, void* y, DType t, int64_t size, int64_t begin, int64_t end) {
  if (t == DType::f32)
    mask_rows((const float*)x, (float*)y, size, begin, end);
  else if (t == DType::bf16)
    mask_rows((const bfloat16*)x, (bfloat16*)y, size, begin, end);
  else
    mask_rows((const float16*)x, (float16*)y, size, begin, end);
}

}  // namespace

const SoftmaxFunctions softmax_functions = {forward, backward, causal_mask};

}  // namespace crest::cpu::CREST_ISA
