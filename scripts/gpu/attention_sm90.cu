// The attention kernels for compute capability 9.0 behind a C interface, for scripts/gpu/attention_sm90.py. Build:
//   nvcc -std=c++20 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -O3 -Isrc/base -Isrc/step -Isrc/devices -DCREST_HAVE_CUDA=1 \
//     -Xcompiler -fPIC -shared -o attention_sm90.so scripts/gpu/attention_sm90.cu
#include <cmath>

#include "backend/cuda/attention_sm90_forward.h"
#include "backend/cuda/attention_sm90_grad_start.h"

using namespace crest;
using namespace crest::cuda::sm90;

bool crest::cuda::waits_for_predecessors(const void*) { return false; }  // nothing overlaps here

struct Call {
  int64_t batch, tokens, heads, kv_heads, head_dim, causal, window;
  double scale;
  int64_t chunk, ring, blocks;  // 0: as the kernel would choose
  const void *positions, *scalars;
  int64_t rng_id;
  double p;
  const void *d_o, *qkv, *o;
  void* lse;
  void *dqkv, *out, *workspace;
  void* stream;
};

namespace {

Sizes sizes_of(const Call& c) {
  Sizes s = {};
  s.batch = int(c.batch), s.tokens = int(c.tokens), s.heads = int(c.heads), s.kv_heads = int(c.kv_heads);
  s.queries = s.chunk_queries = s.tokens, s.key_head = s.heads;
  s.causal = c.causal != 0, s.window = int(c.window), s.scale = float(c.scale);
  s.positions = static_cast<const int32_t*>(c.positions);
  if (c.p > 0)
    s.dropout = {static_cast<const Scalars*>(c.scalars), uint32_t(c.rng_id), uint32_t(std::ceil(c.p * 0x1p24)),
                 float(1 / (1 - c.p))};
  return s;
}

EncodeTiled encode() {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
  return reinterpret_cast<EncodeTiled>(f);
}

uint32_t* counter() {
  static uint32_t* p = [] {
    uint32_t* made = nullptr;
    cudaMalloc(&made, sizeof *made);
    return made;
  }();
  return p;
}

// Calls body(std::integral_constant head dimension, queries have a first key).
template <class Body>
int64_t with_sizes(const Call& c, Body&& body) {
  bool first = c.window || c.positions;
  using D64 = std::integral_constant<int, 64>;
  using D128 = std::integral_constant<int, 128>;
#ifndef ONLY_PLAIN
  if (c.head_dim == 64 && first) return body(D64(), std::true_type());
  if (c.head_dim == 128 && first) return body(D128(), std::true_type());
#endif
  if (c.head_dim == 64 && !first) return body(D64(), std::false_type());
  if (c.head_dim == 128 && !first) return body(D128(), std::false_type());
  return -1;
}
template <class Body>
int64_t with_grad_tile(const Call& c, Body&& body) {
  return with_sizes(c, [&](auto d, auto first) -> int64_t {
#ifdef WITH_DROPOUT
    if (c.p > 0) return body(GradTile<bfloat16, d(), first(), true>());
#endif
    return c.p > 0 ? -1 : body(GradTile<bfloat16, d(), first()>());
  });
}

template <class Tile>
GradPlan<Tile> grad_plan(const Call& c) {
  return GradPlan<Tile>(sizes_of(c), int(c.chunk), c.ring ? int(c.ring) : 2);
}

}  // namespace

extern "C" int64_t grad_workspace(const Call* c) {
  return with_grad_tile(*c, [&](auto tile) { return grad_plan<decltype(tile)>(*c).workspace(); });
}

extern "C" int64_t grad(const Call* c) {
  return with_grad_tile(*c, [&](auto tile) -> int64_t {
    const GradTensors x = {c->d_o, c->qkv, c->qkv, c->o, static_cast<const float*>(c->lse), c->dqkv, c->dqkv};
    return start_grad<decltype(tile)>(grad_plan<decltype(tile)>(*c), encode(), x, c->workspace,
                                      c->blocks ? int(c->blocks) : 132, {c->stream});
  });
}

extern "C" int64_t forward(const Call* c) {
  auto start = [&](auto tile) -> int64_t {
    using Tile = decltype(tile);
    return start_forward<Tile>(ForwardPlan<Tile>(sizes_of(*c), int(c->chunk)), encode(), c->qkv, c->qkv, c->out,
                               static_cast<float*>(c->lse), counter(), c->blocks ? int(c->blocks) : 132, {c->stream});
  };
  return with_sizes(*c, [&](auto d, auto first) -> int64_t {
#ifdef WITH_DROPOUT
    if (c->p > 0) return start(ForwardTile<bfloat16, d(), first(), true>());
#endif
    return c->p > 0 ? -1 : start(ForwardTile<bfloat16, d(), first()>());
  });
}

// Step scalars on the device, for dropout.
extern "C" void* scalars(int64_t seed, int64_t first_sample) {
  Scalars host = {};
  host.seed = decltype(host.seed)(seed), host.sample_base = decltype(host.sample_base)(first_sample);
  void* p = nullptr;
  if (cudaMalloc(&p, sizeof host) != cudaSuccess) return nullptr;
  cudaMemcpy(p, &host, sizeof host, cudaMemcpyHostToDevice);
  return p;
}

// Of [batch, heads, tokens, tokens]: 1 where a probability is kept.
extern "C" void kept(const Call* c, int64_t seed, int64_t first_sample, unsigned char* to) {
  auto threshold = uint32_t(std::ceil(c->p * 0x1p24));
  for (int64_t b = 0; b < c->batch; ++b) {
    uint64_t stream = dropout_stream(uint64_t(first_sample + b), uint32_t(c->rng_id));
    for (int64_t i = 0; i < c->heads * c->tokens * c->tokens; ++i)
      *to++ = random_bits(uint64_t(seed), stream, uint64_t(i)) >> 8 >= threshold;
  }
}
