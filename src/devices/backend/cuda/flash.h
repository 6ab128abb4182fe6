// Host side shared by the attention kernels: sizes, limits, the grid.
#pragma once
#include "backend/cuda/device/flash_sizes.h"
#include "backend/cuda/kernel.h"

namespace crest::cuda {

// Of an instruction `attention` (qkv is input 0, scalars input 1) or `attention_grad` (inputs 1 and
// 4); positions follow the scalars.
AttentionSizes attention_sizes(const KernelCall& c, size_t qkv, size_t scalars);

// The operands of `attention` or `attention_rows`, and of their gradients: of attention q and kv
// are both qkv.
struct AttentionOperands {
  size_t q, kv, scalars;
};
struct GradOperands {
  size_t d_o, q, kv, o, lse, scalars;
  size_t dq, dkv;  // outputs
};
bool is_rows(const Instr& instr);  // whether it is attention_rows or its gradient
AttentionOperands attention_operands(const Instr& instr);
GradOperands grad_operands(const Instr& instr);
inline AttentionOperands attention_operands(const KernelCall& c) { return attention_operands(c.instr); }
inline GradOperands grad_operands(const KernelCall& c) { return grad_operands(c.instr); }
// For kernels of both operations.
template <class Operands>
AttentionSizes attention_sizes(const KernelCall& c, const Operands& at);

// Why no kernel takes the instruction: contiguous f32, bf16 or f16 throughout; a grid has up to
// 2^31 - 1 blocks.
std::string reject_attention(const KernelQuery& q, size_t qkv);  // of attention_rows: q
std::string reject_shared_memory(const KernelQuery& q, size_t bytes);
// Accepted by a FlashAttention kernel: 16-bit dtypes, or f32 with products rounded to TF32 (tf32:
// only if allowed) or not; heads of `min` to `max` columns.
struct FlashHeads {
  enum Numbers { half, tf32, fp32 } numbers;
  int min, max;
};
// The same for such a kernel. shared_bytes: of a block, by head dimension.
std::string reject_flash(const KernelQuery& q, size_t qkv, const FlashHeads& heads,
                         size_t (*shared_bytes)(int head_dim));
// Of kernels of attention_grad: {lse, dO . O} of every query row.
size_t flash_grad_workspace(const KernelQuery& q);

// The grid of tiles of `rows` keys of each key/value head.
BlockOrder key_order(const KernelCall& c, const AttentionSizes& s, int rows);
// The grid of tiles of `rows` queries of each head.
BlockOrder block_order(const KernelCall& c, const AttentionSizes& s, int rows, int heads, bool last_first);
inline unsigned blocks_of(const BlockOrder& order, const AttentionSizes& s) {
  return unsigned(order.tiles) * unsigned(order.heads) * unsigned(s.batch);
}
// Whether this grid, with `shared_bytes` a block, leaves multiprocessors idle or does not fit on
// the device.
bool prefer_small_tiles(const KernelCall& c, const AttentionSizes& s, int heads, int rows, int shared_bytes);

// Head dimensions are padded with zeros to the next tile width.
constexpr int max_flash_head_dim = 128;
// Calls body(std::integral_constant<int, D>()) with the tile width of a head dimension.
template <class Body>
auto with_head_dim(int head_dim, Body&& body) {
  if (head_dim <= 32) return body(std::integral_constant<int, 32>());
  if (head_dim <= 64) return body(std::integral_constant<int, 64>());
  if (head_dim <= 96) return body(std::integral_constant<int, 96>());
  if (head_dim <= max_flash_head_dim) return body(std::integral_constant<int, 128>());
  fail_internal("a FlashAttention kernel was given a head_dim that it rejects");
}
inline int head_dim_of(const Value& qkv, const Attrs& attrs) {
  return int(qkv.shape[2] / (attrs.integer("heads") + 2 * attrs.integer("kv_heads")));
}
// Of qkv, or of q of attention_rows.
int head_dim_of(const Instr& instr, const Value& q);

// Calls body(T()) with the storage type of a 16-bit dtype.
template <class Body>
void with_half_type(DType t, Body&& body) {
  if (t == DType::bf16) return body(bfloat16());
  if (t == DType::f16) return body(float16());
  fail_internal("a kernel for 16-bit dtypes was given another");
}

}  // namespace crest::cuda
