// cuda.flash.tileN: FlashAttention with N rows of queries and of keys a tile, 16 rows a warp and
// otherwise alike, to measure the value of the tile (--kernel attention=cuda.flash.tile64). Never
// chosen by itself. For bf16, heads of 64, without dropout.
#include "backend/cuda/flash_forward.h"
#include "backend/cuda/flash_grad.h"
#include "ops/attention.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int width = 64;  // of a head
template <int N>
using Forward = ForwardTile<width, 1, N / 16, N, true, 1>;
template <int N>
using Grad = GradTile<width, 1, N / 16, N, (N < 32 ? N : 32), true, 1>;

std::string reject_tile(const KernelQuery& q, size_t qkv, size_t positions, size_t (*shared_bytes)(int)) {
  if (std::string why = reject_flash(q, qkv, {FlashHeads::half, width, width}, shared_bytes); !why.empty()) return why;
  if (q.in(qkv).dtype != DType::bf16) return "takes bf16, not " + std::string(name(q.in(qkv).dtype));
  if (q.instr.attrs.number("p", 0) > 0) return "takes no dropout";
  if (q.has(positions)) return "takes no positions of documents";
  if (window_of(q.instr.attrs, q.in(qkv).shape[1])) return "takes no window";
  return "";
}

template <int N>
std::string reject_forward(const KernelQuery& q) {
  return reject_tile(q, in::attention::qkv, in::attention::positions,
                     [](int) { return size_t(Forward<N>::shared_bytes); });
}
template <int N>
std::string reject_grad(const KernelQuery& q) {
  return reject_tile(q, in::attention_grad::qkv, in::attention_grad::positions,
                     [](int) { return size_t(Grad<N>::shared_bytes); });
}

template <int N>
void launch_forward(const KernelCall& c) {
  start_forward<bfloat16, Forward<N>, false>(c, attention_sizes(c, in::attention::qkv, in::attention::scalars));
}
template <int N>
void launch_grad(const KernelCall& c) {
  start_grads<bfloat16, Grad<N>, Grad<N>, false>(
      c, attention_sizes(c, in::attention_grad::qkv, in::attention_grad::scalars));
}

// A tile beyond today's GPUs: even with enough shared memory, its scores are 16 x 256 a warp, 128
// registers a thread, and its 16 warps have 128 a thread for everything.
std::string reject_256(const std::string& why) {
  return why.empty() ? "its 16 warps need more than the 128 registers a thread that a multiprocessor has for them"
                     : why;
}
std::string reject_forward_256(const KernelQuery& q) { return reject_256(reject_forward<256>(q)); }
std::string reject_grad_256(const KernelQuery& q) { return reject_256(reject_grad<256>(q)); }

}  // namespace

std::vector<Kernel> flash_tile_kernels() {
  return {
      {"attention", "cuda.flash.tile16", reject_forward<16>, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward<16>)},
      {"attention", "cuda.flash.tile32", reject_forward<32>, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward<32>)},
      {"attention", "cuda.flash.tile64", reject_forward<64>, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward<64>)},
      {"attention", "cuda.flash.tile128", reject_forward<128>, nullptr, nullptr,
       CREST_DEVICE_CODE(launch_forward<128>)},
      {"attention", "cuda.flash.tile256", reject_forward_256}};
}

std::vector<Kernel> flash_tile_grad_kernels() {
  return {{"attention_grad", "cuda.flash.tile16", reject_grad<16>, flash_grad_workspace, nullptr,
           CREST_DEVICE_CODE(launch_grad<16>)},
          {"attention_grad", "cuda.flash.tile32", reject_grad<32>, flash_grad_workspace, nullptr,
           CREST_DEVICE_CODE(launch_grad<32>)},
          {"attention_grad", "cuda.flash.tile64", reject_grad<64>, flash_grad_workspace, nullptr,
           CREST_DEVICE_CODE(launch_grad<64>)},
          {"attention_grad", "cuda.flash.tile128", reject_grad<128>, flash_grad_workspace, nullptr,
           CREST_DEVICE_CODE(launch_grad<128>)},
          {"attention_grad", "cuda.flash.tile256", reject_grad_256}};
}

}  // namespace crest::cuda
