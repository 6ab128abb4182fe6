// Movement between [B,T,W] and [B,heads,T,D]: split_heads is a view and needs no kernel, join_heads
// copies.
#include <limits>

#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

// One of q, k, v: [B,heads,T,D] with strides in elements.
template <class T>
struct HeadsView {
  const T* data;
  int64_t batch, head, token, element;  // strides
  int end;                              // heads of this and of the inputs before it
};

template <class T>
struct JoinArgs {
  HeadsView<T> in[3];
  int tokens, heads, dim;  // heads of all inputs
  int64_t vectors;         // of the output
};

// A thread copies N elements of a head. Index is 32 bits wide if it holds every vector's number:
// divisions are the larger part of the instructions.
template <class T, int N, class Index>
__global__ void join(const __grid_constant__ JoinArgs<T> a, T* out) {
  wait_for_predecessors();
  Index i = Index(blockIdx.x) * Index(blockDim.x) + threadIdx.x;
  if (i >= Index(a.vectors)) return;
  Index per_head = Index(a.dim / N), slot = i / per_head, row = slot / Index(a.heads);
  int64_t d = int64_t(i - slot * per_head) * N;
  int head = int(slot - row * Index(a.heads));
  int64_t batch = row / Index(a.tokens), token = row - batch * a.tokens;
  const HeadsView<T>* v = &a.in[0];
  int first = 0;
  if (head >= a.in[0].end) {
    v = head < a.in[1].end ? &a.in[1] : &a.in[2];
    first = head < a.in[1].end ? a.in[0].end : a.in[1].end;
  }
  const T* from = v->data + batch * v->batch + (head - first) * v->head + token * v->token + d * v->element;
  if constexpr (N == 1)
    out[i] = *from;
  else
    store_vec(out + int64_t(i) * N, load_vec<N>(from));
}

// A token's queries, keys and values together, and in two tensors. A thread copies N elements.
template <class T, int N, bool split>
__global__ void copy_keys(const T* qkv, T* to_qkv, const T* q, T* to_q, const T* kv, T* to_kv, int64_t n, int width,
                          int queries) {
  wait_for_predecessors();
  const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i >= n) return;
  const int64_t token = i / width;
  const int column = int(i - token * width), keys = width - queries;
  const bool query = column < queries;
  const int64_t at = query ? token * queries + column : token * keys + column - queries;
  if constexpr (split)
    store_vec((query ? to_q : to_kv) + at, load_vec<N>(qkv + i));
  else
    store_vec(to_qkv + i, load_vec<N>((query ? q : kv) + at));
}

template <bool split>
void launch_copy_keys(const KernelCall& c, const Value& whole, void* qkv, void* q, void* kv, int64_t queries) {
  with_type(whole.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int threads = 256, N = Vec<T>::size;
    const int64_t width = whole.shape[2], n = whole.numel();
    auto start = [&](auto kernel, int per_thread) {
      launch(c, kernel, blocks_for(n / per_thread, threads), threads, 0, static_cast<const T*>(qkv),
             static_cast<T*>(qkv), static_cast<const T*>(q), static_cast<T*>(q), static_cast<const T*>(kv),
             static_cast<T*>(kv), n, int(width), int(queries));
    };
    if (queries % N == 0 && width % N == 0 && aligned({qkv, q, kv}))
      start(copy_keys<T, N, split>, N);
    else
      start(copy_keys<T, 1, split>, 1);
  });
}

void launch_split_keys(const KernelCall& c) {
  namespace to = out::split_keys;
  launch_copy_keys<true>(c, c.in_value(in::split_keys::qkv), c.in[in::split_keys::qkv], c.out[to::q], c.out[to::kv],
                         c.out_value(to::q).shape[2]);
}
void launch_join_keys(const KernelCall& c) {
  namespace from = in::join_keys;
  launch_copy_keys<false>(c, c.out_value(out::join_keys::qkv), c.out[out::join_keys::qkv], c.in[from::q],
                          c.in[from::kv], c.in_value(from::q).shape[2]);
}

std::string reject_join(const KernelQuery& q) {
  if (std::string why = reject_value(q.out(out::join_heads::qkv)); !why.empty()) return why;
  if (q.out(out::join_heads::qkv).numel() > int64_t(1) << 38) return "more elements than one launch has threads for";
  for (size_t i = 0; i < q.instr.in.size(); ++i)
    if (q.has(i) && q.in(i).dtype != q.out(out::join_heads::qkv).dtype) return "inputs and output differ in dtype";
  return "";
}

void launch_join(const KernelCall& c) {
  const Value& out = c.out_value(out::join_heads::qkv);
  with_type(out.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int N = Vec<T>::size;
    JoinArgs<T> a = {};
    bool vectors = aligned({c.out[out::join_heads::qkv]});
    for (size_t i = 0; i < 3; ++i) {
      if (!c.has(i)) {
        a.in[i].end = a.heads;
        continue;
      }
      const Value& v = c.in_value(i);
      const Shape& s = v.layout.strides;
      a.heads += int(v.shape[1]);
      a.in[i] = {c.input<T>(i), s[0], s[1], s[2], s[3], a.heads};
      a.tokens = int(v.shape[2]), a.dim = int(v.shape[3]);
      vectors = vectors && a.dim % N == 0 && s[3] == 1 && s[0] % N == 0 && s[1] % N == 0 && s[2] % N == 0 &&
                aligned({c.in[i]});
    }
    auto start = [&](auto copy) {
      launch(c, copy, blocks_for(a.vectors, 256), 256, 0, a, c.output<T>(out::join_heads::qkv));
    };
    a.vectors = out.numel() / (vectors ? N : 1);
    bool narrow_index = a.vectors < std::numeric_limits<int>::max();
    if (vectors)
      narrow_index ? start(join<T, N, unsigned>) : start(join<T, N, int64_t>);
    else
      narrow_index ? start(join<T, 1, unsigned>) : start(join<T, 1, int64_t>);
  });
}

}  // namespace

Kernel split_heads_kernel() {
  return {"split_heads", "cuda.split_heads.view", [](const KernelQuery&) { return std::string(); }, nullptr,
          nullptr,       [](const KernelCall&) {}};
}
Kernel join_heads_kernel() {
  return {"join_heads", "cuda.join_heads.copy", reject_join, nullptr, nullptr, CREST_DEVICE_CODE(launch_join)};
}

Kernel split_keys_kernel() {
  return {"split_keys",
          "cuda.split_keys.copy",
          reject_unless_float,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_split_keys)};
}
Kernel join_keys_kernel() {
  return {
      "join_keys", "cuda.join_keys.copy", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_join_keys)};
}

}  // namespace crest::cuda
