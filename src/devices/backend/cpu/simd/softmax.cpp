#include "backend/cpu/simd/softmax.h"

#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

constexpr float infinity = __builtin_inff();

CREST_INLINE int64_t visible(const SoftmaxRows& rows, int64_t r) { return rows.causal ? r % rows.cols + 1 : rows.cols; }
template <class T>
CREST_INLINE void clear(T* y, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) { store_some(y + i, Vf{}, k); });
}

template <class T>
void forward_rows(const T* x, T* y, const SoftmaxRows& rows, float* e) {
  float scale = rows.scale;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* xr = x + r * rows.cols;
    T* yr = y + r * rows.cols;
    int64_t n = visible(rows, r), i = 0;
    Vf m = splat(-infinity);
    for (; i + lanes <= n; i += lanes) m = max(load(xr + i) * scale, m);
    float top = max_of(m);
    if (i < n) {
      float tail[lanes];
      store(tail, load_n(xr + i, n - i) * scale);
      for (int64_t k = 0; k < n - i; ++k) top = tail[k] > top ? tail[k] : top;
    }
    if (top == -infinity) top = 0;
    Vf total{};
    for (i = 0; i + lanes <= n; i += lanes) {
      Vf p = exp(load(xr + i) * scale - top);
      store(e + i, p);
      total += p;
    }
    float s = sum(total);
    if (i < n) {
      store_n(e + i, exp(load_n(xr + i, n - i) * scale - top), n - i);
      for (; i < n; ++i) s += e[i];
    }
    float inverse = s == 0 ? 0.0f : 1.0f / s;
    for_vectors(n, [&](int64_t j, int64_t k) { store_some(yr + j, load_some(e + j, k) * inverse, k); });
    clear(yr + n, rows.cols - n);
  }
}

template <class T>
void backward_rows(const T* dy, const T* y, T* dx, const SoftmaxRows& rows) {
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* d = dy + r * rows.cols;
    const T* p = y + r * rows.cols;
    T* out = dx + r * rows.cols;
    int64_t n = visible(rows, r);
    Vf total{};
    for_vectors(n, [&](int64_t i, int64_t k) { total += load_some(d + i, k) * load_some(p + i, k); });
    float s = sum(total);
    for_vectors(n, [&](int64_t i, int64_t k) {
      store_some(out + i, load_some(p + i, k) * rows.scale * (load_some(d + i, k) - s), k);
    });
    clear(out + n, rows.cols - n);
  }
}

template <class T>
void mask_rows(const T* x, T* y, const MaskRows& rows) {
  int64_t size = rows.size;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    int64_t visible = r % size + 1, before = 0;
    if (rows.positions) before = visible - 1 - rows.positions[r / (size * rows.heads) * size + r % size];
    if (rows.window && before < visible - rows.window) before = visible - rows.window;
    const T* xr = x + r * size;
    T* yr = y + r * size;
    if (x != y) for_vectors(visible, [&](int64_t i, int64_t k) { store_some(yr + i, load_some(xr + i, k), k); });
    for_vectors(size - visible, [&](int64_t i, int64_t k) { store_some(yr + visible + i, splat(-infinity), k); });
    if (before > 0) for_vectors(before, [&](int64_t i, int64_t k) { store_some(yr + i, splat(-infinity), k); });
  }
}

void forward(const void* x, void* y, DType t, const SoftmaxRows& rows, float* scratch) {
  if (t == DType::f32)
    forward_rows((const float*)x, (float*)y, rows, scratch);
  else if (t == DType::bf16)
    forward_rows((const bfloat16*)x, (bfloat16*)y, rows, scratch);
  else
    forward_rows((const float16*)x, (float16*)y, rows, scratch);
}
void backward(const void* dy, const void* y, void* dx, DType t, const SoftmaxRows& rows) {
  if (t == DType::f32)
    backward_rows((const float*)dy, (const float*)y, (float*)dx, rows);
  else if (t == DType::bf16)
    backward_rows((const bfloat16*)dy, (const bfloat16*)y, (bfloat16*)dx, rows);
  else
    backward_rows((const float16*)dy, (const float16*)y, (float16*)dx, rows);
}
void causal_mask(const void* x, void* y, DType t, const MaskRows& rows) {
  if (t == DType::f32)
    mask_rows((const float*)x, (float*)y, rows);
  else if (t == DType::bf16)
    mask_rows((const bfloat16*)x, (bfloat16*)y, rows);
  else
    mask_rows((const float16*)x, (float16*)y, rows);
}

}  // namespace

const SoftmaxFunctions softmax_functions = {forward, backward, causal_mask};

}  // namespace crest::cpu::CREST_ISA
