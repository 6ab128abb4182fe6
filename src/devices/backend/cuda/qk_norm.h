// Shared by qk_norm and its gradient. A token has groups: those of queries and of keys share a mean
// (a head, or all heads), those of values are copied. Three ways, by the size of a group:
//   heads: some lanes of a warp, 16 bytes each. In the gradient, they keep their group, so weights
//   and sums over tokens stay in registers.
//   rows: a block, with a group in registers. In the gradient, a block has groups of one kind, of
//   many tokens, and copies the next ones to shared memory while it works on one.
//   any: some lanes, which read a group twice.
#pragma once
#include <climits>
#include <type_traits>

#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda::qk {

inline constexpr int threads = 128, row_threads = 256;

struct QkShape {
  int64_t tokens;
  int width;
  int q_cols, k_cols;  // elements of a group
  int q_groups, k_groups, v_groups;
  int vector, lanes;  // elements of an access, and lanes of a group
  bool heads;         // a group of queries or keys is one access of its lanes
  bool by_row;        // all queries, and all keys, share a mean
  int units;          // accesses of a thread for a group, if a block works on it; 0: it does not
  __host__ __device__ int groups() const { return q_groups + k_groups + v_groups; }
  __device__ bool queries(int g) const { return g < q_groups; }
  __device__ bool values(int g) const { return g >= q_groups + k_groups; }
  __device__ int cols(int g) const { return queries(g) ? q_cols : k_cols; }
  // The first element of a group in the row of its token.
  __device__ int first(int g) const { return queries(g) ? g * q_cols : q_groups * q_cols + (g - q_groups) * k_cols; }
};

inline QkShape shape_of(const Value& qkv, const Attrs& a) {
  const int heads = int(a.integer("heads")), kv_heads = int(a.integer("kv_heads"));
  QkShape s = {};
  s.width = int(qkv.shape.back()), s.tokens = qkv.numel() / s.width;
  const int dim = s.width / (heads + 2 * kv_heads);
  const bool by_head = a.text("per") == "head";
  s.q_cols = by_head ? dim : heads * dim, s.k_cols = by_head ? dim : kv_heads * dim;
  s.q_groups = by_head ? heads : 1, s.k_groups = s.v_groups = by_head ? kv_heads : 1;
  const int whole = 16 / int(size_of(qkv.dtype));
  s.vector = dim % whole == 0 ? whole : 1;
  s.lanes = 1;
  while (s.lanes < 32 && s.lanes * s.vector < s.q_cols) s.lanes *= 2;
  s.by_row = !by_head;
  s.heads = by_head && s.lanes * s.vector >= s.q_cols;
  const int units = (s.q_cols + row_threads * s.vector - 1) / (row_threads * s.vector);
  s.units = s.by_row && s.vector > 1 && units <= 2 ? units : 0;
  return s;
}

// The group of this thread's lanes. Without one (behind the last token) they still take part in
// sums, and `there` is false.
struct Group {
  int64_t token;
  int g, lane;
  bool there;
  __device__ Group(const QkShape& s, int64_t item) : lane(int(threadIdx.x) % s.lanes) {
    const unsigned groups = unsigned(s.groups());
    there = item < s.tokens * groups;
    token = !there ? 0 : item < INT_MAX ? unsigned(item) / groups : item / groups;
    g = there ? int(item - token * groups) : 0;
  }
};
__device__ inline int64_t item_of(const QkShape& s) {
  return (int64_t(blockIdx.x) * threads + int(threadIdx.x)) / s.lanes;
}
__device__ inline float group_sum(float x, int lanes) {
  for (int d = lanes / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

template <int N, class T>
__device__ inline void load_weights(const T* weight, int c, bool inside, float (&w)[N]) {
  for (int i = 0; i < N; ++i) w[i] = 1;
  if (weight && inside) load_floats<N>(weight + c, w);
}

// Calls f with the elements of an access as a constant.
template <class T, class F>
void with_access(const QkShape& s, F f) {
  constexpr int whole = 16 / int(sizeof(T));
  s.vector == 1 ? f(std::integral_constant<int, 1>()) : f(std::integral_constant<int, whole>());
}

inline QkShape without_values(QkShape s, bool in_place) {
  if (in_place) s.v_groups = 0;
  return s;
}

}  // namespace crest::cuda::qk
