#include "backend/cpu/reference/index.h"

#include "backend/cpu/reference/kernels.h"

namespace crest {

static std::string takes_all(const KernelQuery&) { return ""; }

static Kernel kernel(const char* op, const char* name, void (*launch)(const KernelCall&)) {
  return {.op = op, .name = name, .reject = takes_all, .launch = launch};
}

std::vector<Kernel> cpu_reference_kernels() {
  return {
      kernel("linear", "cpu.linear.reference", reference::linear),
      kernel("linear_gelu", "cpu.linear_gelu.reference", reference::linear_gelu),
      kernel("linear_dx", "cpu.linear_dx.reference", reference::linear_dx),
      kernel("linear_dw", "cpu.linear_dw.reference", reference::linear_dw),
      kernel("matmul", "cpu.matmul.reference", reference::matmul),
      kernel("bias_grad", "cpu.bias_grad.reference", reference::bias_grad),
      kernel("add", "cpu.add.reference", reference::pointwise),
      kernel("mul", "cpu.mul.reference", reference::pointwise),
      kernel("scale", "cpu.scale.reference", reference::pointwise),
      kernel("add_scalar", "cpu.add_scalar.reference", reference::pointwise),
      kernel("tanh", "cpu.tanh.reference", reference::pointwise),
      kernel("tanh_grad", "cpu.tanh_grad.reference", reference::pointwise),
      kernel("gelu", "cpu.gelu.reference", reference::pointwise),
      kernel("gelu_grad", "cpu.gelu_grad.reference", reference::pointwise),
      kernel("silu", "cpu.silu.reference", reference::pointwise),
      kernel("silu_grad", "cpu.silu_grad.reference", reference::pointwise),
      kernel("cast", "cpu.cast.reference", reference::pointwise),
      kernel("dropout", "cpu.dropout.reference", reference::dropout),
      kernel("fused", "cpu.fused.reference", reference::fused),
      kernel("norm", "cpu.norm.reference", reference::norm),
      kernel("add_norm", "cpu.add_norm.reference", reference::add_norm),
      kernel("norm_grad", "cpu.norm_grad.reference", reference::norm_grad),
      kernel("softmax", "cpu.softmax.reference", reference::softmax),
      kernel("softmax_grad", "cpu.softmax_grad.reference", reference::softmax_grad),
      kernel("causal_mask", "cpu.causal_mask.reference", reference::causal_mask),
      kernel("attention", "cpu.attention.reference", reference::attention),
      kernel("attention_grad", "cpu.attention_grad.reference", reference::attention_grad),
      kernel("split_heads", "cpu.split_heads.reference", reference::split_heads),
      kernel("join_heads", "cpu.join_heads.reference", reference::join_heads),
      kernel("rope", "cpu.rope.reference", reference::rope),
      kernel("cache_append", "cpu.cache_append.reference", reference::cache_append),
      kernel("cached_attention", "cpu.cached_attention.reference", reference::cached_attention),
      kernel("embedding", "cpu.embedding.reference", reference::embedding),
      kernel("embedding_grad", "cpu.embedding_grad.reference", reference::embedding_grad),
      kernel("take_row", "cpu.take_row.reference", reference::take_row),
      kernel("add_position", "cpu.add_position.reference", reference::add_position),
      kernel("position_grad", "cpu.position_grad.reference", reference::position_grad),
      kernel("cross_entropy", "cpu.cross_entropy.reference", reference::cross_entropy),
      kernel("cross_entropy_grad", "cpu.cross_entropy_grad.reference", reference::cross_entropy_grad),
      kernel("cross_entropy_fused", "cpu.cross_entropy_fused.reference", reference::cross_entropy_fused),
      kernel("sum_loss", "cpu.sum_loss.reference", reference::sum_loss),
      kernel("grad_norm", "cpu.grad_norm.reference", reference::grad_norm),
      kernel("adamw", "cpu.adamw.reference", reference::adamw),
      kernel("finish_step", "cpu.finish_step.reference", reference::finish_step),
  };
}

}  // namespace crest
