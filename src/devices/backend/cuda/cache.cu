// cache_append: keys and values of new tokens go to their positions in cache[B,2,kv_heads,C,D].
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

struct AppendArgs {
  int batch, tokens, heads, kv_heads, dim, context;
};

// A thread copies N elements of a key or value head.
template <class T, int N>
__global__ void append(const T* qkv, T* cache, AppendArgs a, const Scalars* scalars) {
  wait_for_predecessors();
  int per_head = a.dim / N, kv = 2 * a.kv_heads;
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= int64_t(a.batch) * a.tokens * kv * per_head) return;
  int64_t slot = i / per_head, row = slot / kv, batch = row / a.tokens;
  int d = int(i - slot * per_head) * N, head = int(slot - row * kv), token = int(row - batch * a.tokens);
  int64_t position = int64_t(scalars->position) + token;
  if (token >= scalars->length || position >= a.context) return;
  const T* from = qkv + (row * (a.heads + kv) + a.heads + head) * a.dim + d;
  store_vec(cache + ((batch * kv + head) * a.context + position) * a.dim + d, load_vec<N>(from));
}

std::string reject_append(const KernelQuery& q) {
  if (std::string why = reject_unless_float(q); !why.empty()) return why;
  return q.in(in::cache_append::qkv).dtype == q.in(in::cache_append::cache).dtype ? ""
                                                                                  : "tokens and cache differ in dtype";
}

void launch_append(const KernelCall& c) {
  const Value& qkv = c.in_value(in::cache_append::qkv);
  const Value& cache = c.in_value(in::cache_append::cache);
  AppendArgs a = {int(qkv.shape[0]),   int(qkv.shape[1]),   int(c.instr.attrs.integer("heads")),
                  int(cache.shape[2]), int(cache.shape[4]), int(cache.shape[3])};
  int64_t elements = qkv.shape[0] * qkv.shape[1] * 2 * a.kv_heads * a.dim;
  with_type(qkv.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int N = Vec<T>::size;
    bool vectors = a.dim % N == 0 && aligned({c.in[in::cache_append::qkv], c.out[out::cache_append::cache]});
    launch(c, vectors ? append<T, N> : append<T, 1>, blocks_for(vectors ? elements / N : elements, 256), 256, 0,
           c.input<T>(in::cache_append::qkv), c.output<T>(out::cache_append::cache), a,
           c.input<Scalars>(in::cache_append::scalars));
  });
}

}  // namespace

Kernel cache_append_kernel() {
  return {"cache_append", "cuda.cache_append", reject_append, nullptr, nullptr, CREST_DEVICE_CODE(launch_append)};
}

}  // namespace crest::cuda
