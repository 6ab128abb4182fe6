// The operations, one line each, in the order of every table; docs/reference/ops.md defines them
// exactly. OP(x, inputs, outputs) stands for `const OpDef op_x`, defined by one file of this
// folder. It also names the operands: in::x::NAME and out::x::NAME are their positions,
// in::x::count and out::x::count their numbers. If an operation accepts any number of operands, the
// last name is the first of the rest.
#pragma once
#include "ops/pointwise_ops.h"
#include "ops/update_ops.h"
#include "program/op.h"

#define CREST_LOCAL_OPS(OP)                                                                     \
  OP(linear, (x, w, b), (y))                                                                    \
  OP(linear_gelu, (x, w, b), (a, h))                                                            \
  OP(linear_swiglu, (x, w, w_up), (a, g, u))                                                    \
  OP(linear_dx, (dy, w), (dx))                                                                  \
  OP(linear_dx_sum, (dy, w, dy_2, w_2), (dx))                                                   \
  OP(linear_dx_gelu_grad, (dy, w, x, acc), (dx, db, a))                                         \
  OP(linear_dx_swiglu_grad, (dy, w, g, u), (dg, du, a))                                         \
  OP(linear_dw, (dy, x, acc), (dw))                                                             \
  OP(linear_fp8, (x, w, x_scale, w_scale, b, acc), (y))                                         \
  OP(linear_int8, (x, w, scale, b), (y))                                                        \
  OP(linear_gelu_int8, (x, w, scale, b), (a))                                                   \
  OP(matmul, (a, b), (c))                                                                       \
  OP(bias_grad, (dy, acc), (db))                                                                \
  CREST_POINTWISE_OPS(OP)                                                                       \
  OP(quantize, (x, amax, record, counts), (q, scale, record, counts, t))                        \
  OP(quantize_columns, (x, scale), (t))                                                         \
  OP(quantize_blocks, (x, counts), (q, scale, counts, t, t_scale))                              \
  OP(quantize_blocks_columns, (x), (t, scale))                                                  \
  OP(dequantize, (q, scale), (x))                                                               \
  OP(cast, (x), (y))                                                                            \
  OP(dropout, (x, scalars), (y))                                                                \
  OP(fused, (xs), (ys))                                                                         \
  OP(norm, (x, gamma, beta), (y, rstd, mean))                                                   \
  OP(add_norm, (a, b, gamma, beta, scalars), (s, y, rstd, mean))                                \
  OP(norm_grad, (dy, x, gamma, rstd, mean, dres, acc_gamma, acc_beta, acc_bias, beta, scalars), \
     (dx, dgamma, dbeta, dbias, dropped, y))                                                    \
  OP(softmax, (x), (y))                                                                         \
  OP(softmax_grad, (dy, y), (dx))                                                               \
  OP(causal_mask, (s, positions), (y))                                                          \
  OP(attention, (qkv, scalars, positions), (o, lse))                                            \
  OP(attention_grad, (d_o, qkv, o, lse, scalars, positions), (dqkv))                            \
  OP(attention_rows, (q, kv, scalars, positions), (o, lse))                                     \
  OP(attention_rows_grad, (d_o, q, kv, o, lse, scalars, positions), (dq, dkv))                  \
  OP(split_keys, (qkv), (q, kv))                                                                \
  OP(join_keys, (q, kv), (qkv))                                                                 \
  OP(split_heads, (qkv), (q, k, v))                                                             \
  OP(join_heads, (q, k, v), (qkv))                                                              \
  OP(split_rows, (x), (parts))                                                                  \
  OP(join_rows, (parts), (x))                                                                   \
  OP(copy_in, (x, into), (y))                                                                   \
  OP(copy_out, (x, into), (y))                                                                  \
  OP(rope, (qkv, scalars, positions), (y))                                                      \
  OP(qk_norm, (qkv, q_weight, k_weight), (y, q_rstd, k_rstd))                                   \
  OP(qk_norm_grad, (dy, qkv, q_weight, k_weight, q_rstd, k_rstd, acc_q, acc_k), (dqkv, dq, dk)) \
  OP(cache_append, (qkv, cache, scalars), (cache))                                              \
  OP(cached_attention, (qkv, cache, scalars), (o))                                              \
  OP(embedding, (ids, table, scalars), (y))                                                     \
  OP(embedding_int8, (ids, table, scale), (y))                                                  \
  OP(embedding_grad, (ids, dy, acc), (dtable))                                                  \
  OP(take_row, (x, scalars), (y))                                                               \
  OP(add_position, (x, table, position, scalars), (y))                                          \
  OP(position_grad, (dy, acc), (dtable))                                                        \
  OP(loss_stats, (logits, targets), (stats))                                                    \
  OP(cross_entropy, (logits, targets, scalars, stats), (loss, lse))                             \
  OP(cross_entropy_grad, (logits, targets, lse, scalars), (dlogits))                            \
  OP(cross_entropy_fused, (logits, targets, scalars), (loss, dlogits))                          \
  OP(sum_loss, (loss, acc), (sum))                                                              \
  OP(grad_norm, (scalars, gradients), (scalars))                                                \
  CREST_UPDATE_OPS(OP)                                                                          \
  OP(adamw_8bit, (scalars, master, m, m_max, v, v_max, g, w), (master, m, m_max, v, v_max, w))  \
  OP(factored_moments, (scalars, g, row, col), (row, col))                                      \
  OP(factored_update, (scalars, master, g, row, col, w), (master, w))                           \
  OP(axpby, (scalars, x, y, z), (x))                                                            \
  OP(sqrt, (x), (y))                                                                            \
  OP(unit_norm, (x), (y))                                                                       \
  OP(amax_history, (amax, record, counts, lost), (amax, record, counts, lost))                  \
  OP(take_counts, (counts, lost), (counts, lost))                                               \
  OP(finish_step, (scalars), (scalars))

// Operations between ranks, and operations that depend on the rank: no reference computes them
// alone.
#define CREST_COLLECTIVE_OPS(OP)              \
  OP(all_reduce, (xs), (xs))                  \
  OP(reduce_scatter, (x, acc), (shard))       \
  OP(all_gather, (shard, into, members), (y)) \
  OP(own_share, (x), (shard))                 \
  OP(gather_rows, (x), (y))                   \
  OP(gather_parts, (x), (y))                  \
  OP(gather_columns, (x), (y))                \
  OP(scatter_rows, (x, b), (y))               \
  OP(sum_rows, (x, b), (y))                   \
  OP(own_rows, (ids), (y))                    \
  OP(own_positions, (ids), (y))               \
  OP(own_piece, (x), (y))                     \
  OP(gather_piece, (x), (y))                  \
  OP(scatter_piece, (x), (y))                 \
  OP(split_pieces, (x), (pieces))             \
  OP(join_pieces, (pieces), (x))              \
  OP(sum_pieces, (b, pieces), (y))            \
  OP(gather_tokens, (x), (y))                 \
  OP(scatter_tokens, (x), (y))                \
  OP(token_positions, (ids), (y))             \
  OP(send, (x), (y))                          \
  OP(receive, (acc), (y))                     \
  OP(square_sum, (shards), (sum))

#define CREST_OPS(OP) CREST_LOCAL_OPS(OP) CREST_COLLECTIVE_OPS(OP)

namespace crest {

#define CREST_DECLARE_OP(name, inputs, outputs) extern const OpDef op_##name;
CREST_OPS(CREST_DECLARE_OP)
#undef CREST_DECLARE_OP

#define CREST_LIST(...) __VA_ARGS__
#define CREST_TEXT(...) #__VA_ARGS__
#define CREST_NAME_OPERANDS(op, inputs, outputs)           \
  namespace in::op {                                       \
  enum : size_t { CREST_LIST inputs, count };              \
  inline constexpr const char* names = CREST_TEXT inputs;  \
  }                                                        \
  namespace out::op {                                      \
  enum : size_t { CREST_LIST outputs, count };             \
  inline constexpr const char* names = CREST_TEXT outputs; \
  }
CREST_OPS(CREST_NAME_OPERANDS)
#undef CREST_NAME_OPERANDS
#undef CREST_TEXT
#undef CREST_LIST

}  // namespace crest
