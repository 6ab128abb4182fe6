#include "backend/cpu/simd/norm.h"

#include "backend/cpu/simd/dropout_row.h"
#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

float sum_row(const float* x, int64_t n) {
  Vf a{}, b{};
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) a += load(x + i), b += load(x + i + lanes);
  for (; i + lanes <= n; i += lanes) a += load(x + i);
  if (i < n) b += load_n(x + i, n - i);
  return sum(a + b);
}

// Sum of (x - shift)^2.
float squares_row(const float* x, float shift, int64_t n) {
  Vf a{}, b{};
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    Vf p = load(x + i) - shift, q = load(x + i + lanes) - shift;
    a += p * p, b += q * q;
  }
  for (; i + lanes <= n; i += lanes) {
    Vf p = load(x + i) - shift;
    a += p * p;
  }
  float s = sum(a + b);
  for (; i < n; ++i) s += (x[i] - shift) * (x[i] - shift);
  return s;
}

// s = a + b, rounded to the storage type; the rounded sums stay in `out` as floats.
template <class T>
void add_row(const T* a, const T* b, T* s, float* out, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) {
    store_some(s + i, load_some(a + i, k) + load_some(b + i, k), k);
    store_some(out + i, load_some(s + i, k), k);
  });
}

template <class T>
void write_row(T* y, const float* x, const float* gamma, const float* beta, float mean, float rstd, int64_t n) {
  if (beta)
    for_vectors(n, [&](int64_t i, int64_t k) {
      Vf xhat = (load_some(x + i, k) - mean) * rstd;
      store_some(y + i, xhat * load_some(gamma + i, k) + load_some(beta + i, k), k);
    });
  else
    for_vectors(n, [&](int64_t i, int64_t k) {
      store_some(y + i, (load_some(x + i, k) - mean) * rstd * load_some(gamma + i, k), k);
    });
}

template <class T>
void forward_rows(const NormArgs& a, int64_t begin, int64_t end, float* scratch) {
  int64_t n = a.cols;
  for (int64_t r = begin; r < end; ++r) {
    const float* x;
    if (a.b) {
      const T* b = (const T*)a.b + r * n;
      if (a.dropout.scalars) {
        T* dropped = (T*)(scratch + n);
        drop_row(a.dropout, r, b, dropped, n);
        b = dropped;
      }
      add_row((const T*)a.x + r * n, b, (T*)a.s + r * n, scratch, n);
      x = scratch;
    } else {
      x = as_floats(row_of(a.x, a.dtype, r * n), a.dtype, n, scratch);
    }
    float mean = a.mean ? sum_row(x, n) / float(n) : 0.0f;
    float rstd = 1.0f / __builtin_sqrtf(squares_row(x, mean, n) / float(n) + a.eps);
    if (a.mean) a.mean[r] = mean;
    a.rstd[r] = rstd;
    write_row((T*)a.y + r * n, x, a.gamma, a.beta, mean, rstd, n);
  }
}

template <class T>
void apply_rows(const NormArgs& a, int64_t begin, int64_t end, float* scratch) {
  for (int64_t r = begin; r < end; ++r) {
    const float* x = as_floats(row_of(a.x, a.dtype, r * a.cols), a.dtype, a.cols, scratch);
    write_row((T*)a.y + r * a.cols, x, a.gamma, a.beta, a.mean ? a.mean[r] : 0.0f, a.rstd[r], a.cols);
  }
}

template <class T>
void backward_rows(const NormGradArgs& a, int64_t begin, int64_t end, float* dgamma, float* dbeta, float* scratch) {
  int64_t n = a.cols;
  float* xhat = scratch;
  float* g = scratch + n;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = (const T*)a.x + r * n;
    const T* dy = (const T*)a.dy + r * n;
    T* dx = (T*)a.dx + r * n;
    float mean = a.mean ? a.mean[r] : 0.0f, rstd = a.rstd[r];
    Vf sum_g{}, sum_gx{};
    for_vectors(n, [&](int64_t i, int64_t k) {
      Vf d = load_some(dy + i, k), xh = (load_some(x + i, k) - mean) * rstd;
      Vf gi = d * load_some(a.gamma + i, k);
      store_some(dgamma + i, load_some(dgamma + i, k) + d * xh, k);
      if (dbeta) store_some(dbeta + i, load_some(dbeta + i, k) + d, k);
      sum_g += gi, sum_gx += gi * xh;
      store_some(xhat + i, xh, k), store_some(g + i, gi, k);
    });
    // Lanes of a tail have g = 0, so their x - mean does not count.
    float c = a.mean ? sum(sum_g) / float(n) : 0.0f, b = sum(sum_gx) / float(n);
    if (a.dres) {
      const T* dres = (const T*)a.dres + r * n;
      for_vectors(n, [&](int64_t i, int64_t k) {
        Vf d = (load_some(g + i, k) - c - load_some(xhat + i, k) * b) * rstd;
        store_some(dx + i, d + load_some(dres + i, k), k);
      });
    } else {
      for_vectors(n, [&](int64_t i, int64_t k) {
        store_some(dx + i, (load_some(g + i, k) - c - load_some(xhat + i, k) * b) * rstd, k);
      });
    }
    if (a.dropout.scalars) drop_row(a.dropout, r, dx, a.dropped ? (T*)a.dropped + r * n : dx, n);
  }
}

void forward(const NormArgs& a, int64_t begin, int64_t end, float* scratch) {
  if (a.dtype == DType::f32)
    forward_rows<float>(a, begin, end, scratch);
  else if (a.dtype == DType::bf16)
    forward_rows<bfloat16>(a, begin, end, scratch);
  else
    forward_rows<float16>(a, begin, end, scratch);
}

void apply(const NormArgs& a, int64_t begin, int64_t end, float* scratch) {
  if (a.dtype == DType::f32)
    apply_rows<float>(a, begin, end, scratch);
  else if (a.dtype == DType::bf16)
    apply_rows<bfloat16>(a, begin, end, scratch);
  else
    apply_rows<float16>(a, begin, end, scratch);
}

void backward(const NormGradArgs& a, int64_t begin, int64_t end, float* dgamma, float* dbeta, float* scratch) {
  if (a.dtype == DType::f32)
    backward_rows<float>(a, begin, end, dgamma, dbeta, scratch);
  else if (a.dtype == DType::bf16)
    backward_rows<bfloat16>(a, begin, end, dgamma, dbeta, scratch);
  else
    backward_rows<float16>(a, begin, end, dgamma, dbeta, scratch);
}

void combine(float* to, const float* parts, int64_t count, int64_t stride, int64_t begin, int64_t end) {
  for_vectors(end - begin, [&](int64_t i, int64_t k) {
    Vf s = load_some(parts + begin + i, k);
    for (int64_t p = 1; p < count; ++p) s += load_some(parts + p * stride + begin + i, k);
    store_some(to + begin + i, s, k);
  });
}

}  // namespace

const NormFunctions norm_functions = {forward, apply, backward, combine};

}  // namespace crest::cpu::CREST_ISA
