#include "ops/index.h"

namespace crest {

const std::vector<const OpDef*>& all_ops() {
  static const std::vector<const OpDef*> ops = {
      &op_linear,
      &op_linear_gelu,
      &op_linear_dx,
      &op_linear_dw,
      &op_matmul,
      &op_bias_grad,
      &op_add,
      &op_mul,
      &op_scale,
      &op_add_scalar,
      &op_tanh,
      &op_tanh_grad,
      &op_gelu,
      &op_gelu_grad,
      &op_silu,
      &op_silu_grad,
      &op_cast,
      &op_dropout,
      &op_fused,
      &op_norm,
      &op_add_norm,
      &op_norm_grad,
      &op_softmax,
      &op_softmax_grad,
      &op_causal_mask,
      &op_attention,
      &op_attention_grad,
      &op_split_heads,
      &op_join_heads,
      &op_rope,
      &op_cache_append,
      &op_cached_attention,
      &op_embedding,
      &op_embedding_grad,
      &op_take_row,
      &op_add_position,
      &op_position_grad,
      &op_cross_entropy,
      &op_cross_entropy_grad,
      &op_cross_entropy_fused,
      &op_sum_loss,
      &op_grad_norm,
      &op_adamw,
      &op_finish_step,
      &op_all_reduce,
  };
  return ops;
}

}  // namespace crest
