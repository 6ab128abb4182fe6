// cached_attention: prefill runs the tiles of `attention`, decoding runs dot products per query.
#include <omp.h>

#include <cstring>

#include "backend/cpu/attention.h"
#include "backend/cpu/common.h"
#include "backend/cpu/simd/attention_scratch.h"
#include "backend/cpu/simd/decode.h"
#include "core/scalars.h"
#include "ops/attention.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

std::string reject(const KernelQuery& q) {
  if (std::string why = check_float(q.in(in::cached_attention::qkv)); !why.empty()) return why;
  if (std::string why = check_same(q.in(in::cached_attention::cache), q.in(in::cached_attention::qkv)); !why.empty())
    return why;
  if (q.in(in::cached_attention::cache).shape[4] > 256) return "head_dim above 256";
  return check_same(q.out(out::cached_attention::o), q.in(in::cached_attention::qkv));
}

// Of (batch 0, key/value head 0) with all tokens valid and the cache full: the largest scratch.
AttentionArgs common(const Value& qkv, const Value& cache, const Attrs& attrs) {
  int64_t heads = attrs.integer("heads"), kv_heads = attrs.integer("kv_heads");
  AttentionArgs a{};
  a.head_dim = int(cache.shape[4]);
  a.heads = int(heads / kv_heads);
  a.q_stride = qkv.shape[2], a.k_stride = a.v_stride = a.head_dim, a.o_stride = heads * a.head_dim;
  a.queries = qkv.shape[1], a.keys = cache.shape[3];
  a.dtype = qkv.dtype;
  a.scale = float(attrs.number("scale"));
  a.causal = true;
  a.window = window_of(attrs, a.keys);
  return a;
}

// Packing a key costs about as much as a few dot products with it.
bool as_dot_products(const AttentionArgs& a) { return a.queries * a.heads <= 8; }

size_t scratch_floats(const Device& d, const AttentionArgs& a) {
  if (as_dot_products(a)) return float_lines(a.keys + 256) / 4;
  return size_t(attention_forward_scratch(d, a));
}

size_t workspace(const KernelQuery& q) {
  return scratch_floats(q.device,
                        common(q.in(in::cached_attention::qkv), q.in(in::cached_attention::cache), q.instr.attrs)) *
         4 * size_t(q.device.threads);
}

void launch(const KernelCall& c) {
  const Value& qkv = c.in_value(in::cached_attention::qkv);
  const Value& cache = c.in_value(in::cached_attention::cache);
  const Scalars& scalars = *c.input<Scalars>(in::cached_attention::scalars);
  AttentionArgs all = common(qkv, cache, c.instr.attrs);
  int64_t batch = qkv.shape[0], tokens = qkv.shape[1], size = int64_t(size_of(qkv.dtype)), context = cache.shape[3];
  int64_t kv_heads = cache.shape[2], dim = cache.shape[4];
  int64_t stride = int64_t(scratch_floats(*c.device, all));
  bool dots = as_dot_products(all);
  int64_t valid = std::clamp<int64_t>(std::min<int64_t>(scalars.length, context - scalars.position), 0, tokens);
  for (int64_t b = 0; b < batch; ++b)  // rows of padding
    std::memset(c.output<char>(out::cached_attention::o) + (b * tokens + valid) * all.o_stride * size, 0,
                size_t((tokens - valid) * all.o_stride * size));
  if (valid == 0) return;
  all.queries = valid, all.first_position = scalars.position, all.keys = scalars.position + valid;
  const AttentionFunctions& f = CREST_SIMD_PICK(attention_functions);
  const DecodeFunctions& d = CREST_SIMD_PICK(decode_functions);
  int64_t heads = batch * kv_heads, blocks = (valid + attention_block - 1) / attention_block * all.heads;
  // Work of one head: its queries, or its query blocks, interleaved (each part packs the keys
  // again).
  int64_t parts = dots ? valid * all.heads : std::clamp<int64_t>((3 * c.threads + heads - 1) / heads, 1, blocks);
  int threads = threads_for(c.threads, heads * all.heads * valid * (all.window ? all.window : all.keys) * dim, 32768);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t item = 0; item < heads * parts; ++item) {
    float* scratch = static_cast<float*>(c.workspace) + omp_get_thread_num() * stride;
    int64_t b = item / parts / kv_heads, g = item / parts % kv_heads, part = item % parts;
    AttentionArgs a = all;
    a.q = c.input<char>(in::cached_attention::qkv) + (b * tokens * qkv.shape[2] + g * a.heads * dim) * size;
    a.k = c.input<char>(in::cached_attention::cache) + (b * 2 * kv_heads + g) * context * dim * size;
    a.v = c.input<char>(in::cached_attention::cache) + (b * 2 * kv_heads + kv_heads + g) * context * dim * size;
    a.o = c.output<char>(out::cached_attention::o) + (b * tokens * a.o_stride + g * a.heads * dim) * size;
    if (dots) {
      int64_t t = part / a.heads, end = scalars.position + t + 1, seen = a.window ? std::min(a.window, end) : end;
      a.k = static_cast<const char*>(a.k) + (end - seen) * dim * size;
      a.v = static_cast<const char*>(a.v) + (end - seen) * dim * size;
      d.query(a, part % a.heads, t, seen, scratch);
    } else {
      f.pack(a, scratch);
      for (int64_t i = part; i < blocks; i += parts) f.forward(a, i, scratch);
    }
  }
}

}  // namespace

Kernel cached_attention_kernel() {
  return {"cached_attention", "cpu.cached_attention.simd", reject, workspace, nullptr, launch};
}

}  // namespace crest::cpu
