// Places of heads in interleaved qkv, and the heads of a block.
#pragma once
#include "backend/cuda/device/flash_dropout.h"
#include "backend/cuda/device/flash_tile.h"

namespace crest::cuda {

constexpr float log2_e = 1.44269504f, ln_2 = 0.69314718f;

// A choice, not an index: a kernel's arguments with an index would be copied to local memory.
__device__ inline QueryChunk chunk_number(const AttentionSizes& s, int index) {
  return {index, index ? s.first[1] : s.first[0]};
}

// The first row of a chunk of a sample, in tensors with a row for each query.
__device__ inline int64_t first_row(const AttentionSizes& s, int batch, QueryChunk chunk) {
  return int64_t(batch) * s.rows() + chunk.index * s.queries;
}
// Rows of one head of one sample in q (or qkv), kv (or qkv), or their gradients.
template <class T>
__device__ inline HeadRows<T> query_rows(T* q, const AttentionSizes& s, int batch, int head, QueryChunk chunk = {}) {
  return {q + first_row(s, batch, chunk) * s.query_width + int64_t(head) * s.head_dim, s.query_width, s.queries,
          s.head_dim, s.vectors};
}
template <class T>
__device__ inline HeadRows<T> key_rows(T* kv, const AttentionSizes& s, int batch, int kv_head) {
  return {kv + batch * (int64_t(s.tokens) * s.key_width) + int64_t(s.key_head + kv_head) * s.head_dim, s.key_width,
          s.tokens, s.head_dim, s.vectors};
}
template <class T>
__device__ inline HeadRows<T> value_rows(T* kv, const AttentionSizes& s, int batch, int kv_head) {
  return key_rows(kv, s, batch, s.kv_heads + kv_head);
}
// In o or its gradient.
template <class T>
__device__ inline HeadRows<T> output_rows(T* o, const AttentionSizes& s, int batch, int head, QueryChunk chunk = {}) {
  int stride = s.heads * s.head_dim;
  return {o + first_row(s, batch, chunk) * stride + int64_t(head) * s.head_dim, stride, s.queries, s.head_dim,
          s.vectors};
}
// The element of a query of a chunk in lse and other statistics [batch, heads, rows].
__device__ inline int64_t first_statistic(const AttentionSizes& s, int batch, int head, QueryChunk chunk = {}) {
  return (int64_t(batch) * s.heads + head) * s.rows() + chunk.index * s.queries;
}

// The first key seen by a query: where its document or window begins; it grows with the query.
// Queries beyond the end of the chunk: as the last one.
__device__ inline int first_key(const AttentionSizes& s, int batch, int query, QueryChunk chunk = {}) {
  query = min(query, s.queries - 1);
  const int token = query + chunk.shift;
  int first = s.window ? max(token - s.window + 1, 0) : 0;
  if (s.positions) first = max(first, token - max(s.positions[first_row(s, batch, chunk) + query], 0));
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
// The chunk of a tile of `rows` queries; `tile` becomes its number in the chunk.
__device__ inline QueryChunk chunk_of(const AttentionSizes& s, int rows, int& tile) {
  const int tiles = (s.queries + rows - 1) / rows, index = s.chunks > 1 && tile >= tiles;
  tile -= index * tiles;
  return chunk_number(s, index);
}

}  // namespace crest::cuda
