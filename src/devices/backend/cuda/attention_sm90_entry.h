// Host side of the kernels cuda.attention.sm90.* and cuda.attention_grad.sm90.*, one for each head
// dimension: shared by attention_sm90.cu and attention_sm90_grad.cu.
#pragma once
#include "backend/cuda/attention_sm90.h"
#include "backend/cuda/discover.h"
#include "backend/cuda/flash.h"
#include "ops/attention.h"

namespace crest::cuda::sm90 {

template <class Operands>
Sizes sizes_of(const KernelCall& c, const Operands& at) {
  AttentionSizes from = attention_sizes(c, at);
  Sizes s = {};
  s.batch = from.batch, s.tokens = from.tokens, s.heads = from.heads, s.kv_heads = from.kv_heads;
  s.queries = from.rows(), s.chunk_queries = from.queries, s.key_head = from.key_head;
  s.shift[0] = from.first[0], s.shift[1] = from.first[1] - (from.chunks > 1 ? from.queries : 0);
  s.causal = from.causal, s.window = from.window, s.scale = from.scale;
  s.positions = from.positions, s.dropout = from.dropout;
  return s;
}

// For workspaces, of an instruction without addresses yet.
inline Sizes sizes_of(const KernelQuery& q, const GradOperands& at) {
  Sizes s = {};
  s.batch = int(q.in(at.q).shape[0]), s.tokens = int(q.in(at.kv).shape[1]), s.queries = int(q.in(at.q).shape[1]);
  s.heads = int(q.instr.attrs.integer("heads")), s.kv_heads = int(q.instr.attrs.integer("kv_heads"));
  s.window = int(window_of(q.instr.attrs, s.tokens));
  return s;
}

// unit: queries of a tile that must be in one chunk.
template <int D>
std::string reject(const KernelQuery& q, size_t qkv, int unit) {
  if (std::string why = reject_attention(q, qkv); !why.empty()) return why;
  const Value& v = q.in(qkv);
  if (!is_half(v.dtype)) return "takes bf16 or f16, not " + std::string(name(v.dtype));
  if (int head_dim = head_dim_of(q.instr, v); head_dim != D)
    return "takes a head_dim of " + std::to_string(D) + ", not " + std::to_string(head_dim);
  if (is_rows(q.instr) && v.shape[1] / 2 % unit)
    return "takes chunks of a multiple of " + std::to_string(unit) + " tokens";
  if (!(q.instr.attrs.number("scale") > 0)) return "takes a positive scale";
  if (v.shape[0] > 65535 || q.instr.attrs.integer("heads") > 65535) return "takes up to 65535 samples and heads";
  for (auto* list : {&q.instr.in, &q.instr.out})
    for (ValueId id : *list)
      if (id != no_value && is_half(q.program.at(id).dtype) && q.program.at(id).layout.offset % 8)
        return "%" + q.program.at(id).name + " is a view that does not begin at a multiple of 16 bytes";
  if (q.device.sm != 90) return "needs compute capability 9.0";
  if (!compiled_for("90a")) return "was not compiled: CUDA_ARCHS of this build lacks 90a";
  return "";
}

// cuTensorMapEncodeTiled of the loaded driver.
inline EncodeTiled encode_tiled() {
#ifdef __CUDACC__
  static const EncodeTiled encode = [] {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult found;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found),
          "cuTensorMapEncodeTiled");
    return reinterpret_cast<EncodeTiled>(f);
  }();
  return encode;
#else
  return nullptr;
#endif
}

// Calls body(T(), queries have a first key, dropout), the last two as constants.
template <class Body>
void with_kind(DType dtype, bool first, bool dropout, Body&& body) {
  with_half_type(dtype, [&](auto type) {
    if (first && dropout) return body(type, std::true_type(), std::true_type());
    if (first) return body(type, std::true_type(), std::false_type());
    if (dropout) return body(type, std::false_type(), std::true_type());
    return body(type, std::false_type(), std::false_type());
  });
}

}  // namespace crest::cuda::sm90
