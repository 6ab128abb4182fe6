#include "backend/cpu/simd/cross_entropy.h"

#include <type_traits>

#include "backend/cpu/simd/float_type.h"

namespace crest::cpu::CREST_ISA {
namespace {

// a > b ? a : b (b if either is NaN) in one
// instruction, not found by the compiler.
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

// The logits of the softmax from the ones in memory, and their slopes.
struct NoCap {
  explicit NoCap(const CrossEntropyArgs&) {}
  static constexpr bool caps = false;
  Vf operator()(Vf x) const { return x; }
};
struct TanhCap {
  explicit TanhCap(const CrossEntropyArgs& a) : cap(a.cap), inverse(1.0f / a.cap) {}
  static constexpr bool caps = true;
  Vf operator()(Vf x) const { return tanh(x * inverse) * cap; }
  // 1 - tanh^2 u = 4 e / (1 + e)^2 with e = e^(-2 |u|) does not cancel.
  Vf slope(Vf x) const {
    const Vf magnitude = as_float(as_bits(x * inverse) & 0x7fffffffu);
    const Vf e = exp_clamped(-2.0f * magnitude), r = reciprocal(1.0f + e);
    return 4.0f * e * r * r;
  }
  float cap, inverse;
};

// The sum of a row's exponentials is `sum` e^`max`.
struct RowSum {
  float max;
  double sum;
};

constexpr int64_t block = cross_entropy_block;

// A row's exponentials, for the gradient: in block b of x - max[b], the maximum so far.
struct Exponentials {
  float *e, *max;
};

// One pass over memory: each block is read into the first-level cache for its maximum, and again
// for the exponentials; the sum so far is rescaled when the maximum grows (online softmax, Milakov
// and Gimelshein 2018). Sums of blocks are added in double, so the error is the exponential's
// (relative 3e-7) whatever the length.
template <bool keep, class Cap, class T>
RowSum row_sum(const T* x, int64_t n, Cap cap, Exponentials kept) {
  const float lowest = -__builtin_inff();
  RowSum r{lowest, 0};
  for (int64_t j = 0; j < n; j += block) {
    int64_t size = n - j < block ? n - j : block, i = 0;
    const T* p = x + j;
    Vf m0 = splat(lowest), m1 = m0;  // of the logits in memory: a cap keeps their order
    for (; i + 2 * lanes <= size; i += 2 * lanes) m0 = larger(load(p + i), m0), m1 = larger(load(p + i + lanes), m1);
    float m = max_of(larger(m0, m1));
    for (; i < size; ++i) {
      float one = load_n(p + i, 1)[0];
      m = one > m ? one : m;
    }
    m = cap(splat(m))[0];
    if (m > r.max) {
      r.sum *= r.max == lowest ? 0.0 : double(probability(splat(r.max - m))[0]);
      r.max = m;
    }
    // A block of -inf alone adds nothing; of NaN, NaN.
    float shift = r.max == lowest ? 0.0f : r.max;
    if (keep) kept.max[j / block] = r.max;
    auto exponential = [&](Vf x) {
      const Vf below = cap(x) - shift;
      return keep ? probability(below) : exp_below_zero(below);
    };
    Vf s0{}, s1{};
    i = 0;
    for (; i + 2 * lanes <= size; i += 2 * lanes) {
      Vf e0 = exponential(load(p + i)), e1 = exponential(load(p + i + lanes));
      s0 += e0, s1 += e1;
      if (keep) store(kept.e + j + i, e0), store(kept.e + j + i + lanes, e1);
    }
    for (; i + lanes <= size; i += lanes) {
      Vf e = exponential(load(p + i));
      s0 += e;
      if (keep) store(kept.e + j + i, e);
    }
    r.sum += double(sum(s0 + s1));
    for (; i < size; ++i) {
      Vf e = exponential(load_n(p + i, 1));
      r.sum += double(e[0]);
      if (keep) kept.e[j + i] = e[0];
    }
  }
  return r;
}

template <class Cap, class T>
float one(Cap cap, const T* p) {
  return cap(load_n(p, 1))[0];
}

bool counted(const CrossEntropyArgs& a, int64_t row) { return a.targets[row] >= 0 && a.targets[row] < a.all; }
// The column of the target; -1: it is another rank's, or not counted.
int64_t target_column(const CrossEntropyArgs& a, int64_t row) {
  const int64_t column = a.targets[row] - a.first;
  return column >= 0 && column < a.vocab ? column : -1;
}

template <class T>
void write_zeros(T* d, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) { store_some(d + i, Vf{}, k); });
}

// The gradient where the row's target is. slope: of its logit.
template <class T>
void write_target(const CrossEntropyArgs& a, T* d, int64_t column, float probability, float slope) {
  store_n(d + column, splat((probability - 1.0f) * a.factor * slope), 1);
}
template <class Cap, class T>
float slope_at(Cap cap, const T* p) {
  if constexpr (Cap::caps) return cap.slope(load_n(p, 1))[0];
  return 1.0f;
}
// A gradient by logits -> the gradient by the logits in memory at p.
template <class Cap, class T>
CREST_INLINE Vf through(Cap cap, Vf gradient, const T* p, int64_t k) {
  if constexpr (Cap::caps) return gradient * cap.slope(load_some(p, k));
  return gradient;
}

// In the order of the ranks.
void combine(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    float max = -__builtin_inff();
    double sum = 0, at_target = 0;
    auto of = [&](int64_t rank) { return a.stats + (rank * a.rows + r) * 3; };
    for (int64_t k = 0; k < a.ranks; ++k) max = of(k)[0] > max ? of(k)[0] : max;
    for (int64_t k = 0; k < a.ranks; ++k) {
      sum += double(of(k)[1]) * __builtin_exp(double(of(k)[0]) - double(max));
      at_target += double(of(k)[2]);
    }
    const double lse = double(max) + __builtin_log(sum);
    a.lse[r] = float(lse);
    a.loss[r] = counted(a, r) ? float(lse - at_target) * a.weight : 0.0f;
  }
}

template <class T, class Cap>
void stats_rows(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  const Cap cap(a);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = (const T*)a.logits + r * a.pitch;
    const RowSum s = row_sum<false>(x, a.vocab, cap, {});
    const int64_t target = target_column(a, r);
    a.stats[r * 3] = s.max, a.stats[r * 3 + 1] = float(s.sum);
    a.stats[r * 3 + 2] = target >= 0 ? one(cap, x + target) : 0.0f;
  }
}

template <class T, class Cap>
void forward_rows(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  const Cap cap(a);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = (const T*)a.logits + r * a.pitch;
    RowSum s = row_sum<false>(x, a.vocab, cap, {});
    double lse = double(s.max) + __builtin_log(s.sum);
    a.lse[r] = float(lse);
    a.loss[r] = counted(a, r) ? float(lse - double(one(cap, x + a.targets[r]))) * a.weight : 0.0f;
  }
}

template <class T, class Cap>
void backward_rows(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  const Cap cap(a);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = (const T*)a.logits + r * a.pitch;
    T* d = (T*)a.dlogits + r * a.d_pitch;
    if (!counted(a, r)) {
      write_zeros(d, a.cols);
      continue;
    }
    const int64_t target = target_column(a, r);
    // Before d takes the memory of x.
    const float lse = a.lse[r], at_target = target >= 0 ? one(cap, x + target) : 0.0f;
    const float slope = target >= 0 ? slope_at(cap, x + target) : 0.0f;
    for_vectors(a.vocab, [&](int64_t i, int64_t k) {
      const Vf gradient = probability(cap(load_some(x + i, k)) - lse) * a.factor;
      store_some(d + i, through(cap, gradient, x + i, k), k);
    });
    write_zeros(d + a.vocab, a.cols - a.vocab);
    if (target >= 0) write_target(a, d, target, probability(splat(at_target - lse))[0], slope);
  }
}

// The exponentials of a row, in floats, stay in the second-level cache until their sum is known.
template <class T, class Cap>
void fused_rows(const CrossEntropyArgs& a, int64_t begin, int64_t end, float* scratch) {
  Exponentials kept{scratch, scratch + a.vocab};
  const Cap cap(a);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = (const T*)a.logits + r * a.pitch;
    T* d = (T*)a.dlogits + r * a.d_pitch;
    if (!counted(a, r)) {
      a.loss[r] = 0;
      write_zeros(d, a.cols);
      continue;
    }
    const float at_target = one(cap, x + a.targets[r]), slope = slope_at(cap, x + a.targets[r]);
    RowSum s = row_sum<true>(x, a.vocab, cap, kept);
    a.loss[r] = float(double(s.max) + __builtin_log(s.sum) - double(at_target)) * a.weight;
    float weight = float(1.0 / s.sum);
    for (int64_t j = 0; j < a.vocab; j += block) {
      float scale = probability(splat(kept.max[j / block] - s.max))[0] * weight * a.factor;
      for_vectors(a.vocab - j < block ? a.vocab - j : block, [&](int64_t i, int64_t k) {
        store_some(d + j + i, through(cap, load_some(kept.e + j + i, k) * scale, x + j + i, k), k);
      });
    }
    write_zeros(d + a.vocab, a.cols - a.vocab);
    write_target(a, d, a.targets[r], probability(splat(at_target - s.max))[0] * weight, slope);
  }
}

template <class F>
void with_cap_and_type(const CrossEntropyArgs& a, F f) {
  with_type(a.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    if (a.cap > 0)
      f.template operator()<T, TanhCap>();
    else
      f.template operator()<T, NoCap>();
  });
}

void stats(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  with_cap_and_type(a, [&]<class T, class Cap>() { stats_rows<T, Cap>(a, begin, end); });
}

void forward(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  with_cap_and_type(a, [&]<class T, class Cap>() { forward_rows<T, Cap>(a, begin, end); });
}

void backward(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  with_cap_and_type(a, [&]<class T, class Cap>() { backward_rows<T, Cap>(a, begin, end); });
}

void fused(const CrossEntropyArgs& a, int64_t begin, int64_t end, float* scratch) {
  with_cap_and_type(a, [&]<class T, class Cap>() { fused_rows<T, Cap>(a, begin, end, scratch); });
}

}  // namespace

const CrossEntropyFunctions cross_entropy_functions = {stats, combine, forward, backward, fused};

}  // namespace crest::cpu::CREST_ISA
