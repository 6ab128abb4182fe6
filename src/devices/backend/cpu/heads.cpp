// Movement between [B,T,W] and [B,heads,T,D]: split_heads is a view, join_heads and cache_append
// copy.
#include <cstring>

#include "backend/cpu/common.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

std::string reject_join(const KernelQuery& q) {
  if (!q.out(out::join_heads::qkv).contiguous()) return "the output is a strided view";
  for (size_t i = 0; i < q.instr.in.size(); ++i) {
    if (!q.has(i)) continue;
    if (q.in(i).dtype != q.out(out::join_heads::qkv).dtype) return "inputs and output differ in dtype";
    const Shape& strides = q.in(i).layout.strides;
    if (q.in(i).shape[3] > 1 && strides[3] != 1) return q.in(i).name + ": head_dim is strided";
  }
  return {};
}

void launch_join(const KernelCall& c) {
  const Value& out = c.out_value(out::join_heads::qkv);
  int64_t size = int64_t(size_of(out.dtype)), batch = out.shape[0], tokens = out.shape[1], width = out.shape[2];
  int threads = threads_for(c.threads, out.numel(), 16384);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < batch * tokens; ++r) {
    char* to = c.output<char>(out::join_heads::qkv) + r * width * size;
    for (size_t i = 0; i < c.instr.in.size(); ++i) {
      if (!c.has(i)) continue;
      const Value& v = c.in_value(i);
      const Shape& s = v.layout.strides;
      int64_t bytes = v.shape[3] * size;
      const char* from = c.input<char>(i) + (r / tokens * s[0] + r % tokens * s[2]) * size;
      for (int64_t h = 0; h < v.shape[1]; ++h, to += bytes) std::memcpy(to, from + h * s[1] * size, size_t(bytes));
    }
  }
}

std::string reject_append(const KernelQuery& q) {
  if (!q.in(in::cache_append::qkv).contiguous() || !q.in(in::cache_append::cache).contiguous())
    return "takes contiguous values, one is a strided view";
  if (q.in(in::cache_append::qkv).dtype != q.in(in::cache_append::cache).dtype)
    return "tokens and cache differ in dtype";
  return {};
}

void launch_append(const KernelCall& c) {
  const Value& qkv = c.in_value(in::cache_append::qkv);
  const Value& cache = c.in_value(in::cache_append::cache);
  const Scalars& scalars = *c.input<Scalars>(in::cache_append::scalars);
  int64_t heads = c.instr.attrs.integer("heads"), kv_heads = c.instr.attrs.integer("kv_heads");
  int64_t size = int64_t(size_of(qkv.dtype)), dim = cache.shape[4], context = cache.shape[3];
  int64_t batch = qkv.shape[0], tokens = qkv.shape[1], width = qkv.shape[2];
  int64_t count = std::clamp<int64_t>(std::min<int64_t>(scalars.length, context - scalars.position), 0, tokens);
  int threads = threads_for(c.threads, batch * count * width, 16384);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < batch * count; ++r) {
    int64_t b = r / count, t = r % count;
    const char* from = c.input<char>(in::cache_append::qkv) + ((b * tokens + t) * width + heads * dim) * size;
    for (int64_t h = 0; h < 2 * kv_heads; ++h) {
      int64_t to = ((b * 2 * kv_heads + h) * context + scalars.position + t) * dim;
      std::memcpy(c.output<char>(out::cache_append::cache) + to * size, from + h * dim * size, size_t(dim * size));
    }
  }
}

// One side has a token's queries, keys and values, the other has them in two tensors.
void copy_keys(const KernelCall& c, const Value& whole, char* qkv, char* q, char* kv, int64_t queries, bool split) {
  const int64_t tokens = whole.shape[0] * whole.shape[1], size = int64_t(size_of(whole.dtype));
  const int64_t width = whole.shape[2] * size, first = queries * size, rest = width - first;
  int threads = threads_for(c.threads, whole.numel(), 16384);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < tokens; ++r) {
    char* token = qkv + r * width;
    std::memcpy(split ? q + r * first : token, split ? token : q + r * first, size_t(first));
    std::memcpy(split ? kv + r * rest : token + first, split ? token + first : kv + r * rest, size_t(rest));
  }
}

void launch_split_keys(const KernelCall& c) {
  namespace to = out::split_keys;
  copy_keys(c, c.in_value(in::split_keys::qkv), static_cast<char*>(c.in[in::split_keys::qkv]), c.output<char>(to::q),
            c.output<char>(to::kv), c.out_value(to::q).shape[2], true);
}

void launch_join_keys(const KernelCall& c) {
  namespace from = in::join_keys;
  copy_keys(c, c.out_value(out::join_keys::qkv), c.output<char>(out::join_keys::qkv), static_cast<char*>(c.in[from::q]),
            static_cast<char*>(c.in[from::kv]), c.in_value(from::q).shape[2], false);
}

}  // namespace

Kernel split_keys_kernel() {
  return {"split_keys", "cpu.split_keys.copy", [](const KernelQuery&) { return std::string(); }, nullptr,
          nullptr,      launch_split_keys};
}
Kernel join_keys_kernel() {
  return {"join_keys", "cpu.join_keys.copy", [](const KernelQuery&) { return std::string(); }, nullptr,
          nullptr,     launch_join_keys};
}
Kernel split_heads_kernel() {
  return {"split_heads", "cpu.split_heads.view",  [](const KernelQuery&) { return std::string(); }, nullptr,
          nullptr,       [](const KernelCall&) {}};
}
Kernel join_heads_kernel() { return {"join_heads", "cpu.join_heads.copy", reject_join, nullptr, nullptr, launch_join}; }
Kernel cache_append_kernel() {
  return {"cache_append", "cpu.cache_append.copy", reject_append, nullptr, nullptr, launch_append};
}

}  // namespace crest::cpu
