#include "comm/reduce.h"

#include "core/error.h"

namespace crest {

namespace {

float widened(float x) { return x; }
double widened(double x) { return x; }
float widened(bfloat16 x) { return to_float(x); }
float widened(float16 x) { return to_float(x); }

template <class T>
T narrowed(double x) {
  return T(x);
}
template <>
bfloat16 narrowed<bfloat16>(double x) {
  return to_bfloat16(float(x));
}
template <>
float16 narrowed<float16>(double x) {
  return to_float16(float(x));
}

template <class T>
void add(T* out, const T* a, const T* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = narrowed<T>(widened(a[i]) + widened(b[i]));
}
// Not through double, so that it is vectorised.
template <>
void add<float>(float* out, const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

// Calls f with a null pointer of the dtype's type.
template <class F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f64: return f(static_cast<double*>(nullptr));
    case DType::f32: return f(static_cast<float*>(nullptr));
    case DType::bf16: return f(static_cast<bfloat16*>(nullptr));
    case DType::f16: return f(static_cast<float16*>(nullptr));
    default: fail_internal("collectives reduce floating numbers only", std::string(name(dtype)));
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
    for (int64_t i = 0; i < n; ++i) x[i] = narrowed<T>(double(widened(x[i])) * factor);
  });
}

}  // namespace crest
