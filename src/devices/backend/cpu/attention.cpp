// attention, attention_rows and their gradients: parallel over (batch, key/value head), and also
// over query blocks or key segments if there are too few heads. simd/attention*.cpp does the work,
// on float vectors or matrix units.
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

// Inputs q and kv: one qkv, or those of attention_rows.
struct Sizes {
  int64_t batch, queries, keys;    // tokens of q and kv
  int64_t q_width, key_width;      // elements from token to token
  int64_t first_key, first_value;  // elements of a token before its keys and values
  int heads, kv_heads, head_dim, group;
  int64_t ranks;  // with chunks of the sequence; 1: this one has all of it
  int chunks() const { return ranks > 1 ? 2 : 1; }
};

Sizes sizes_of(const Value& q, const Value& kv, const Attrs& attrs) {
  Sizes s{};
  s.batch = q.shape[0], s.queries = q.shape[1], s.keys = kv.shape[1];
  s.heads = int(attrs.integer("heads")), s.kv_heads = int(attrs.integer("kv_heads"));
  s.group = s.heads / s.kv_heads, s.ranks = s.keys / s.queries;
  const bool apart = &q != &kv;
  s.head_dim = int(q.shape[2] / (apart ? s.heads : s.heads + 2 * s.kv_heads));
  s.q_width = q.shape[2], s.key_width = apart ? int64_t(2) * s.kv_heads * s.head_dim : s.q_width;
  s.first_key = apart ? 0 : int64_t(s.heads) * s.head_dim;
  s.first_value = s.first_key + int64_t(s.kv_heads) * s.head_dim;
  return s;
}

// Element i of an array of dtype t.
void* at(const void* p, DType t, int64_t i) {
  return static_cast<char*>(const_cast<void*>(p)) + i * int64_t(size_of(t));
}

// Everything independent of batch, head and chunk.
AttentionArgs common(const Sizes& s, DType dtype, const Attrs& attrs, const Scalars* scalars) {
  AttentionArgs a{};
  a.q_stride = s.q_width, a.k_stride = a.v_stride = s.key_width;
  a.o_stride = int64_t(s.heads) * s.head_dim, a.lse_stride = s.queries;
  a.queries = s.queries / s.chunks(), a.keys = a.sequence = s.keys, a.chunks = s.chunks();
  // A chunk may begin anywhere in a block.
  a.padded = rounded_up(a.queries, attention_block);
  if (s.chunks() > 1 && a.queries % attention_block) a.padded += attention_block;
  a.heads = s.group, a.head_dim = s.head_dim;
  a.dtype = dtype;
  a.scale = float(attrs.number("scale"));
  a.causal = s.chunks() > 1 || attrs.integer("causal", 1) != 0;
  a.window = window_of(attrs, a.keys);
  a.p = attrs.number("p", 0);
  a.seed = scalars ? scalars->seed : 0;
  return a;
}

// The inputs and outputs of a call, and its place among the ranks.
struct Operands {
  const void *q, *kv;
  void* o;
  float* lse;
  const Scalars* scalars;
  const int32_t* positions;
  uint32_t rng_id;
  int64_t heads_before, place;  // of other ranks; chunk `place`

  Operands(const KernelCall& c, size_t q, size_t kv, size_t scalars, void* o, void* lse, int64_t heads)
      : q(c.in[q]),
        kv(c.in[kv]),
        o(o),
        lse(static_cast<float*>(lse)),
        scalars(c.has(scalars) ? c.input<Scalars>(scalars) : nullptr),
        positions(c.has(scalars + 1) ? c.input<int32_t>(scalars + 1) : nullptr),
        rng_id(uint32_t(c.instr.attrs.integer("rng_id", 0))),
        heads_before(c.part_begin(heads)),
        place(c.chunk_place()) {}
};

// The first token of a chunk, in q; and in the sequence.
struct ChunkAt {
  int64_t row, token;
};
ChunkAt chunk_at(const Sizes& s, const Operands& io, int64_t chunk) {
  if (s.chunks() == 1) return {0, 0};
  const OwnChunks own(s.keys, s.ranks, io.place);
  return {chunk * own.tokens, own.first[chunk]};
}

// Of batch b, key/value head g and a chunk.
void place(AttentionArgs& a, const Sizes& s, const Operands& io, int64_t b, int64_t g, int64_t chunk) {
  const ChunkAt from = chunk_at(s, io, chunk);
  const int64_t row = b * s.queries + from.row, keys = b * s.keys * s.key_width, head = g * s.head_dim;
  a.q = at(io.q, a.dtype, row * s.q_width + head * s.group);
  a.k = at(io.kv, a.dtype, keys + s.first_key + head);
  a.v = at(io.kv, a.dtype, keys + s.first_value + head);
  a.o = at(io.o, a.dtype, row * a.o_stride + head * s.group);
  a.lse = io.lse + (b * s.heads + g * s.group) * s.queries + from.row;
  a.positions = io.positions ? io.positions + row : nullptr;
  a.first_position = from.token;
  a.first_head = io.heads_before + g * s.group;
  if (a.p > 0) a.stream = dropout_stream(uint64_t(io.scalars->sample_base + b), io.rng_id);
}

std::string reject_common(const KernelQuery& q, const Value& queries, const Sizes& s) {
  if (std::string why = check_float(queries); !why.empty()) return why;
  for (size_t i = 0; i < q.instr.out.size(); ++i)
    if (q.out(i).dtype != queries.dtype && q.out(i).dtype != DType::f32) return q.out(i).name + ": takes one dtype";
  if (s.head_dim > 256) return "head_dim above 256";
  return {};
}

template <Unit unit>
std::string reject_unit(const KernelQuery& q, DType t, const Sizes& s) {
  if (unit == Unit::vectors) return {};
  if (t != DType::bf16) return "the matrix units multiply bf16, not " + std::string(name(t));
  if (!q.device.amx) return "this machine has no matrix units for bf16 (AMX)";
  // The softmax takes the largest score before it scales.
  if (!(q.instr.attrs.number("scale") > 0)) return "scale is not positive";
  if (s.chunks() > 1 && s.queries / 2 % attention_block)
    return "takes chunks of a multiple of " + std::to_string(attention_block) + " tokens";
  return {};
}

// Where the operations have their operands.
struct Attention {
  static constexpr size_t q = in::attention::qkv, kv = q, scalars = in::attention::scalars;
  static constexpr size_t o = out::attention::o, lse = out::attention::lse;
};
struct Rows {
  static constexpr size_t q = in::attention_rows::q, kv = in::attention_rows::kv;
  static constexpr size_t scalars = in::attention_rows::scalars;
  static constexpr size_t o = out::attention_rows::o, lse = out::attention_rows::lse;
};
struct AttentionGrad {
  static constexpr size_t d_o = in::attention_grad::d_o, q = in::attention_grad::qkv, kv = q;
  static constexpr size_t o = in::attention_grad::o, lse = in::attention_grad::lse;
  static constexpr size_t scalars = in::attention_grad::scalars;
  static constexpr size_t dq = out::attention_grad::dqkv, dkv = dq;
};
struct RowsGrad {
  static constexpr size_t d_o = in::attention_rows_grad::d_o, q = in::attention_rows_grad::q;
  static constexpr size_t kv = in::attention_rows_grad::kv, o = in::attention_rows_grad::o;
  static constexpr size_t lse = in::attention_rows_grad::lse, scalars = in::attention_rows_grad::scalars;
  static constexpr size_t dq = out::attention_rows_grad::dq, dkv = out::attention_rows_grad::dkv;
};

template <class Op>
Sizes sizes_of(const KernelQuery& q) {
  return sizes_of(q.in(Op::q), q.in(Op::kv), q.instr.attrs);
}
template <class Op>
Sizes sizes_of(const KernelCall& c) {
  return sizes_of(c.in_value(Op::q), c.in_value(Op::kv), c.instr.attrs);
}

template <Unit unit, class Op>
std::string reject(const KernelQuery& q) {
  const Value& queries = q.in(Op::q);
  const Sizes s = sizes_of<Op>(q);
  if (std::string why = reject_common(q, queries, s); !why.empty()) return why;
  for (const Value* v : {&q.in(Op::kv), &q.out(Op::o)})
    if (std::string why = check_same(*v, queries); !why.empty()) return why;
  return reject_unit<unit>(q, queries.dtype, s);
}
template <Unit unit, class Op>
std::string reject_grad(const KernelQuery& q) {
  const Value& queries = q.in(Op::q);
  const Sizes s = sizes_of<Op>(q);
  if (std::string why = reject_common(q, queries, s); !why.empty()) return why;
  for (const Value* v : {&q.in(Op::d_o), &q.in(Op::kv), &q.in(Op::o), &q.out(Op::dq), &q.out(Op::dkv)})
    if (std::string why = check_same(*v, queries); !why.empty()) return why;
  return reject_unit<unit>(q, queries.dtype, s);
}

template <Unit unit, class Op>
size_t workspace(const KernelQuery& q) {
  AttentionArgs a = common(sizes_of<Op>(q), q.in(Op::q).dtype, q.instr.attrs, nullptr);
  return size_t(forward_scratch<unit>(q.device, a)) * 4 * size_t(q.device.threads);
}

template <Unit unit, class Op>
void launch(const KernelCall& c) {
  const AttentionFunctions& f = functions<unit>();
  const Sizes s = sizes_of<Op>(c);
  const Operands io(c, Op::q, Op::kv, Op::scalars, c.out[Op::o], c.out[Op::lse], s.heads);
  AttentionArgs all = common(s, c.in_value(Op::q).dtype, c.instr.attrs, io.scalars);
  all.emulated = c.device->emulated;
  int64_t scratch_floats = forward_scratch<unit>(*c.device, all), heads = s.batch * s.kv_heads * s.chunks();
  int64_t blocks = (all.queries + attention_block - 1) / attention_block * s.group;
  // Each part of a head packs its keys again, so no more parts than balance needs.
  int64_t parts = std::clamp<int64_t>((3 * c.threads + heads - 1) / heads, 1, blocks);
#pragma omp parallel num_threads(c.threads)
  {
    const TileRegisters registers(unit == Unit::amx && !all.emulated);
    float* scratch = static_cast<float*>(c.workspace) + omp_get_thread_num() * scratch_floats;
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < heads * parts; ++item) {
      int64_t head = item / parts / s.chunks(), part = item % parts;
      AttentionArgs a = all;
      place(a, s, io, head / s.kv_heads, head % s.kv_heads, item / parts % s.chunks());
      if (s.chunks() > 1) a.keys = a.first_position + a.queries;  // the last visible one
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
  r.segments = segments_of(s.keys);
  r.parts = s.batch * s.kv_heads < 2 * d.threads && d.threads > 1 ? r.segments : 1;
  r.scratch = backward_scratch<unit>(d, a);
  int64_t width = unit == Unit::amx ? amx_width : CREST_SIMD_OF(vectors_of(d), attention_functions).padded;
  if (r.parts > 1) r.partial = r.segments * s.chunks() * s.group * a.padded * rounded_up(s.head_dim, width);
  return r;
}

template <Unit unit, class Op>
size_t grad_workspace(const KernelQuery& q) {
  Sizes s = sizes_of<Op>(q);
  GradSplit r = split_of<unit>(q.device, common(s, q.in(Op::q).dtype, q.instr.attrs, nullptr), s);
  return (size_t(r.scratch) * size_t(q.device.threads) + size_t(r.partial * s.batch * s.kv_heads)) * 4;
}

template <Unit unit, class Op>
void launch_grad(const KernelCall& c) {
  const AttentionFunctions& f = functions<unit>();
  const Sizes s = sizes_of<Op>(c);
  const Operands io(c, Op::q, Op::kv, Op::scalars, c.in[Op::o], c.in[Op::lse], s.heads);
  AttentionArgs all = common(s, c.in_value(Op::q).dtype, c.instr.attrs, io.scalars);
  all.emulated = c.device->emulated;
  GradSplit r = split_of<unit>(*c.device, all, s);
  float* partial = static_cast<float*>(c.workspace) + r.scratch * c.threads;
  int64_t heads = s.batch * s.kv_heads;
  auto of = [&](int64_t head, int64_t chunk) {
    int64_t b = head / s.kv_heads, g = head % s.kv_heads;
    AttentionGradArgs a{};
    a.forward = all;
    place(a.forward, s, io, b, g, chunk);
    const int64_t row = b * s.queries + chunk_at(s, io, chunk).row, keys = b * s.keys * s.key_width;
    a.d_o = at(c.in[Op::d_o], all.dtype, row * all.o_stride + g * s.group * s.head_dim);
    a.dq = at(c.out[Op::dq], all.dtype, row * s.q_width + g * s.group * s.head_dim);
    a.dk = at(c.out[Op::dkv], all.dtype, keys + s.first_key + g * s.head_dim);
    a.dv = at(c.out[Op::dkv], all.dtype, keys + s.first_value + g * s.head_dim);
    a.segments = r.segments, a.chunk = chunk;
    a.partial = r.parts > 1 ? partial + head * r.partial : nullptr;
    // Blocks of queries and keys begin at the same tokens.
    a.forward.lead = a.forward.first_position % attention_block;
    a.forward.first_position -= a.forward.lead, a.forward.queries += a.forward.lead;
    return a;
  };
#pragma omp parallel num_threads(c.threads)
  {
    const TileRegisters registers(unit == Unit::amx && !all.emulated);
    float* scratch = static_cast<float*>(c.workspace) + omp_get_thread_num() * r.scratch;
#pragma omp for schedule(dynamic, 1)
    for (int64_t item = 0; item < heads * r.parts; ++item) {
      const AttentionGradArgs chunks[2] = {of(item / r.parts, 0), of(item / r.parts, s.chunks() - 1)};
      f.backward(chunks, item % r.parts, r.parts, scratch);
    }
    if (r.parts > 1) {
#pragma omp for schedule(static)
      for (int64_t item = 0; item < heads * s.chunks() * s.group; ++item) {
        const int64_t head = item / s.group, rows = all.queries, first = item % s.group * rows;
        f.reduce(of(head / s.chunks(), head % s.chunks()), first, first + rows, scratch);
      }
    }
  }
}

template <Unit unit, class Op>
Kernel forward_kernel(const char* op, const char* name) {
  return {op, name, reject<unit, Op>, workspace<unit, Op>, nullptr, launch<unit, Op>};
}
template <Unit unit, class Op>
Kernel grad_kernel(const char* op, const char* name) {
  return {op, name, reject_grad<unit, Op>, grad_workspace<unit, Op>, nullptr, launch_grad<unit, Op>};
}

}  // namespace

int64_t attention_forward_scratch(const Device& d, const AttentionArgs& a) {
  return ForwardScratch(a, CREST_SIMD_OF(vectors_of(d), attention_functions).padded, nullptr).size;
}

Kernel attention_kernel() { return forward_kernel<Unit::vectors, Attention>("attention", "cpu.attention.flash"); }
Kernel attention_amx_kernel() { return forward_kernel<Unit::amx, Attention>("attention", "cpu.attention.amx"); }
Kernel attention_grad_kernel() {
  return grad_kernel<Unit::vectors, AttentionGrad>("attention_grad", "cpu.attention_grad.flash");
}
Kernel attention_grad_amx_kernel() {
  return grad_kernel<Unit::amx, AttentionGrad>("attention_grad", "cpu.attention_grad.amx");
}
Kernel attention_rows_kernel() {
  return forward_kernel<Unit::vectors, Rows>("attention_rows", "cpu.attention_rows.flash");
}
Kernel attention_rows_amx_kernel() {
  return forward_kernel<Unit::amx, Rows>("attention_rows", "cpu.attention_rows.amx");
}
Kernel attention_rows_grad_kernel() {
  return grad_kernel<Unit::vectors, RowsGrad>("attention_rows_grad", "cpu.attention_rows_grad.flash");
}
Kernel attention_rows_grad_amx_kernel() {
  return grad_kernel<Unit::amx, RowsGrad>("attention_rows_grad", "cpu.attention_rows_grad.amx");
}

}  // namespace crest::cpu
