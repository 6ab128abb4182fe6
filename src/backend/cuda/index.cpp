#include "backend/cuda/index.h"

namespace crest {

// A kernel is a function that returns its Kernel; declare it here and list it below.
namespace cuda {
Kernel linear_kernel();
Kernel linear_tiled_kernel();
Kernel linear_gelu_kernel();
Kernel linear_gelu_tiled_kernel();
Kernel linear_dx_kernel();
Kernel linear_dx_tiled_kernel();
Kernel linear_dw_kernel();
Kernel linear_dw_tiled_kernel();
Kernel matmul_kernel();
Kernel matmul_tiled_kernel();
Kernel attention_cudnn_kernel();
Kernel flash_mma_kernel();
Kernel flash_fp32_kernel();
Kernel attention_generic_kernel();
Kernel attention_grad_cudnn_kernel();
Kernel flash_mma_grad_kernel();
Kernel flash_fp32_grad_kernel();
std::vector<Kernel> flash_tile_kernels();
std::vector<Kernel> flash_tile_grad_kernels();
Kernel attention_generic_grad_kernel();
Kernel rope_kernel();
Kernel split_heads_kernel();
Kernel join_heads_kernel();
Kernel split_rows_kernel();
Kernel join_rows_kernel();
Kernel cache_append_kernel();
Kernel cached_attention_kernel();
Kernel norm_kernel();
Kernel add_norm_kernel();
Kernel norm_grad_kernel();
Kernel softmax_kernel();
Kernel softmax_grad_kernel();
Kernel causal_mask_kernel();
Kernel fused_nvrtc_kernel();
Kernel fused_interpreter_kernel();
Kernel add_kernel();
Kernel mul_kernel();
Kernel scale_kernel();
Kernel add_scalar_kernel();
Kernel tanh_kernel();
Kernel tanh_grad_kernel();
Kernel gelu_kernel();
Kernel gelu_grad_kernel();
Kernel gelu_erf_kernel();
Kernel gelu_erf_grad_kernel();
Kernel silu_kernel();
Kernel silu_grad_kernel();
Kernel cast_kernel();
Kernel dropout_kernel();
Kernel bias_grad_kernel();
Kernel embedding_kernel();
Kernel embedding_grad_kernel();
Kernel add_position_kernel();
Kernel position_grad_kernel();
Kernel take_row_kernel();
Kernel cross_entropy_kernel();
Kernel cross_entropy_grad_kernel();
Kernel cross_entropy_fused_kernel();
Kernel sum_loss_kernel();
Kernel grad_norm_kernel();
Kernel adamw_kernel();
Kernel sgd_kernel();
Kernel lion_kernel();
Kernel adamw_8bit_kernel();
Kernel factored_moments_kernel();
Kernel factored_update_kernel();
Kernel axpby_kernel();
Kernel sqrt_kernel();
Kernel unit_norm_kernel();
Kernel finish_step_kernel();
Kernel all_reduce_kernel();
}  // namespace cuda

std::vector<Kernel> cuda_kernels() {
  std::vector<Kernel> list = {
      cuda::linear_kernel(),
      cuda::linear_tiled_kernel(),
      cuda::linear_gelu_kernel(),
      cuda::linear_gelu_tiled_kernel(),
      cuda::linear_dx_kernel(),
      cuda::linear_dx_tiled_kernel(),
      cuda::linear_dw_kernel(),
      cuda::linear_dw_tiled_kernel(),
      cuda::matmul_kernel(),
      cuda::matmul_tiled_kernel(),
      cuda::attention_cudnn_kernel(),
      cuda::flash_mma_kernel(),
      cuda::flash_fp32_kernel(),
      cuda::attention_generic_kernel(),
      cuda::attention_grad_cudnn_kernel(),
      cuda::flash_mma_grad_kernel(),
      cuda::flash_fp32_grad_kernel(),
      cuda::attention_generic_grad_kernel(),
      cuda::rope_kernel(),
      cuda::split_heads_kernel(),
      cuda::join_heads_kernel(),
      cuda::split_rows_kernel(),
      cuda::join_rows_kernel(),
      cuda::cache_append_kernel(),
      cuda::cached_attention_kernel(),
      cuda::norm_kernel(),
      cuda::add_norm_kernel(),
      cuda::norm_grad_kernel(),
      cuda::softmax_kernel(),
      cuda::softmax_grad_kernel(),
      cuda::causal_mask_kernel(),
      cuda::fused_nvrtc_kernel(),
      cuda::fused_interpreter_kernel(),
      cuda::add_kernel(),
      cuda::mul_kernel(),
      cuda::scale_kernel(),
      cuda::add_scalar_kernel(),
      cuda::tanh_kernel(),
      cuda::tanh_grad_kernel(),
      cuda::gelu_kernel(),
      cuda::gelu_grad_kernel(),
      cuda::gelu_erf_kernel(),
      cuda::gelu_erf_grad_kernel(),
      cuda::silu_kernel(),
      cuda::silu_grad_kernel(),
      cuda::cast_kernel(),
      cuda::dropout_kernel(),
      cuda::bias_grad_kernel(),
      cuda::embedding_kernel(),
      cuda::embedding_grad_kernel(),
      cuda::add_position_kernel(),
      cuda::position_grad_kernel(),
      cuda::take_row_kernel(),
      cuda::cross_entropy_kernel(),
      cuda::cross_entropy_grad_kernel(),
      cuda::cross_entropy_fused_kernel(),
      cuda::sum_loss_kernel(),
      cuda::grad_norm_kernel(),
      cuda::adamw_kernel(),
      cuda::sgd_kernel(),
      cuda::lion_kernel(),
      cuda::adamw_8bit_kernel(),
      cuda::factored_moments_kernel(),
      cuda::factored_update_kernel(),
      cuda::axpby_kernel(),
      cuda::sqrt_kernel(),
      cuda::unit_norm_kernel(),
      cuda::finish_step_kernel(),
      cuda::all_reduce_kernel(),
  };
  // For --kernel: each stands behind one that takes everything.
  for (auto& kernels : {cuda::flash_tile_kernels(), cuda::flash_tile_grad_kernels()})
    list.insert(list.end(), kernels.begin(), kernels.end());
  return list;
}

}  // namespace crest
