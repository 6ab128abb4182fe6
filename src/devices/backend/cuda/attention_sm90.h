// Shared by forward and backward of the attention for compute capability 9.0: sizes and tensor
// maps.
#pragma once
#include "backend/cuda/device/exp2.h"
#include "backend/cuda/device/hopper.h"
#include "backend/cuda/device/hopper_dropout.h"
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/launch.h"

namespace crest::cuda::sm90 {

using namespace hopper;  // NOLINT: the kernels are written in its words

constexpr float log2_e = 1.44269504f;
constexpr int max_shared_bytes = 232448;  // available to a block

struct Sizes {
  int batch, tokens, heads, kv_heads;  // tokens: of a sequence, and so keys
  // Queries of a sample on this rank: all tokens, or two chunks of the sequence one after the other
  // (attention_rows). Query q is token q + shift, by its chunk. A tile of queries of one warpgroup
  // lies in one chunk.
  int queries, chunk_queries, shift[2];
  int key_head;  // heads of a token before its keys
  bool causal;
  int window;  // keys seen by a query, its own included; 0: all
  float scale;
  const int32_t* positions;  // as in AttentionSizes
  DropoutRule dropout;       // scalars is null without dropout

  __host__ __device__ int group() const { return heads / kv_heads; }
  __host__ __device__ bool has_first() const { return positions || window; }
  __host__ __device__ int token(int query) const { return query + (query < chunk_queries ? shift[0] : shift[1]); }
  // Whether all keys are seen by a query of this rank.
  __host__ __device__ bool sees_all() const { return queries == tokens; }
};

// The first key seen by a query; it grows with the query.
__device__ inline int first_key(const Sizes& s, int batch, int query) {
  query = min(query, s.queries - 1);
  const int token = s.token(query);
  int first = s.window ? max(token - s.window + 1, 0) : 0;
  if (s.positions) first = max(first, token - max(s.positions[int64_t(batch) * s.queries + query], 0));
  return first;
}

// Elements of a token in q and kv: of attention both are qkv.
struct Widths {
  int64_t q, kv;
  Widths(const Sizes& s, int head_dim)
      : q(int64_t(s.heads + (s.key_head ? 2 * s.kv_heads : 0)) * head_dim),
        kv(int64_t(s.key_head + 2 * s.kv_heads) * head_dim) {}
};

// Boxes of 64 columns and box_rows rows (a multiple of 8), swizzled, of a tensor [batch, tokens,
// width] of 16-bit floats. pitch: elements from row to row, a multiple of 8; 0: width. Memory
// behind a row is never read.
#ifdef __CUDACC__
using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
inline bool rows_map(CUtensorMap* map, EncodeTiled encode, const void* base, bool bf16, int64_t batch, int64_t tokens,
                     int64_t width, int64_t pitch = 0, int box_rows = 64) {
  const int64_t row = 2 * (pitch ? pitch : width);  // bytes
  cuuint64_t shape[3] = {cuuint64_t(width), cuuint64_t(tokens), cuuint64_t(batch)};
  cuuint64_t strides[2] = {cuuint64_t(row), cuuint64_t(row * tokens)};
  cuuint32_t box[3] = {64, cuuint32_t(box_rows), 1}, steps[3] = {1, 1, 1};
  return encode(map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3,
                const_cast<void*>(base), shape, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
#else
using EncodeTiled = void*;
inline bool rows_map(CUtensorMap* map, EncodeTiled, const void* base, bool, int64_t batch, int64_t tokens,
                     int64_t width, int64_t pitch = 0, int box_rows = 64) {
  *map = {static_cast<unsigned char*>(const_cast<void*>(base)), width, tokens, batch, pitch ? pitch : width, box_rows};
  return true;
}
#endif

}  // namespace crest::cuda::sm90
