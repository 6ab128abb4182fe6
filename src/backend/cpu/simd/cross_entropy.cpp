#include "backend/cpu/simd/cross_entropy.h"

#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

// a > b ? a : b (b where one is NaN) in one instruction, which the compiler does not find by itself.
CREST_INLINE Vf larger(Vf a, Vf b) {
#if CREST_LANES == 16
  return (Vf)_mm512_maskz_max_ps(0xffff, (__m512)a, (__m512)b);
#else
  return a > b ? a : b;
#endif
}

// e^x for x <= 0; 1e-38 (not 0) below -87.3; NaN stays NaN.
CREST_INLINE Vf exp_below_zero(Vf x) { return exp_in_range(larger(splat(-87.3f), x)); }
// The same, 0 below -87.3.
CREST_INLINE Vf probability(Vf x) {
  Vf p = exp_below_zero(x);
  return x < -87.3f ? Vf{} : p;
}

// The sum of a row's exponentials is `sum` e^`max`.
struct RowSum {
  float max;
  double sum;
};

// One pass over memory: each block is read into the first-level cache for its maximum, and again for the exponentials;
// the sum so far is rescaled when the maximum grows (online softmax, Milakov and Gimelshein 2018). Sums of blocks are
// added in double, so that the error is that of the exponential (relative 3e-7) and not of the length.
template <class T>
RowSum row_sum(const T* x, int64_t n) {
  constexpr int64_t block = 1024;
  const float lowest = -__builtin_inff();
  RowSum r{lowest, 0};
  for (int64_t j = 0; j < n; j += block) {
    int64_t size = n - j < block ? n - j : block, i = 0;
    const T* p = x + j;
    Vf m0 = splat(r.max), m1 = m0;
    for (; i + 2 * lanes <= size; i += 2 * lanes) m0 = larger(load(p + i), m0), m1 = larger(load(p + i + lanes), m1);
    float m = max_of(larger(m0, m1));
    for (; i < size; ++i) {
      float one = load_n(p + i, 1)[0];
      m = one > m ? one : m;
    }
    if (m > r.max) {
      r.sum *= r.max == lowest ? 0.0 : double(probability(splat(r.max - m))[0]);
      r.max = m;
    }
    // A block of -inf alone adds nothing; of NaN, NaN.
    float shift = r.max == lowest ? 0.0f : r.max;
    Vf s0{}, s1{};
    i = 0;
    for (; i + 2 * lanes <= size; i += 2 * lanes)
      s0 += exp_below_zero(load(p + i) - shift), s1 += exp_below_zero(load(p + i + lanes) - shift);
    for (; i + lanes <= size; i += lanes) s0 += exp_below_zero(load(p + i) - shift);
    r.sum += double(sum(s0 + s1));
    for (; i < size; ++i) r.sum += double(exp_below_zero(load_n(p + i, 1) - shift)[0]);
  }
  return r;
}

template <class T>
float one(const T* p) {
  return load_n(p, 1)[0];
}

bool counted(const CrossEntropyArgs& a, int64_t row) { return a.targets[row] >= 0 && a.targets[row] < a.vocab; }

// d = (e^(x - shift) weight - onehot) factor, with d in x's memory or elsewhere.
template <class T>
void write_row(const CrossEntropyArgs& a, T* d, const T* x, int64_t row, float shift, float weight) {
  if (!counted(a, row)) {
    for_vectors(a.cols, [&](int64_t i, int64_t k) { store_some(d + i, Vf{}, k); });
    return;
  }
  float at_target = one(x + a.targets[row]);
  float scale = weight * a.factor;
  for_vectors(a.vocab,
              [&](int64_t i, int64_t k) { store_some(d + i, probability(load_some(x + i, k) - shift) * scale, k); });
  for_vectors(a.cols - a.vocab, [&](int64_t i, int64_t k) { store_some(d + a.vocab + i, Vf{}, k); });
  float p = probability(splat(at_target - shift))[0] * weight;
  store_n(d + a.targets[row], splat((p - 1.0f) * a.factor), 1);
}

template <class T>
void forward_rows(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* x = (const T*)a.logits + r * a.cols;
    RowSum s = row_sum(x, a.vocab);
    double lse = double(s.max) + __builtin_log(s.sum);
    a.lse[r] = float(lse);
    a.loss[r] = counted(a, r) ? float(lse - double(one(x + a.targets[r]))) * a.weight : 0.0f;
  }
}

template <class T>
void backward_rows(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    write_row(a, (T*)a.dlogits + r * a.cols, (const T*)a.logits + r * a.cols, r, a.lse[r], 1.0f);
}

template <class T>
void fused_rows(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* x = (const T*)a.logits + r * a.cols;
    RowSum s{0, 1};
    a.loss[r] = 0;
    if (counted(a, r)) {
      s = row_sum(x, a.vocab);
      a.loss[r] = float(double(s.max) + __builtin_log(s.sum) - double(one(x + a.targets[r]))) * a.weight;
    }
    write_row(a, (T*)a.dlogits + r * a.cols, x, r, s.max, float(1.0 / s.sum));
  }
}

void forward(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  if (a.dtype == DType::f32)
    forward_rows<float>(a, begin, end);
  else if (a.dtype == DType::bf16)
    forward_rows<bfloat16>(a, begin, end);
  else
    forward_rows<float16>(a, begin, end);
}

void backward(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  if (a.dtype == DType::f32)
    backward_rows<float>(a, begin, end);
  else if (a.dtype == DType::bf16)
    backward_rows<bfloat16>(a, begin, end);
  else
    backward_rows<float16>(a, begin, end);
}

void fused(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  if (a.dtype == DType::f32)
    fused_rows<float>(a, begin, end);
  else if (a.dtype == DType::bf16)
    fused_rows<bfloat16>(a, begin, end);
  else
    fused_rows<float16>(a, begin, end);
}

}  // namespace

const CrossEntropyFunctions cross_entropy_functions = {forward, backward, fused};

}  // namespace crest::cpu::CREST_ISA
