// The operations, one line each, in the order of every table; docs/ops.md gives their exact meaning. OP(x) stands for
// `const OpDef op_x`, which one file of this folder defines.
#pragma once
#include "ops/op.h"

#define CREST_OPS(OP)     \
  OP(linear)              \
  OP(linear_gelu)         \
  OP(linear_dx)           \
  OP(linear_dw)           \
  OP(matmul)              \
  OP(bias_grad)           \
  OP(add)                 \
  OP(mul)                 \
  OP(scale)               \
  OP(add_scalar)          \
  OP(tanh)                \
  OP(tanh_grad)           \
  OP(gelu)                \
  OP(gelu_grad)           \
  OP(gelu_erf)            \
  OP(gelu_erf_grad)       \
  OP(silu)                \
  OP(silu_grad)           \
  OP(cast)                \
  OP(dropout)             \
  OP(fused)               \
  OP(norm)                \
  OP(add_norm)            \
  OP(norm_grad)           \
  OP(softmax)             \
  OP(softmax_grad)        \
  OP(causal_mask)         \
  OP(attention)           \
  OP(attention_grad)      \
  OP(split_heads)         \
  OP(join_heads)          \
  OP(split_rows)          \
  OP(join_rows)           \
  OP(rope)                \
  OP(cache_append)        \
  OP(cached_attention)    \
  OP(embedding)           \
  OP(embedding_grad)      \
  OP(take_row)            \
  OP(add_position)        \
  OP(position_grad)       \
  OP(cross_entropy)       \
  OP(cross_entropy_grad)  \
  OP(cross_entropy_fused) \
  OP(sum_loss)            \
  OP(grad_norm)           \
  OP(adamw)               \
  OP(sgd)                 \
  OP(lion)                \
  OP(adamw_8bit)          \
  OP(factored_moments)    \
  OP(factored_update)     \
  OP(axpby)               \
  OP(sqrt)                \
  OP(unit_norm)           \
  OP(finish_step)         \
  OP(all_reduce)

namespace crest {

#define CREST_DECLARE_OP(name) extern const OpDef op_##name;
CREST_OPS(CREST_DECLARE_OP)
#undef CREST_DECLARE_OP

}  // namespace crest
