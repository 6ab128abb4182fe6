// attention and attention_grad: parallel over (batch, key/value head), and also over query blocks
// or key segments if there are too few heads. simd/attention*.cpp does the work, on float vectors
// or matrix units.
#include "backend/cpu/attention.h"

#include <omp.h>

#include "backend/cpu/common.h"
#include "backend/cpu/simd/attention_scratch.h"
#include "core/random.h"
#include "core/scalars.h"
#include "ops/attention.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

enum class Unit { vectors, amx };

template <Unit unit>
const AttentionFunctions& functions() {
  if constexpr (unit == Unit::vectors)
    return CREST_SIMD_PICK(attention_functions);
  else
    return CREST_SIMD_PICK(attention_amx_functions);
}

// Floats of a thread's scratch on a device.
template <Unit unit>
int64_t forward_scratch(const Device& d, const AttentionArgs& a) {
  if constexpr (unit == Unit::vectors)
    return attention_forward_scratch(d, a);
  else
    return AmxForwardScratch(a, nullptr).size;
}
template <Unit unit>
int64_t backward_scratch(const Device& d, const AttentionArgs& a) {
  if constexpr (unit == Unit::vectors)
    return BackwardScratch(a, CREST_SIMD_OF(vectors_of(d), attention_functions).padded, nullptr).size;
  else
    return AmxBackwardScratch(a, nullptr).size;
}

// Gives a thread its tile registers for a scope.
class TileRegisters {
 public:
  explicit TileRegisters(bool wanted) : wanted_(wanted) {
    if (wanted_) CREST_SIMD_PICK(amx_functions).configure();
  }
  ~TileRegisters() {
    if (wanted_) CREST_SIMD_PICK(amx_functions).release();
  }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

 private:
  bool wanted_;
};

struct Sizes {
  int64_t batch, tokens, width;
  int heads, kv_heads, head_dim, group;
};

Sizes sizes_of(const Value& qkv, const Attrs& attrs) {
  Sizes s{};
  s.batch = qkv.shape[0], s.tokens = qkv.shape[1], s.width = qkv.shape[2];
  s.heads = int(attrs.integer("heads")), s.kv_heads = int(attrs.integer("kv_heads"));
  s.head_dim = int(s.width / (s.heads + 2 * s.kv_heads));
  s.group = s.heads / s.kv_heads;
  return s;
}

// Element i of an array of dtype t.
void* at(const void* p, DType t, int64_t i) {
  return static_cast<char*>(const_cast<void*>(p)) + i * int64_t(size_of(t));
}

// Everything independent of batch and head.
AttentionArgs common(const Value& qkv, const Attrs& attrs, const Scalars* scalars) {
  Sizes s = sizes_of(qkv, attrs);
  AttentionArgs a{};
  a.q_stride = a.k_stride = a.v_stride = s.width;
  a.o_stride = int64_t(s.heads) * s.head_dim;
  a.queries = a.keys = s.tokens;
  a.heads = s.group, a.head_dim = s.head_dim;
  a.dtype = qkv.dtype;
  a.scale = float(attrs.number("scale"));
  a.causal = attrs.integer("causal", 1) != 0;
  a.window = window_of(attrs, a.keys);
  a.p = attrs.number("p", 0);
  a.seed = scalars ? scalars->seed : 0;
  return a;
}

// Of batch b and key/value head g.
void place(AttentionArgs& a, const Sizes& s, const void* qkv, void* o, float* lse, int64_t b, int64_t g,
           const Scalars* scalars, const int32_t* positions, uint32_t rng_id, int64_t heads_before) {
  int64_t row = b * s.tokens * s.width;
  a.q = at(qkv, a.dtype, row + g * s.group * s.head_dim);
  a.k = at(qkv, a.dtype, row + (s.heads + g) * s.head_dim);
  a.v = at(qkv, a.dtype, row + (s.heads + s.kv_heads + g) * s.head_dim);
  a.o = at(o, a.dtype, b * s.tokens * a.o_stride + g * s.group * s.head_dim);
  a.lse = lse + (b * s.heads + g * s.group) * s.tokens;
  a.positions = positions ? positions + b * s.tokens : nullptr;
  a.first_head = heads_before + g * s.group;  // of all ranks
  if (a.p > 0) a.stream = dropout_stream(uint64_t(scalars->sample_base + b), rng_id);
}

std::string reject_common(const KernelQuery& q, const Value& qkv) {
  if (std::string why = check_float(qkv); !why.empty()) return why;
  for (size_t i = 0; i < q.instr.out.size(); ++i)
    if (q.out(i).dtype != qkv.dtype && q.out(i).dtype != DType::f32) return q.out(i).name + ": takes one dtype";
  Sizes s = sizes_of(qkv, q.instr.attrs);
  if (s.head_dim > 256) return "head_dim above 256";
  return {};
}

template <Unit unit>
std::string reject_unit(const KernelQuery& q, DType t) {
  if (unit == Unit::vectors) return {};
  if (t != DType::bf16) return "the matrix units multiply bf16, not " + std::string(name(t));
  if (!q.device.amx) return "this machine has no matrix units for bf16 (AMX)";
  // The softmax takes the largest score before it scales.
  if (!(q.instr.attrs.number("scale") > 0)) return "scale is not positive";
  return {};
}

template <Unit unit>
std::string reject(const KernelQuery& q) {
  if (std::string why = reject_common(q, q.in(in::attention::qkv)); !why.empty()) return why;
  if (std::string why = check_same(q.out(out::attention::o), q.in(in::attention::qkv)); !why.empty()) return why;
  return reject_unit<unit>(q, q.in(in::attention::qkv).dtype);
}
template <Unit unit>
std::string reject_grad(const KernelQuery& q) {
  if (std::string why = reject_common(q, q.in(in::attention_grad::qkv)); !why.empty()) return why;
  for (const Value* v :
       {&q.in(in::attention_grad::d_o), &q.in(in::attention_grad::o), &q.out(out::attention_grad::dqkv)})
    if (std::string why = check_same(*v, q.in(in::attention_grad::qkv)); !why.empty()) return why;
  return reject_unit<unit>(q, q.in(in::attention_grad::qkv).dtype);
}

template <Unit unit>
size_t workspace(const KernelQuery& q) {
  AttentionArgs a = common(q.in(in::attention::qkv), q.instr.attrs, nullptr);
  return size_t(forward_scratch<unit>(q.device, a)) * 4 * size_t(q.device.threads);
}

template <Unit unit>
void launch(const KernelCall& c) {
  const AttentionFunctions& f = functions<unit>();
  const Value& qkv = c.in_value(in::attention::qkv);
  Sizes s = sizes_of(qkv, c.instr.attrs);
  const Scalars* scalars = c.has(in::attention::scalars) ? c.input<Scalars>(in::attention::scalars) : nullptr;
  AttentionArgs all = common(qkv, c.instr.attrs, scalars);
  all.emulated = c.device->emulated;
  const int32_t* positions = c.has(in::attention::positions) ? c.input<int32_t>(in::attention::positions) : nullptr;
  auto rng_id = uint32_t(c.instr.attrs.integer("rng_id", 0));
  int64_t scratch_floats = forward_scratch<unit>(*c.device, all), heads = s.batch * s.kv_heads;
  int64_t blocks = (s.tokens + attention_block - 1) / attention_block * s.group;
  // Each part of a head packs its keys again, so no more parts than balance needs.
  int64_t parts = std::clamp<int64_t>((3 * c.threads + heads - 1) / heads, 1, blocks);
#pragma omp parallel num_threads(c.threads)
  {
    const TileRegisters registers(unit == Unit::amx && !all.emulated);
    float* scratch = static_cast<float*>(c.workspace) + omp_get_thread_num() * scratch_floats;
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < heads * parts; ++item) {
      int64_t head = item / parts, part = item % parts;
      AttentionArgs a = all;
      place(a, s, c.in[in::attention::qkv], c.out[out::attention::o], c.output<float>(out::attention::lse),
            head / s.kv_heads, head % s.kv_heads, scalars, positions, rng_id, c.part_begin(s.heads));
      f.pack(a, scratch);
      // Causal: late blocks see more keys, so they are interleaved among the parts.
      for (int64_t i = part; i < blocks; i += parts) f.forward(a, i, scratch);
    }
  }
}

// Segments of key blocks whose dq are summed in order. They depend on the length only, so results
// do not depend on the number of threads.
int64_t segments_of(int64_t tokens) { return std::clamp<int64_t>(tokens / attention_block / 4, 1, 4); }

struct GradSplit {
  int64_t segments, parts, scratch, partial;  // scratch, partial: floats per thread and per (batch, kv head)
};
template <Unit unit>
GradSplit split_of(const Device& d, const AttentionArgs& a, const Sizes& s) {
  GradSplit r{};
  r.segments = segments_of(s.tokens);
  r.parts = s.batch * s.kv_heads < 2 * d.threads && d.threads > 1 ? r.segments : 1;
  r.scratch = backward_scratch<unit>(d, a);
  int64_t width = unit == Unit::amx ? amx_width : CREST_SIMD_OF(vectors_of(d), attention_functions).padded;
  int64_t rows = rounded_up(s.tokens, attention_block), padded = rounded_up(s.head_dim, width);
  if (r.parts > 1) r.partial = r.segments * s.group * rows * padded;
  return r;
}

template <Unit unit>
size_t grad_workspace(const KernelQuery& q) {
  Sizes s = sizes_of(q.in(in::attention_grad::qkv), q.instr.attrs);
  GradSplit r = split_of<unit>(q.device, common(q.in(in::attention_grad::qkv), q.instr.attrs, nullptr), s);
  return (size_t(r.scratch) * size_t(q.device.threads) + size_t(r.partial * s.batch * s.kv_heads)) * 4;
}

template <Unit unit>
void launch_grad(const KernelCall& c) {
  const AttentionFunctions& f = functions<unit>();
  const Value& qkv = c.in_value(in::attention_grad::qkv);
  Sizes s = sizes_of(qkv, c.instr.attrs);
  const Scalars* scalars = c.has(in::attention_grad::scalars) ? c.input<Scalars>(in::attention_grad::scalars) : nullptr;
  AttentionArgs all = common(qkv, c.instr.attrs, scalars);
  all.emulated = c.device->emulated;
  const int32_t* positions =
      c.has(in::attention_grad::positions) ? c.input<int32_t>(in::attention_grad::positions) : nullptr;
  auto rng_id = uint32_t(c.instr.attrs.integer("rng_id", 0));
  GradSplit r = split_of<unit>(*c.device, all, s);
  float* partial = static_cast<float*>(c.workspace) + r.scratch * c.threads;
  int64_t heads = s.batch * s.kv_heads;
  auto of = [&](int64_t head) {
    int64_t b = head / s.kv_heads, g = head % s.kv_heads;
    AttentionGradArgs a{};
    a.forward = all;
    place(a.forward, s, c.in[in::attention_grad::qkv], c.in[in::attention_grad::o],
          static_cast<float*>(c.in[in::attention_grad::lse]), b, g, scalars, positions, rng_id, c.part_begin(s.heads));
    a.d_o = at(c.in[in::attention_grad::d_o], all.dtype, b * s.tokens * all.o_stride + g * s.group * s.head_dim);
    int64_t row = b * s.tokens * s.width;
    a.dq = at(c.out[out::attention_grad::dqkv], all.dtype, row + g * s.group * s.head_dim);
    a.dk = at(c.out[out::attention_grad::dqkv], all.dtype, row + (s.heads + g) * s.head_dim);
    a.dv = at(c.out[out::attention_grad::dqkv], all.dtype, row + (s.heads + s.kv_heads + g) * s.head_dim);
    a.segments = r.segments;
    a.partial = r.parts > 1 ? partial + head * r.partial : nullptr;
    return a;
  };
#pragma omp parallel num_threads(c.threads)
  {
    const TileRegisters registers(unit == Unit::amx && !all.emulated);
    float* scratch = static_cast<float*>(c.workspace) + omp_get_thread_num() * r.scratch;
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < heads * r.parts; ++item)
      f.backward(of(item / r.parts), item % r.parts, r.parts, scratch);
    if (r.parts > 1) {
#pragma omp for schedule(static)
      for (int64_t item = 0; item < heads * s.group; ++item)
        f.reduce(of(item / s.group), item % s.group * s.tokens, (item % s.group + 1) * s.tokens, scratch);
    }
  }
}

template <Unit unit>
Kernel forward_kernel(const char* name) {
  return {"attention", name, reject<unit>, workspace<unit>, nullptr, launch<unit>};
}
template <Unit unit>
Kernel grad_kernel(const char* name) {
  return {"attention_grad", name, reject_grad<unit>, grad_workspace<unit>, nullptr, launch_grad<unit>};
}

}  // namespace

int64_t attention_forward_scratch(const Device& d, const AttentionArgs& a) {
  return ForwardScratch(a, CREST_SIMD_OF(vectors_of(d), attention_functions).padded, nullptr).size;
}

Kernel attention_kernel() { return forward_kernel<Unit::vectors>("cpu.attention.flash"); }
Kernel attention_amx_kernel() { return forward_kernel<Unit::amx>("cpu.attention.amx"); }
Kernel attention_grad_kernel() { return grad_kernel<Unit::vectors>("cpu.attention_grad.flash"); }
Kernel attention_grad_amx_kernel() { return grad_kernel<Unit::amx>("cpu.attention_grad.amx"); }

}  // namespace crest::cpu
