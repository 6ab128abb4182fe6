// Arguments of all kernels of `attention`, `attention_rows` and their gradients.
#pragma once
#include "backend/cuda/device/dropout_rule.h"

namespace crest::cuda {

// The queries of a kernel's block. attention: all tokens. attention_rows: one of this rank's two
// chunks of the sequence.
struct QueryChunk {
  int index = 0;  // 0 or 1
  int shift = 0;  // its first query's token
};

struct AttentionSizes {
  int batch, tokens, heads, kv_heads, head_dim;  // tokens: of a sequence, and so keys
  // Queries of a chunk, chunks, and the token where each begins.
  int queries, chunks, first[2];
  // Elements from token to token, and heads of a token before its keys (attention: its queries).
  int query_width, key_width, key_head;
  bool causal;
  bool vectors;  // every row of a head is aligned to 16 bytes and a multiple of them
  float scale;
  DropoutRule dropout;  // scalars is null without dropout
  // [batch, tokens] positions of tokens in their documents: 0, or one more than the token before;
  // null: no documents.
  const int32_t* positions;
  int window;  // keys seen by a query at most, its own included; 0: all

  // Whether queries do not see all keys before them.
  __host__ __device__ bool has_first() const { return positions || window; }
  __host__ __device__ int group() const { return heads / kv_heads; }
  __host__ __device__ int rows() const { return chunks * queries; }  // of a sample on this rank
};

// The tile and head of a block in a grid of tiles x heads x batch blocks. Tiles with the most work
// (`last_first`: the last ones) come first, so the others fill the end of the grid: within a head,
// whose keys and values then stay in the second-level cache, or over all heads if a grid is a few
// blocks per multiprocessor.
struct BlockOrder {
  int tiles, heads;
  bool last_first, heads_fastest;
};
}  // namespace crest::cuda
