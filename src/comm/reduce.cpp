#include "comm/reduce.h"

#include <type_traits>

#include "core/error.h"

namespace crest {

namespace {

float widened(float x) { return x; }
double widened(double x) { return x; }
float widened(bfloat16 x) { return to_float(x); }
float widened(float16 x) { return to_float(x); }

template <class T, class Wide>
T rounded(Wide x) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return to_bfloat16(float(x));
  else if constexpr (std::is_same_v<T, float16>)
    return to_float16(float(x));
  else
    return T(x);
}

// omp simd: without it, the compiler processes loops of unknown length one element at a time. Only
// elements at the same position depend on each other, so out may be a or b.
template <class T>
void add(T* out, const T* a, const T* b, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = rounded<T>(widened(a[i]) + widened(b[i]));
}
// Calls f with a null pointer to the dtype's type.
template <class F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f64: return f(static_cast<double*>(nullptr));
    case DType::f32: return f(static_cast<float*>(nullptr));
    case DType::bf16: return f(static_cast<bfloat16*>(nullptr));
    case DType::f16: return f(static_cast<float16*>(nullptr));
    default: fail_internal("collectives reduce floats only", std::string(name(dtype)));
  }
}

}  // namespace

void add_elements(void* out, const void* a, const void* b, DType dtype, int64_t n) {
  with_type(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    add(static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b), n);
  });
}

void scale_elements(void* data, DType dtype, int64_t n, double factor) {
  with_type(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* x = static_cast<T*>(data);
    for (int64_t i = 0; i < n; ++i) x[i] = rounded<T>(double(widened(x[i])) * factor);
  });
}

}  // namespace crest
