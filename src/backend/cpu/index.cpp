#include "backend/cpu/index.h"

#include "backend/cpu/attention.h"
#include "backend/cpu/reference/index.h"

namespace crest {

// A kernel is a function that returns its Kernel; declare it here and list it below.
namespace cpu {
Kernel linear_few_rows_kernel();
Kernel linear_amx_kernel();
Kernel linear_packed_kernel();
Kernel linear_kernel();
Kernel linear_gelu_few_rows_kernel();
Kernel linear_gelu_amx_kernel();
Kernel linear_gelu_packed_kernel();
Kernel linear_gelu_kernel();
Kernel linear_dx_amx_kernel();
Kernel linear_dx_packed_kernel();
Kernel linear_dx_kernel();
Kernel linear_dw_amx_kernel();
Kernel linear_dw_packed_kernel();
Kernel linear_dw_kernel();
Kernel matmul_kernel();
Kernel cached_attention_kernel();
Kernel cache_append_kernel();
Kernel rope_kernel();
Kernel split_heads_kernel();
Kernel join_heads_kernel();
Kernel split_rows_kernel();
Kernel join_rows_kernel();
Kernel norm_kernel();
Kernel add_norm_kernel();
Kernel norm_grad_kernel();
Kernel softmax_kernel();
Kernel softmax_grad_kernel();
Kernel causal_mask_kernel();
Kernel fused_kernel();
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
}  // namespace cpu

std::vector<Kernel> cpu_kernels() {
  std::vector<Kernel> all = {
      cpu::linear_few_rows_kernel(),
      cpu::linear_amx_kernel(),
      cpu::linear_packed_kernel(),
      cpu::linear_kernel(),
      cpu::linear_gelu_few_rows_kernel(),
      cpu::linear_gelu_amx_kernel(),
      cpu::linear_gelu_packed_kernel(),
      cpu::linear_gelu_kernel(),
      cpu::linear_dx_amx_kernel(),
      cpu::linear_dx_packed_kernel(),
      cpu::linear_dx_kernel(),
      cpu::linear_dw_amx_kernel(),
      cpu::linear_dw_packed_kernel(),
      cpu::linear_dw_kernel(),
      cpu::matmul_kernel(),
      cpu::attention_amx_kernel(),
      cpu::attention_kernel(),
      cpu::attention_grad_amx_kernel(),
      cpu::attention_grad_kernel(),
      cpu::cached_attention_kernel(),
      cpu::cache_append_kernel(),
      cpu::rope_kernel(),
      cpu::split_heads_kernel(),
      cpu::join_heads_kernel(),
      cpu::split_rows_kernel(),
      cpu::join_rows_kernel(),
      cpu::norm_kernel(),
      cpu::add_norm_kernel(),
      cpu::norm_grad_kernel(),
      cpu::softmax_kernel(),
      cpu::softmax_grad_kernel(),
      cpu::causal_mask_kernel(),
      cpu::fused_kernel(),
      cpu::add_kernel(),
      cpu::mul_kernel(),
      cpu::scale_kernel(),
      cpu::add_scalar_kernel(),
      cpu::tanh_kernel(),
      cpu::tanh_grad_kernel(),
      cpu::gelu_kernel(),
      cpu::gelu_grad_kernel(),
      cpu::gelu_erf_kernel(),
      cpu::gelu_erf_grad_kernel(),
      cpu::silu_kernel(),
      cpu::silu_grad_kernel(),
      cpu::cast_kernel(),
      cpu::dropout_kernel(),
      cpu::bias_grad_kernel(),
      cpu::embedding_kernel(),
      cpu::embedding_grad_kernel(),
      cpu::add_position_kernel(),
      cpu::position_grad_kernel(),
      cpu::take_row_kernel(),
      cpu::cross_entropy_kernel(),
      cpu::cross_entropy_grad_kernel(),
      cpu::cross_entropy_fused_kernel(),
      cpu::sum_loss_kernel(),
      cpu::grad_norm_kernel(),
      cpu::adamw_kernel(),
      cpu::sgd_kernel(),
      cpu::lion_kernel(),
      cpu::adamw_8bit_kernel(),
      cpu::factored_moments_kernel(),
      cpu::factored_update_kernel(),
      cpu::axpby_kernel(),
      cpu::sqrt_kernel(),
      cpu::unit_norm_kernel(),
      cpu::finish_step_kernel(),
      cpu::all_reduce_kernel(),
  };
  for (const Kernel& k : cpu_reference_kernels()) all.push_back(k);
  return all;
}

}  // namespace crest
