#include "comm/reduce.h"

#include <algorithm>
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

// Elements at a time: their sums stay in the first-level cache while parts are added.
constexpr int64_t block = 2048;

template <class T>
void sum(T* out, const std::vector<const void*>& parts, int64_t n, bool mean) {
  using Wide = decltype(widened(T()));
  Wide sums[block];
  Wide ranks = Wide(parts.size());
  for (int64_t first = 0; first < n; first += block) {
    int64_t count = std::min(block, n - first);
    for (size_t p = 0; p < parts.size(); ++p) {
      const T* x = static_cast<const T*>(parts[p]) + first;
      // Without omp simd, the compiler takes loops of unknown length one element at a time.
      if (p == 0) {
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) sums[i] = widened(x[i]);
      } else {
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) sums[i] += widened(x[i]);
      }
    }
    T* to = out + first;
    if (mean) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) to[i] = rounded<T>(sums[i] / ranks);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) to[i] = rounded<T>(sums[i]);
    }
  }
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

void sum_in_order(void* out, const std::vector<const void*>& parts, DType dtype, int64_t n, bool mean) {
  with_type(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    sum(static_cast<T*>(out), parts, n, mean);
  });
}

}  // namespace crest
