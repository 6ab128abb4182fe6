#include "backend/cpu/simd/reduce.h"

#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

// Four rows at a time, so the sums pass the first-level cache once per four rows.
template <class T>
void column_sums_of(float* sums, const T* x, int64_t rows, int64_t cols) {
  for_vectors(cols, [&](int64_t i, int64_t k) { store_some(sums + i, Vf{}, k); });
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const T *a = x + r * cols, *b = a + cols, *c = b + cols, *d = c + cols;
    for_vectors(cols, [&](int64_t i, int64_t k) {
      Vf s = (load_some(a + i, k) + load_some(b + i, k)) + (load_some(c + i, k) + load_some(d + i, k));
      store_some(sums + i, load_some(sums + i, k) + s, k);
    });
  }
  for (; r < rows; ++r)
    for_vectors(cols, [&](int64_t i, int64_t k) {
      store_some(sums + i, load_some(sums + i, k) + load_some(x + r * cols + i, k), k);
    });
}

void column_sums(float* sums, const void* x, DType dtype, int64_t rows, int64_t cols) {
  if (dtype == DType::f32)
    column_sums_of(sums, (const float*)x, rows, cols);
  else if (dtype == DType::bf16)
    column_sums_of(sums, (const bfloat16*)x, rows, cols);
  else
    column_sums_of(sums, (const float16*)x, rows, cols);
}

template <class T>
void combine_into(T* to, bool accumulate, const float* parts, int64_t count, int64_t stride, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) {
    Vf s = load_some(parts + i, k);
    for (int64_t p = 1; p < count; ++p) s += load_some(parts + p * stride + i, k);
    if (accumulate) s += load_some(to + i, k);
    store_some(to + i, s, k);
  });
}

void combine(void* to, DType dtype, bool accumulate, const float* parts, int64_t count, int64_t stride, int64_t n) {
  if (dtype == DType::f32)
    combine_into((float*)to, accumulate, parts, count, stride, n);
  else if (dtype == DType::bf16)
    combine_into((bfloat16*)to, accumulate, parts, count, stride, n);
  else
    combine_into((float16*)to, accumulate, parts, count, stride, n);
}

typedef double Vd __attribute__((vector_size(CREST_LANES * 4)));  // one register of doubles: half as many lanes
#if CREST_LANES >= 8
CREST_INLINE Vd low_half(Vf x) { return __builtin_convertvector(low(x), Vd); }
CREST_INLINE Vd high_half(Vf x) { return __builtin_convertvector(high(x), Vd); }
#else
CREST_INLINE Vd low_half(Vf x) { return Vd{x[0], x[1]}; }
CREST_INLINE Vd high_half(Vf x) { return Vd{x[2], x[3]}; }
#endif

// Squares in double: a float gradient above 1.8e19 is finite, its square in float is not. Four
// quarters are read side by side: one stream alone leaves most of the memory bandwidth unused.
template <class T>
double squares_of(const T* x, int64_t n) {
  Vd s0{}, s1{}, s2{}, s3{};
  auto add = [](Vd& s, Vf p) {
    Vd a = low_half(p), b = high_half(p);
    s += a * a;
    s += b * b;
  };
  int64_t quarter = n / (4 * lanes) * lanes;
  for (int64_t i = 0; i < quarter; i += lanes) {
    add(s0, load(x + i));
    add(s1, load(x + i + quarter));
    add(s2, load(x + i + 2 * quarter));
    add(s3, load(x + i + 3 * quarter));
  }
  for (int64_t i = 4 * quarter; i < n; i += lanes) add(s0, load_some(x + i, n - i < lanes ? n - i : lanes));
  s0 = (s0 + s1) + (s2 + s3);
  double sum = 0;
  for (int lane = 0; lane < lanes / 2; ++lane) sum += s0[lane];
  return sum;
}

double squares(const void* x, DType dtype, int64_t n) {
  if (dtype == DType::f32) return squares_of((const float*)x, n);
  if (dtype == DType::bf16) return squares_of((const bfloat16*)x, n);
  return squares_of((const float16*)x, n);
}

}  // namespace

const ReduceFunctions reduce_functions = {column_sums, combine, squares};

}  // namespace crest::cpu::CREST_ISA
