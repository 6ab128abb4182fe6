#include "backend/cpu/index.h"

#include "backend/cpu/reference/index.h"
#include "ops/pointwise_ops.h"
#include "ops/update_ops.h"

// The kernels, one line each, in order of preference within an operation: KERNEL(x) is `Kernel
// x_kernel()`, defined in one file of this folder.
#define CREST_CPU_KERNELS(KERNEL) \
  KERNEL(linear_few_rows)         \
  KERNEL(linear_amx)              \
  KERNEL(linear_packed)           \
  KERNEL(linear)                  \
  KERNEL(linear_gelu_few_rows)    \
  KERNEL(linear_gelu_amx)         \
  KERNEL(linear_gelu_packed)      \
  KERNEL(linear_gelu)             \
  KERNEL(linear_dx_amx)           \
  KERNEL(linear_dx_packed)        \
  KERNEL(linear_dx)               \
  KERNEL(linear_dw_amx)           \
  KERNEL(linear_dw_packed)        \
  KERNEL(linear_dw)               \
  KERNEL(linear_fp8)              \
  KERNEL(linear_int8)             \
  KERNEL(linear_gelu_int8)        \
  KERNEL(matmul)                  \
  KERNEL(attention_amx)           \
  KERNEL(attention)               \
  KERNEL(attention_grad_amx)      \
  KERNEL(attention_grad)          \
  KERNEL(attention_rows_amx)      \
  KERNEL(attention_rows)          \
  KERNEL(attention_rows_grad_amx) \
  KERNEL(attention_rows_grad)     \
  KERNEL(split_keys)              \
  KERNEL(join_keys)               \
  KERNEL(cached_attention)        \
  KERNEL(cache_append)            \
  KERNEL(rope)                    \
  KERNEL(qk_norm)                 \
  KERNEL(qk_norm_grad)            \
  KERNEL(split_heads)             \
  KERNEL(join_heads)              \
  KERNEL(split_rows)              \
  KERNEL(join_rows)               \
  KERNEL(member)                  \
  KERNEL(norm)                    \
  KERNEL(add_norm)                \
  KERNEL(norm_grad)               \
  KERNEL(softmax)                 \
  KERNEL(softmax_grad)            \
  KERNEL(causal_mask)             \
  KERNEL(fused)                   \
  CREST_POINTWISE_OPS(KERNEL)     \
  KERNEL(quantize)                \
  KERNEL(quantize_columns)        \
  KERNEL(quantize_blocks)         \
  KERNEL(quantize_blocks_columns) \
  KERNEL(norm_quantize)           \
  KERNEL(norm_quantize_columns)   \
  KERNEL(quantize_rows)           \
  KERNEL(dequantize)              \
  KERNEL(dequantize_e4m3)         \
  KERNEL(cast)                    \
  KERNEL(dropout)                 \
  KERNEL(bias_grad)               \
  KERNEL(embedding)               \
  KERNEL(embedding_int8)          \
  KERNEL(embedding_grad)          \
  KERNEL(add_position)            \
  KERNEL(position_grad)           \
  KERNEL(take_row)                \
  KERNEL(loss_stats)              \
  KERNEL(cross_entropy)           \
  KERNEL(cross_entropy_grad)      \
  KERNEL(cross_entropy_fused)     \
  KERNEL(sum_loss)                \
  KERNEL(grad_norm)               \
  CREST_UPDATE_OPS(KERNEL)        \
  KERNEL(fused_update)            \
  KERNEL(adamw_8bit)              \
  KERNEL(factored_moments)        \
  KERNEL(factored_update)         \
  KERNEL(axpby)                   \
  KERNEL(sqrt)                    \
  KERNEL(unit_norm)               \
  KERNEL(amax_history)            \
  KERNEL(take_counts)             \
  KERNEL(finish_step)             \
  KERNEL(all_reduce)              \
  KERNEL(reduce_scatter)          \
  KERNEL(all_gather)              \
  KERNEL(own_share)               \
  KERNEL(gather_rows)             \
  KERNEL(gather_parts)            \
  KERNEL(gather_columns)          \
  KERNEL(scatter_rows)            \
  KERNEL(sum_rows)                \
  KERNEL(own_rows)                \
  KERNEL(own_positions)           \
  KERNEL(own_piece)               \
  KERNEL(gather_piece)            \
  KERNEL(scatter_piece)           \
  KERNEL(split_pieces)            \
  KERNEL(join_pieces)             \
  KERNEL(sum_pieces)              \
  KERNEL(gather_tokens)           \
  KERNEL(scatter_tokens)          \
  KERNEL(token_positions)         \
  KERNEL(send)                    \
  KERNEL(receive)                 \
  KERNEL(square_sum)              \
  KERNEL(copy_in)                 \
  KERNEL(copy_out)

namespace crest {

namespace cpu {
#define CREST_DECLARE_KERNEL(name, ...) Kernel name##_kernel();
CREST_CPU_KERNELS(CREST_DECLARE_KERNEL)
#undef CREST_DECLARE_KERNEL
}  // namespace cpu

const std::vector<Kernel>& cpu_kernels() {
  static const std::vector<Kernel> all = [] {
#define CREST_LIST_KERNEL(name, ...) cpu::name##_kernel(),
    std::vector<Kernel> list = {CREST_CPU_KERNELS(CREST_LIST_KERNEL)};
#undef CREST_LIST_KERNEL
    for (const Kernel& k : cpu_reference_kernels()) list.push_back(k);
    return list;
  }();
  return all;
}

}  // namespace crest
