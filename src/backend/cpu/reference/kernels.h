// The reference kernels, one line an operation: KERNEL(x, f) is `cpu.x.reference`, launched by reference::f (pointwise
// operations share one).
#pragma once
#include "backend/backend.h"

#define CREST_REFERENCE_KERNELS(KERNEL)            \
  KERNEL(linear, linear)                           \
  KERNEL(linear_gelu, linear_gelu)                 \
  KERNEL(linear_dx, linear_dx)                     \
  KERNEL(linear_dw, linear_dw)                     \
  KERNEL(matmul, matmul)                           \
  KERNEL(bias_grad, bias_grad)                     \
  KERNEL(add, pointwise)                           \
  KERNEL(mul, pointwise)                           \
  KERNEL(scale, pointwise)                         \
  KERNEL(add_scalar, pointwise)                    \
  KERNEL(tanh, pointwise)                          \
  KERNEL(tanh_grad, pointwise)                     \
  KERNEL(gelu, pointwise)                          \
  KERNEL(gelu_grad, pointwise)                     \
  KERNEL(gelu_erf, pointwise)                      \
  KERNEL(gelu_erf_grad, pointwise)                 \
  KERNEL(silu, pointwise)                          \
  KERNEL(silu_grad, pointwise)                     \
  KERNEL(cast, pointwise)                          \
  KERNEL(dropout, dropout)                         \
  KERNEL(fused, fused)                             \
  KERNEL(norm, norm)                               \
  KERNEL(add_norm, add_norm)                       \
  KERNEL(norm_grad, norm_grad)                     \
  KERNEL(softmax, softmax)                         \
  KERNEL(softmax_grad, softmax_grad)               \
  KERNEL(causal_mask, causal_mask)                 \
  KERNEL(attention, attention)                     \
  KERNEL(attention_grad, attention_grad)           \
  KERNEL(split_heads, split_heads)                 \
  KERNEL(join_heads, join_heads)                   \
  KERNEL(split_rows, split_rows)                   \
  KERNEL(join_rows, join_rows)                     \
  KERNEL(rope, rope)                               \
  KERNEL(cache_append, cache_append)               \
  KERNEL(cached_attention, cached_attention)       \
  KERNEL(embedding, embedding)                     \
  KERNEL(embedding_grad, embedding_grad)           \
  KERNEL(take_row, take_row)                       \
  KERNEL(add_position, add_position)               \
  KERNEL(position_grad, position_grad)             \
  KERNEL(cross_entropy, cross_entropy)             \
  KERNEL(cross_entropy_grad, cross_entropy_grad)   \
  KERNEL(cross_entropy_fused, cross_entropy_fused) \
  KERNEL(sum_loss, sum_loss)                       \
  KERNEL(grad_norm, grad_norm)                     \
  KERNEL(adamw, adamw)                             \
  KERNEL(sgd, sgd)                                 \
  KERNEL(lion, lion)                               \
  KERNEL(adamw_8bit, adamw_8bit)                   \
  KERNEL(factored_moments, factored_moments)       \
  KERNEL(factored_update, factored_update)         \
  KERNEL(axpby, axpby)                             \
  KERNEL(sqrt, sqrt)                               \
  KERNEL(unit_norm, unit_norm)                     \
  KERNEL(finish_step, finish_step)

namespace crest::reference {

#define CREST_DECLARE_KERNEL(op, function) void function(const KernelCall&);
CREST_REFERENCE_KERNELS(CREST_DECLARE_KERNEL)
#undef CREST_DECLARE_KERNEL

}  // namespace crest::reference
