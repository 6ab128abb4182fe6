#include "backend/cpu/fast_attention_index.h"

namespace crest {
namespace cpu {
Kernel norm_kernel();
Kernel add_norm_kernel();
Kernel norm_grad_kernel();
Kernel fused_kernel();
Kernel add_kernel();
Kernel mul_kernel();
Kernel scale_kernel();
Kernel add_scalar_kernel();
Kernel tanh_kernel();
Kernel tanh_grad_kernel();
Kernel gelu_kernel();
Kernel gelu_grad_kernel();
Kernel silu_kernel();
Kernel silu_grad_kernel();
Kernel attention_kernel();
Kernel attention_grad_kernel();
Kernel softmax_kernel();
Kernel softmax_grad_kernel();
Kernel causal_mask_kernel();
Kernel dropout_kernel();
Kernel cached_attention_kernel();
Kernel cache_append_kernel();
Kernel rope_kernel();
Kernel split_heads_kernel();
Kernel join_heads_kernel();
}  // namespace cpu

std::vector<Kernel> cpu_attention_kernels() {
  return {
      cpu::norm_kernel(),
      cpu::add_norm_kernel(),
      cpu::norm_grad_kernel(),
      cpu::fused_kernel(),
      cpu::add_kernel(),
      cpu::mul_kernel(),
      cpu::scale_kernel(),
      cpu::add_scalar_kernel(),
      cpu::tanh_kernel(),
      cpu::tanh_grad_kernel(),
      cpu::gelu_kernel(),
      cpu::gelu_grad_kernel(),
      cpu::silu_kernel(),
      cpu::silu_grad_kernel(),
      cpu::attention_kernel(),
      cpu::attention_grad_kernel(),
      cpu::softmax_kernel(),
      cpu::softmax_grad_kernel(),
      cpu::causal_mask_kernel(),
      cpu::dropout_kernel(),
      cpu::cached_attention_kernel(),
      cpu::cache_append_kernel(),
      cpu::rope_kernel(),
      cpu::split_heads_kernel(),
      cpu::join_heads_kernel(),
  };
}

}  // namespace crest
