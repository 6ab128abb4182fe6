// Host side shared by the attention kernels: flash_*.cu, attention.cu.
#include "backend/cuda/flash.h"

#include <fmt/format.h>

#include "backend/cuda/dropout.h"
#include "ops/attention.h"
#include "ops/index.h"

namespace crest::cuda {

AttentionSizes attention_sizes(const KernelCall& c, size_t qkv, size_t scalars) {
  const Value& v = c.in_value(qkv);
  const Attrs& attrs = c.instr.attrs;
  AttentionSizes s = {};
  s.batch = int(v.shape[0]), s.tokens = int(v.shape[1]);
  s.heads = int(attrs.integer("heads")), s.kv_heads = int(attrs.integer("kv_heads"));
  s.head_dim = head_dim_of(v, attrs);
  s.causal = attrs.integer("causal", 0) != 0;
  s.scale = float(attrs.number("scale"));
  s.vectors = s.head_dim * int64_t(size_of(v.dtype)) % 16 == 0;
  for (size_t i = 0; i < c.instr.in.size(); ++i)
    if (c.has(i) && i < scalars) s.vectors &= aligned({c.in[i]});
  for (size_t i = 0; i < c.instr.out.size(); ++i) s.vectors &= aligned({c.out[i]});
  if (attrs.number("p", 0) > 0) s.dropout = dropout_rule(c, scalars);
  s.dropout.first_head = unsigned(c.part_begin(s.heads));
  if (c.has(scalars + 1)) s.positions = c.input<int32_t>(scalars + 1);
  s.window = int(window_of(attrs, s.tokens));
  return s;
}

std::string reject_attention(const KernelQuery& q, size_t qkv) {
  if (std::string why = reject_unless_float(q); !why.empty()) return why;
  const Value& v = q.in(qkv);
  double blocks = double(v.shape[0]) * double(v.shape[1]) * double(q.instr.attrs.integer("heads"));
  if (blocks > 2147483647.0 || v.shape[1] * v.shape[2] > 2147483647)
    return fmt::format("takes up to 2^31 - 1 query rows and elements of a sample, %{} has more", v.name);
  return "";
}

std::string reject_shared_memory(const KernelQuery& q, size_t bytes) {
  if (int64_t(bytes) <= q.device.shared_per_block) return "";
  return fmt::format("needs {} bytes of shared memory a block, the device has {}", bytes, q.device.shared_per_block);
}

std::string reject_flash(const KernelQuery& q, size_t qkv, const FlashHeads& heads, size_t (*shared_bytes)(int)) {
  if (std::string why = reject_attention(q, qkv); !why.empty()) return why;
  const Value& v = q.in(qkv);
  bool half = heads.numbers == FlashHeads::half;
  if (half && !is_half(v.dtype)) return fmt::format("takes bf16 or f16, not {}", name(v.dtype));
  if (!half && v.dtype != DType::f32) return fmt::format("takes f32, not {}", name(v.dtype));
  if (heads.numbers == FlashHeads::tf32 && !q.instr.attrs.integer("tf32", 0))
    return "rounds to TF32, which only --precision tf32 allows";
  int head_dim = head_dim_of(v, q.instr.attrs);
  if (head_dim < heads.min || head_dim > heads.max)
    return fmt::format("takes a head_dim of {} to {}, not {}", heads.min, heads.max, head_dim);
  if (!(q.instr.attrs.number("scale") > 0)) return "takes a positive scale";
  if (q.device.sm < 80) return "needs compute capability 8.0";
  return reject_shared_memory(q, shared_bytes(head_dim));
}

size_t flash_grad_workspace(const KernelQuery& q) {
  return size_t(q.in(in::attention_grad::lse).numel()) * 2 * sizeof(float);
}

static int multiprocessors(const KernelCall& c) { return c.device ? std::max(c.device->multiprocessors, 1) : 1; }

BlockOrder block_order(const KernelCall& c, const AttentionSizes& s, int rows, int heads, bool last_first) {
  int tiles = int(blocks_for(s.tokens, rows));
  bool heads_fastest = int64_t(tiles) * heads * s.batch < 8 * multiprocessors(c);
  return {tiles, heads, last_first, heads_fastest};
}

bool prefer_small_tiles(const KernelCall& c, const AttentionSizes& s, int heads, int rows, int shared_bytes) {
  bool few = int64_t(blocks_for(s.tokens, rows)) * heads * s.batch < 2 * multiprocessors(c);
  return few || (c.device && shared_bytes > c.device->shared_per_block);
}

}  // namespace crest::cuda
