// Host side shared by the attention kernels: flash_*.cu, attention.cu.
#include "backend/cuda/flash.h"

#include <fmt/format.h>

#include "backend/cuda/dropout.h"
#include "ops/attention.h"
#include "ops/index.h"

namespace crest::cuda {

bool is_rows(const Instr& instr) { return std::string_view(instr.op->name).starts_with("attention_rows"); }

int head_dim_of(const Instr& instr, const Value& q) {
  return is_rows(instr) ? int(q.shape[2] / instr.attrs.integer("heads")) : head_dim_of(q, instr.attrs);
}

AttentionOperands attention_operands(const Instr& instr) {
  if (is_rows(instr)) return {in::attention_rows::q, in::attention_rows::kv, in::attention_rows::scalars};
  return {in::attention::qkv, in::attention::qkv, in::attention::scalars};
}

GradOperands grad_operands(const Instr& instr) {
  if (is_rows(instr)) {
    namespace at = in::attention_rows_grad;
    return {at::d_o,
            at::q,
            at::kv,
            at::o,
            at::lse,
            at::scalars,
            out::attention_rows_grad::dq,
            out::attention_rows_grad::dkv};
  }
  namespace at = in::attention_grad;
  return {at::d_o, at::qkv, at::qkv, at::o, at::lse, at::scalars, out::attention_grad::dqkv, out::attention_grad::dqkv};
}

AttentionSizes attention_sizes(const KernelCall& c, size_t qkv, size_t scalars) {
  return attention_sizes(c, AttentionOperands{qkv, qkv, scalars});
}

template <class Operands>
AttentionSizes attention_sizes(const KernelCall& c, const Operands& at) {
  const Value &q = c.in_value(at.q), &kv = c.in_value(at.kv), &v = q;
  const Attrs& attrs = c.instr.attrs;
  const size_t scalars = at.scalars;
  AttentionSizes s = {};
  s.batch = int(v.shape[0]), s.tokens = int(kv.shape[1]);
  s.heads = int(attrs.integer("heads")), s.kv_heads = int(attrs.integer("kv_heads"));
  s.head_dim = head_dim_of(c.instr, q);
  s.query_width = int(q.shape[2]);
  if (is_rows(c.instr)) {
    s.causal = true, s.key_width = 2 * s.kv_heads * s.head_dim, s.key_head = 0;
    s.chunks = 2, s.queries = int(q.shape[1] / 2);
    const OwnChunks own(s.tokens, c.instr.attrs.integer("ranks"), c.chunk_place());
    s.first[0] = int(own.first[0]), s.first[1] = int(own.first[1]);
  } else {
    s.causal = attrs.integer("causal", 0) != 0, s.key_width = s.query_width, s.key_head = s.heads;
    s.chunks = 1, s.queries = s.tokens;
  }
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
template AttentionSizes attention_sizes(const KernelCall& c, const AttentionOperands& at);
template AttentionSizes attention_sizes(const KernelCall& c, const GradOperands& at);

std::string reject_attention(const KernelQuery& q, size_t qkv) {
  if (std::string why = reject_unless_float(q); !why.empty()) return why;
  const Value& v = q.in(qkv);
  double blocks = double(v.shape[0]) * double(v.shape[1]) * double(q.instr.attrs.integer("heads"));
  int64_t elements = v.shape[1] * v.shape[2];
  if (is_rows(q.instr)) {
    const Value& kv = q.in(qkv + 1);
    elements = std::max(elements, kv.numel() / kv.shape[0]);
  }
  if (blocks > 2147483647.0 || elements > 2147483647)
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
  int head_dim = head_dim_of(q.instr, v);
  if (head_dim < heads.min || head_dim > heads.max)
    return fmt::format("takes a head_dim of {} to {}, not {}", heads.min, heads.max, head_dim);
  if (!(q.instr.attrs.number("scale") > 0)) return "takes a positive scale";
  if (q.device.sm < 80) return "needs compute capability 8.0";
  return reject_shared_memory(q, shared_bytes(head_dim));
}

size_t flash_grad_workspace(const KernelQuery& q) {
  return size_t(q.in(grad_operands(q.instr).lse).numel()) * 2 * sizeof(float);
}

static int multiprocessors(const KernelCall& c) { return c.device ? std::max(c.device->multiprocessors, 1) : 1; }

static BlockOrder order_of(const KernelCall& c, const AttentionSizes& s, int tiles, int heads, bool last_first) {
  bool heads_fastest = int64_t(tiles) * heads * s.batch < 8 * multiprocessors(c);
  return {tiles, heads, last_first, heads_fastest};
}

BlockOrder key_order(const KernelCall& c, const AttentionSizes& s, int rows) {
  return order_of(c, s, int(blocks_for(s.tokens, rows)), s.kv_heads, false);
}

BlockOrder block_order(const KernelCall& c, const AttentionSizes& s, int rows, int heads, bool last_first) {
  return order_of(c, s, s.chunks * int(blocks_for(s.queries, rows)), heads, last_first);
}

bool prefer_small_tiles(const KernelCall& c, const AttentionSizes& s, int heads, int rows, int shared_bytes) {
  bool few = s.chunks * int64_t(blocks_for(s.queries, rows)) * heads * s.batch < 2 * multiprocessors(c);
  return few || (c.device && shared_bytes > c.device->shared_per_block);
}

}  // namespace crest::cuda
