// Places of heads in interleaved qkv, and the heads of a block.
#pragma once
#include "backend/cuda/device/flash_dropout.h"
#include "backend/cuda/device/flash_tile.h"

namespace crest::cuda {

constexpr float log2_e = 1.44269504f, ln_2 = 0.69314718f;

// Rows of one head of one sample in qkv or its gradient: columns `first_head` counts heads over q,
// k and v.
template <class T>
__device__ inline HeadRows<T> qkv_rows(T* qkv, const AttentionSizes& s, int batch, int first_head) {
  return {qkv + batch * (int64_t(s.tokens) * s.width()) + int64_t(first_head) * s.head_dim, s.width(), s.tokens,
          s.head_dim, s.vectors};
}
template <class T>
__device__ inline HeadRows<T> query_rows(T* qkv, const AttentionSizes& s, int batch, int head) {
  return qkv_rows(qkv, s, batch, head);
}
template <class T>
__device__ inline HeadRows<T> key_rows(T* qkv, const AttentionSizes& s, int batch, int kv_head) {
  return qkv_rows(qkv, s, batch, s.heads + kv_head);
}
template <class T>
__device__ inline HeadRows<T> value_rows(T* qkv, const AttentionSizes& s, int batch, int kv_head) {
  return qkv_rows(qkv, s, batch, s.heads + s.kv_heads + kv_head);
}
// In o or its gradient.
template <class T>
__device__ inline HeadRows<T> output_rows(T* o, const AttentionSizes& s, int batch, int head) {
  int stride = s.heads * s.head_dim;
  return {o + batch * (int64_t(s.tokens) * stride) + int64_t(head) * s.head_dim, stride, s.tokens, s.head_dim,
          s.vectors};
}

// The first key seen by a query: where its document or window begins; it grows with the query.
// Queries beyond the end: as the last one.
__device__ inline int first_key(const AttentionSizes& s, int batch, int query) {
  query = min(query, s.tokens - 1);
  int first = s.window ? max(query - s.window + 1, 0) : 0;
  if (s.positions) first = max(first, query - max(s.positions[int64_t(batch) * s.tokens + query], 0));
  return first;
}

// The block's tile of a head.
struct BlockPlace {
  int tile, head, batch;
};
__device__ inline BlockPlace place_of_block(const BlockOrder& order, int batch) {
  int x = int(blockIdx.x), all = order.heads * batch;
  int tile = order.heads_fastest ? x / all : x % order.tiles, head = order.heads_fastest ? x % all : x / order.tiles;
  return {order.last_first ? order.tiles - 1 - tile : tile, head % order.heads, head / order.heads};
}

}  // namespace crest::cuda
