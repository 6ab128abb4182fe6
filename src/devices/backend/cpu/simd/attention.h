#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

// softmax(scale q k^T) v of one key/value head and its query heads,
// without a T x T matrix in memory (online softmax and recomputation
// after Dao, "FlashAttention-2", 2023). Strides are in elements of
// `dtype`; row t of head h of q lies at q + h * head_dim + t * q_stride.
struct AttentionArgs {
  const void* q;  // first query head of this key/value head
  const void* k;
  const void* v;
  void* o;     // first of the heads
  float* lse;  // [heads][queries], may be null
  int64_t q_stride, k_stride, v_stride, o_stride;
  int64_t queries, keys;     // rows of q; rows of k and v
  int64_t first_position;    // causal: query t sees keys 0 .. first_position + t
  const int32_t* positions;  // causal: query t sees the last positions[t] keys before it, and itself; null: all
  int64_t window;            // causal: query t sees the last `window` keys, its own included; 0: all
  int heads, head_dim;
  DType dtype;
  float scale;
  bool causal;
  // Dropout of probabilities: element ((first_head + h) * queries + t) * keys + column of the
  // stream.
  double p;
  uint64_t seed, stream;
  int64_t first_head;
  bool emulated;  // attention_amx_functions without the instructions, for tests

  bool has_first() const { return positions || window; }
};

struct AttentionGradArgs {
  AttentionArgs forward;  // o and lse are read
  const void* d_o;        // rows as o
  void* dq;               // rows as q
  void* dk;               // rows as k
  void* dv;               // rows as v
  // Key blocks are summed into dq in `segments` interleaved groups, in order: part s of n covers
  // segments s, s + n, ...
  // partial: null when this call covers all segments (it writes dq), else
  // [segments][heads][queries][padded] floats.
  int64_t segments;
  float* partial;
};

struct AttentionFunctions {
  int64_t padded;  // floats of a packed row: head_dim rounded up to a multiple of this
  // scratch: as attention_scratch.h lays it out.
  // Converts keys and values to floats in scratch (once per key/value head; forward reads them).
  void (*pack)(const AttentionArgs&, float* scratch);
  // Query block `index` of heads * ceil(queries / block); `pack` has filled scratch.
  void (*forward)(const AttentionArgs&, int64_t index, float* scratch);
  // Part `part` of `parts` (see partial above).
  void (*backward)(const AttentionGradArgs&, int64_t part, int64_t parts, float* scratch);
  // Sums the partial dq of rows begin .. end-1 of heads * queries, in order of segments, and stores
  // it.
  void (*reduce)(const AttentionGradArgs&, int64_t begin, int64_t end, float* scratch);
};
CREST_SIMD_TABLE(AttentionFunctions, attention_functions)
// bf16 and positive scales on matrix units: between configure() and release() of simd/amx.h, unless
// emulated.
CREST_SIMD_TABLE(AttentionFunctions, attention_amx_functions)

}  // namespace crest::cpu
