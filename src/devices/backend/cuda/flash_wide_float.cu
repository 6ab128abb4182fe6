// cuda.flash.wide.fp32 and cuda.flash.wide.tf32: the kernels of backend/cuda/flash_wide.h on f32,
// for heads of 129 to 256.
#include "backend/cuda/flash_wide.h"

namespace crest::cuda {

namespace {

constexpr int D = 256;
template <int Passes>
constexpr FlashHeads heads = {Passes == 1 ? FlashHeads::tf32 : FlashHeads::fp32, 129, D};
template <int Passes>
using ForwardTile = WideTile<FloatNumbers<Passes>, D, 2, 32, 1, 1>;
template <int Passes>
using GradTile = WideTile<FloatNumbers<Passes>, D, 2, 16, 2, 1>;

template <int Passes>
void launch_forward(const KernelCall& c) {
  start_wide_forward<ForwardTile<Passes>>(c, attention_sizes(c, in::attention::qkv, in::attention::scalars));
}
template <int Passes>
void launch_grad(const KernelCall& c) {
  start_wide_grads<GradTile<Passes>>(c, attention_sizes(c, in::attention_grad::qkv, in::attention_grad::scalars));
}

template <int Passes>
std::string reject(const KernelQuery& q) {
  return reject_flash(q, in::attention::qkv, heads<Passes>,
                      [](int) { return size_t(ForwardTile<Passes>::forward_bytes); });
}
template <int Passes>
std::string reject_grad(const KernelQuery& q) {
  return reject_flash(q, in::attention_grad::qkv, heads<Passes>,
                      [](int) { return size_t(GradTile<Passes>::grad_bytes); });
}

}  // namespace

Kernel flash_wide_tf32_kernel() {
  return {"attention", "cuda.flash.wide.tf32", reject<1>, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward<1>)};
}
Kernel flash_wide_fp32_kernel() {
  return {"attention", "cuda.flash.wide.fp32", reject<3>, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward<3>)};
}
Kernel flash_wide_tf32_grad_kernel() {
  return {"attention_grad", "cuda.flash.wide.tf32",           reject_grad<1>, flash_grad_workspace,
          nullptr,          CREST_DEVICE_CODE(launch_grad<1>)};
}
Kernel flash_wide_fp32_grad_kernel() {
  return {"attention_grad", "cuda.flash.wide.fp32",           reject_grad<3>, flash_grad_workspace,
          nullptr,          CREST_DEVICE_CODE(launch_grad<3>)};
}

}  // namespace crest::cuda
