// The operations, one line each; docs/ops.md gives their exact meaning.
#pragma once
#include "ops/op.h"

namespace crest {

extern const OpDef op_linear, op_linear_gelu, op_linear_dx, op_linear_dw;
extern const OpDef op_matmul;
extern const OpDef op_bias_grad;
extern const OpDef op_add, op_mul, op_scale, op_add_scalar, op_tanh, op_tanh_grad;
extern const OpDef op_gelu, op_gelu_grad;
extern const OpDef op_silu, op_silu_grad;
extern const OpDef op_cast;
extern const OpDef op_dropout;
extern const OpDef op_fused;
extern const OpDef op_norm, op_add_norm, op_norm_grad;
extern const OpDef op_softmax, op_softmax_grad;
extern const OpDef op_causal_mask;
extern const OpDef op_attention, op_attention_grad;
extern const OpDef op_split_heads, op_join_heads;
extern const OpDef op_rope;
extern const OpDef op_cache_append, op_cached_attention;
extern const OpDef op_embedding, op_embedding_grad, op_take_row;
extern const OpDef op_add_position, op_position_grad;
extern const OpDef op_cross_entropy, op_cross_entropy_grad, op_cross_entropy_fused, op_sum_loss;
extern const OpDef op_grad_norm;
extern const OpDef op_adamw;
extern const OpDef op_finish_step;
extern const OpDef op_all_reduce;

}  // namespace crest
