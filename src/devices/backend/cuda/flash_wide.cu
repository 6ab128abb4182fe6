// cuda.flash.wide: the kernels of backend/cuda/flash_wide.h on bf16 and f16, for heads of 129 to
// 512.
#include "backend/cuda/flash_wide.h"

namespace crest::cuda {

namespace {

constexpr FlashHeads heads = {FlashHeads::half, 129, 512};

// Calls body(std::integral_constant<int, D>()) with the tile width of a head dimension.
template <class Body>
auto with_wide_head_dim(int head_dim, Body&& body) {
  if (head_dim <= 192) return body(std::integral_constant<int, 192>());
  if (head_dim <= 256) return body(std::integral_constant<int, 256>());
  return body(std::integral_constant<int, 512>());
}

// The sums of a warp are 16 rows of 96 to 256 columns, of gradients twice 96 to 128.
template <class T, int D>
using ForwardTile = WideTile<HalfNumbers<T>, D, 2, D <= 256 ? 64 : 32, 1, D <= 256 ? 2 : 1>;
template <class T, int D>
using GradTile = WideTile<HalfNumbers<T>, D, D <= 256 ? 2 : 4, 32, 2, 1>;

void launch_forward(const KernelCall& c) {
  AttentionSizes s = attention_sizes(c, in::attention::qkv, in::attention::scalars);
  with_half_type(c.in_value(in::attention::qkv).dtype, [&](auto type) {
    with_wide_head_dim(s.head_dim, [&](auto d) { start_wide_forward<ForwardTile<decltype(type), d()>>(c, s); });
  });
}

void launch_grad(const KernelCall& c) {
  AttentionSizes s = attention_sizes(c, in::attention_grad::qkv, in::attention_grad::scalars);
  with_half_type(c.in_value(in::attention_grad::qkv).dtype, [&](auto type) {
    with_wide_head_dim(s.head_dim, [&](auto d) { start_wide_grads<GradTile<decltype(type), d()>>(c, s); });
  });
}

std::string reject(const KernelQuery& q) {
  return reject_flash(q, in::attention::qkv, heads, [](int head_dim) {
    return with_wide_head_dim(head_dim, [](auto d) { return size_t(ForwardTile<bfloat16, d()>::forward_bytes); });
  });
}
std::string reject_grad(const KernelQuery& q) {
  return reject_flash(q, in::attention_grad::qkv, heads, [](int head_dim) {
    return with_wide_head_dim(head_dim, [](auto d) { return size_t(GradTile<bfloat16, d()>::grad_bytes); });
  });
}

}  // namespace

Kernel flash_wide_kernel() {
  return {"attention", "cuda.flash.wide", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward)};
}
Kernel flash_wide_grad_kernel() {
  return {"attention_grad",     "cuda.flash.wide", reject_grad,
          flash_grad_workspace, nullptr,           CREST_DEVICE_CODE(launch_grad)};
}

}  // namespace crest::cuda
