#include "backend/cpu/simd/decode.h"

#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {
namespace {

// o[0 .. n vectors) = sum of weight[j] v[j]: up to four vectors of the row stay in registers.
template <int N, class T>
CREST_INLINE void weighted_sum(const T* v, int64_t stride, const float* weight, int64_t keys, T* o, int64_t width) {
  Vf acc[N] = {};
  int64_t last = width - (N - 1) * lanes;  // elements of the last vector
  for (int64_t j = 0; j < keys; ++j) {
    const T* row = v + j * stride;
    for (int i = 0; i < N - 1; ++i) acc[i] += load(row + i * lanes) * weight[j];
    acc[N - 1] += load_some(row + (N - 1) * lanes, last) * weight[j];
  }
  for (int i = 0; i < N - 1; ++i) store(o + i * lanes, acc[i]);
  store_some(o + (N - 1) * lanes, acc[N - 1], last);
}

template <class T>
void one_query(const AttentionArgs& a, int64_t head, int64_t t, int64_t visible, float* scratch) {
  int64_t dim = a.head_dim;
  float* q = scratch;
  float* s = scratch + 256;
  for_vectors(dim, [&](int64_t i, int64_t k) {
    store_some(q + i, load_some((const T*)a.q + head * dim + t * a.q_stride + i, k) * (a.scale * 1.44269504f), k);
  });
  float top = -__builtin_inff();
  for (int64_t j = 0; j < visible; ++j) {
    const T* key = (const T*)a.k + j * a.k_stride;
    Vf d{};
    for_vectors(dim, [&](int64_t i, int64_t k) { d += load_some(key + i, k) * load_some(q + i, k); });
    s[j] = sum(d);
    top = s[j] > top ? s[j] : top;
  }
  float total = 0;
  for_vectors(visible, [&](int64_t i, int64_t k) { store_some(s + i, exp2_negative(load_some(s + i, k) - top), k); });
  for (int64_t j = 0; j < visible; ++j) total += s[j];
  float inverse = 1.0f / total;
  for_vectors(visible, [&](int64_t i, int64_t k) { store_some(s + i, load_some(s + i, k) * inverse, k); });
  T* o = (T*)a.o + head * dim + t * a.o_stride;
  const T* v = (const T*)a.v;
  for (int64_t i = 0; i < dim; i += 4 * lanes) {
    int64_t width = dim - i < 4 * lanes ? dim - i : 4 * lanes, n = (width + lanes - 1) / lanes;
    if (n == 4)
      weighted_sum<4>(v + i, a.v_stride, s, visible, o + i, width);
    else if (n == 3)
      weighted_sum<3>(v + i, a.v_stride, s, visible, o + i, width);
    else if (n == 2)
      weighted_sum<2>(v + i, a.v_stride, s, visible, o + i, width);
    else
      weighted_sum<1>(v + i, a.v_stride, s, visible, o + i, width);
  }
}

void query(const AttentionArgs& a, int64_t head, int64_t t, int64_t visible, float* scratch) {
  if (a.dtype == DType::f32)
    one_query<float>(a, head, t, visible, scratch);
  else if (a.dtype == DType::bf16)
    one_query<bfloat16>(a, head, t, visible, scratch);
  else
    one_query<float16>(a, head, t, visible, scratch);
}

}  // namespace

const DecodeFunctions decode_functions = {query};

}  // namespace crest::cpu::CREST_ISA
