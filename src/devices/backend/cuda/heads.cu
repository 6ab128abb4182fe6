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

}  // namespace crest::cuda
