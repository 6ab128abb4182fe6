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
Kernel bias_grad_kernel();
Kernel attention_kernel();
Kernel attention_grad_kernel();
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
      cpu::bias_grad_kernel(),
      cpu::attention_kernel(),
      cpu::attention_grad_kernel(),
  };
}

}  // namespace crest
