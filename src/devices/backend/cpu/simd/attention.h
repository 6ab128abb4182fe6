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
  float* lse;  // rows of heads, lse_stride floats apart; may be null
  int64_t lse_stride;
  int64_t q_stride, k_stride, v_stride, o_stride;
  int64_t queries, keys;     // rows of q; rows of k and v
  int64_t first_position;    // causal: query t sees keys 0 .. first_position + t
  const int32_t* positions;  // causal: query t sees the last positions[t] keys before it, and itself; null: all
  int64_t window;            // causal: query t sees the last `window` keys, its own included; 0: all
  int heads, head_dim;
  DType dtype;
  float scale;
  bool causal;
  // The queries of attention_rows are two chunks of the sequence: each has arguments of its own.
  int chunks;  // 1 or 2
  // Backward: the first `lead` queries are padding, so that first_position is a multiple of a
  // block; rows of q, o, d_o, lse and dq begin with the query after them. padded: queries of a
  // chunk in whole blocks, the same number for both chunks.
  int64_t lead, padded;
  // Dropout of probabilities: element ((first_head + h) * sequence + first_position + t) * sequence
  // + column of the stream. sequence: tokens of the whole sequence.
  int64_t sequence;
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
  // [segments][chunks * heads][padded queries][padded] floats.
  int64_t segments;
  float* partial;
  int64_t chunk;  // 0 or 1
};

struct AttentionFunctions {
  int64_t padded;  // floats of a packed row: head_dim rounded up to a multiple of this
  // scratch: as attention_scratch.h lays it out.
  // Converts keys and values to floats in scratch (once per key/value head; forward reads them).
  void (*pack)(const AttentionArgs&, float* scratch);
  // Query block `index` of heads * ceil(queries / block); `pack` has filled scratch.
  void (*forward)(const AttentionArgs&, int64_t index, float* scratch);
  // Part `part` of `parts` (see partial above), with the arguments of each chunk: dk and dv are
  // sums over them.
  void (*backward)(const AttentionGradArgs* chunks, int64_t part, int64_t parts, float* scratch);
  // Sums the partial dq of rows begin .. end-1 of heads * queries, in order of segments, and stores
  // it.
  void (*reduce)(const AttentionGradArgs&, int64_t begin, int64_t end, float* scratch);
};
CREST_SIMD_TABLE(AttentionFunctions, attention_functions)
// bf16 and positive scales on matrix units: between configure() and release() of simd/amx.h, unless
// emulated.
CREST_SIMD_TABLE(AttentionFunctions, attention_amx_functions)

}  // namespace crest::cpu
