#include "backend/cuda/index.h"
#include "ops/pointwise_ops.h"
#include "ops/update_ops.h"

// The kernels, one line each, in order of preference within an operation: KERNEL(x) is `Kernel
// x_kernel()`, defined in one file of this folder.
#define CREST_CUDA_KERNELS(KERNEL) \
  KERNEL(linear_sm90)              \
  KERNEL(linear)                   \
  KERNEL(linear_tiled)             \
  KERNEL(linear_gelu_sm90)         \
  KERNEL(linear_gelu)              \
  KERNEL(linear_gelu_tiled)        \
  KERNEL(linear_swiglu_sm90)       \
  KERNEL(linear_dx_sm90)           \
  KERNEL(linear_dx)                \
  KERNEL(linear_dx_tiled)          \
  KERNEL(linear_dx_sum_sm90)       \
  KERNEL(linear_dx_gelu_grad_sm90) \
  KERNEL(swiglu_grad_sm90)         \
  KERNEL(linear_dw_sm90)           \
  KERNEL(linear_dw)                \
  KERNEL(linear_dw_tiled)          \
  KERNEL(linear_fp8)               \
  KERNEL(linear_fp8_fast)          \
  KERNEL(linear_fp8_dequantized)   \
  KERNEL(linear_fp8_tiled)         \
  KERNEL(linear_int8)              \
  KERNEL(linear_gelu_int8)         \
  KERNEL(matmul)                   \
  KERNEL(matmul_tiled)             \
  KERNEL(attention_sm90_d64)       \
  KERNEL(attention_cudnn)          \
  KERNEL(attention_sm90_d128)      \
  KERNEL(flash_mma)                \
  KERNEL(flash_tf32)               \
  KERNEL(flash_fp32)               \
  KERNEL(flash_wide)               \
  KERNEL(flash_wide_tf32)          \
  KERNEL(flash_wide_fp32)          \
  KERNEL(attention_generic)        \
  KERNEL(attention_sm90_d64_grad)  \
  KERNEL(attention_grad_cudnn)     \
  KERNEL(attention_sm90_d128_grad) \
  KERNEL(flash_mma_grad)           \
  KERNEL(flash_tf32_grad)          \
  KERNEL(flash_fp32_grad)          \
  KERNEL(flash_wide_grad)          \
  KERNEL(flash_wide_tf32_grad)     \
  KERNEL(flash_wide_fp32_grad)     \
  KERNEL(attention_generic_grad)   \
  KERNEL(rows_sm90_d64)            \
  KERNEL(rows_sm90_d128)           \
  KERNEL(flash_mma_rows)           \
  KERNEL(flash_tf32_rows)          \
  KERNEL(flash_fp32_rows)          \
  KERNEL(rows_generic)             \
  KERNEL(rows_sm90_d64_grad)       \
  KERNEL(rows_sm90_d128_grad)      \
  KERNEL(flash_mma_rows_grad)      \
  KERNEL(flash_tf32_rows_grad)     \
  KERNEL(flash_fp32_rows_grad)     \
  KERNEL(rows_generic_grad)        \
  KERNEL(split_keys)               \
  KERNEL(join_keys)                \
  KERNEL(rope)                     \
  KERNEL(qk_norm)                  \
  KERNEL(qk_norm_grad)             \
  KERNEL(split_heads)              \
  KERNEL(join_heads)               \
  KERNEL(split_rows)               \
  KERNEL(join_rows)                \
  KERNEL(member)                   \
  KERNEL(cache_append)             \
  KERNEL(cached_attention)         \
  KERNEL(norm)                     \
  KERNEL(add_norm)                 \
  KERNEL(norm_grad)                \
  KERNEL(softmax)                  \
  KERNEL(softmax_grad)             \
  KERNEL(causal_mask)              \
  KERNEL(fused_quantize)           \
  KERNEL(fused_nvrtc)              \
  KERNEL(fused_interpreter)        \
  CREST_POINTWISE_OPS(KERNEL)      \
  KERNEL(quantize)                 \
  KERNEL(quantize_columns)         \
  KERNEL(quantize_blocks)          \
  KERNEL(quantize_blocks_columns)  \
  KERNEL(norm_quantize)            \
  KERNEL(norm_quantize_columns)    \
  KERNEL(quantize_rows)            \
  KERNEL(dequantize)               \
  KERNEL(dequantize_e4m3)          \
  KERNEL(cast)                     \
  KERNEL(dropout)                  \
  KERNEL(bias_grad)                \
  KERNEL(embedding)                \
  KERNEL(embedding_int8)           \
  KERNEL(embedding_grad)           \
  KERNEL(add_position)             \
  KERNEL(position_grad)            \
  KERNEL(take_row)                 \
  KERNEL(loss_stats)               \
  KERNEL(cross_entropy)            \
  KERNEL(cross_entropy_grad)       \
  KERNEL(cross_entropy_fused)      \
  KERNEL(sum_loss)                 \
  KERNEL(grad_norm)                \
  CREST_UPDATE_OPS(KERNEL)         \
  KERNEL(fused_update)             \
  KERNEL(adamw_8bit)               \
  KERNEL(factored_moments)         \
  KERNEL(factored_update)          \
  KERNEL(axpby)                    \
  KERNEL(sqrt)                     \
  KERNEL(unit_norm)                \
  KERNEL(amax_history)             \
  KERNEL(take_counts)              \
  KERNEL(finish_step)              \
  KERNEL(all_reduce)               \
  KERNEL(reduce_scatter_copies)    \
  KERNEL(reduce_scatter)           \
  KERNEL(all_gather_copies)        \
  KERNEL(all_gather)               \
  KERNEL(own_share)                \
  KERNEL(gather_rows)              \
  KERNEL(gather_parts)             \
  KERNEL(gather_columns)           \
  KERNEL(scatter_rows)             \
  KERNEL(sum_rows)                 \
  KERNEL(own_rows)                 \
  KERNEL(own_positions)            \
  KERNEL(own_piece)                \
  KERNEL(gather_piece_copies)      \
  KERNEL(gather_piece)             \
  KERNEL(scatter_piece_copies)     \
  KERNEL(scatter_piece)            \
  KERNEL(split_pieces)             \
  KERNEL(join_pieces)              \
  KERNEL(sum_pieces)               \
  KERNEL(gather_tokens)            \
  KERNEL(scatter_tokens)           \
  KERNEL(token_positions)          \
  KERNEL(send)                     \
  KERNEL(receive)                  \
  KERNEL(square_sum)               \
  KERNEL(copy_in)                  \
  KERNEL(copy_out)

namespace crest {

namespace cuda {
#define CREST_DECLARE_KERNEL(name, ...) Kernel name##_kernel();
CREST_CUDA_KERNELS(CREST_DECLARE_KERNEL)
#undef CREST_DECLARE_KERNEL
std::vector<Kernel> flash_tile_kernels();
std::vector<Kernel> flash_tile_grad_kernels();
}  // namespace cuda

const std::vector<Kernel>& cuda_kernels() {
  static const std::vector<Kernel> all = [] {
#define CREST_LIST_KERNEL(name, ...) cuda::name##_kernel(),
    std::vector<Kernel> list = {CREST_CUDA_KERNELS(CREST_LIST_KERNEL)};
#undef CREST_LIST_KERNEL
    // For --kernel: each comes after one for everything.
    for (auto& kernels : {cuda::flash_tile_kernels(), cuda::flash_tile_grad_kernels()})
      list.insert(list.end(), kernels.begin(), kernels.end());
    return list;
  }();
  return all;
}

}  // namespace crest
