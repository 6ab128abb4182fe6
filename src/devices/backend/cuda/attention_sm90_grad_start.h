// Host side of the backward pass of backend/cuda/attention_sm90_grad.h: its workspace, and its
// start.
#pragma once
#include "backend/cuda/attention_sm90_grad.h"

namespace crest::cuda::sm90 {

template <class Tile>
struct GradPlan {
  GradSizes s;
  int counters;
  int64_t stats_bytes, counter_bytes, slot_bytes;
  int64_t workspace() const { return stats_bytes + counter_bytes + slot_bytes; }

  // chunk_heads: 0 for as many key heads as have their sums of dQ in the second-level cache
  // together (measured on an H200: 64 to 80 heads of 256 KiB).
  explicit GradPlan(const Sizes& sizes, int chunk_heads = 0, int ring_chunks = 2) {
    static_cast<Sizes&>(s) = sizes;
    int64_t fit = (int64_t(20) << 20) / (int64_t(s.queries) * Tile::D * 4 * s.group());
    if (chunk_heads <= 0) chunk_heads = int(fit < 16 ? 16 : fit);
    s.query_tiles = (s.queries + Tile::queries - 1) / Tile::queries;
    s.key_tiles = (s.tokens + Tile::keys - 1) / Tile::keys;
    int kv = s.batch * s.kv_heads;
    s.chunk = chunk_heads < kv ? chunk_heads : kv;
    int64_t ring = int64_t(s.chunk) * ring_chunks * s.group();
    s.ring = ring < int64_t(s.batch) * s.heads ? int(ring) : s.batch * s.heads;
    s.items = kv * s.key_tiles;
    counters = 1 + s.ring * s.query_tiles * 2;
    auto round = [](int64_t x) { return (x + 255) / 256 * 256; };
    stats_bytes = round(int64_t(s.batch) * s.heads * s.query_tiles * Tile::stat_bytes);
    counter_bytes = round(int64_t(counters) * 4);
    slot_bytes = int64_t(s.ring) * s.query_tiles * 2 * Tile::half_bytes;
  }
};

// As in attention_grad or attention_rows_grad (ops/attention.cpp): of the former q and kv are both
// qkv, dq and dkv both dqkv.
struct GradTensors {
  const void *d_o, *q, *kv, *o;
  const float* lse;
  void *dq, *dkv;
};

// workspace: aligned to 64 bytes. Returns a cudaError_t.
template <class Tile>
int start_grad(const GradPlan<Tile>& plan, EncodeTiled encode, const GradTensors& x, void* workspace, int blocks,
               const LaunchOn& on) {
  using T = typename Tile::T;
  GradArgs a;
  a.s = plan.s;
  auto* bytes = static_cast<unsigned char*>(workspace);
  float* stats = reinterpret_cast<float*>(bytes);
  a.stats = stats;
  a.counters = reinterpret_cast<uint32_t*>(bytes + plan.stats_bytes);
  a.slots = reinterpret_cast<float*>(bytes + plan.stats_bytes + plan.counter_bytes);
  const Widths width(a.s, Tile::D);
  constexpr bool bf16 = std::is_same_v<T, bfloat16>;
  if (!rows_map(&a.q, encode, x.q, bf16, a.s.batch, a.s.queries, width.q) ||
      !rows_map(&a.kv, encode, x.kv, bf16, a.s.batch, a.s.tokens, width.kv) ||
      !rows_map(&a.dq, encode, x.dq, bf16, a.s.batch, a.s.queries, width.q) ||
      !rows_map(&a.dkv, encode, x.dkv, bf16, a.s.batch, a.s.tokens, width.kv) ||
      !rows_map(&a.d_o, encode, x.d_o, bf16, a.s.batch, a.s.queries, int64_t(a.s.heads) * Tile::D))
    return 1;
  // Keys that no query here sees have no item.
  auto* zeros = static_cast<uint32_t*>(x.dkv);
  const int64_t zero_count = a.s.sees_all() ? 0 : int64_t(a.s.batch) * a.s.tokens * width.kv / 2;
  constexpr int rows = 256 / (Tile::D / 8);
  dim3 grid(unsigned(a.s.query_tiles * Tile::queries / rows), unsigned(a.s.heads), unsigned(a.s.batch));
  unsigned blocks_taken = unsigned(blocks < a.s.items ? blocks : a.s.items);
  auto *d_o_rows = static_cast<const T*>(x.d_o), *o_rows = static_cast<const T*>(x.o);
  const float* lse = x.lse;
#ifdef __CUDACC__
  if (cudaError_t code = start_kernel(on, grad_statistics<Tile>, grid, 256, 0, d_o_rows, o_rows, lse, stats, a.counters,
                                      plan.counters, zeros, zero_count, a.s);
      code != cudaSuccess)
    return code;
  return start_kernel(on, grad_kernel<Tile>, blocks_taken, 384, Tile::shared_bytes, a);
#else
  (void)on;
  emulator::run(grid, dim3(256), 0, [&] {
    grad_statistics<Tile>(d_o_rows, o_rows, lse, stats, a.counters, plan.counters, zeros, zero_count, a.s);
  });
  emulated::run(blocks_taken, 384, Tile::shared_bytes, [&] { grad_kernel<Tile>(a); });
  return 0;
#endif
}

}  // namespace crest::cuda::sm90
