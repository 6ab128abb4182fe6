// Fused bodies with quantized results: activations of the feed-forward layer and their gradients,
// and the bias gradient of existing values; with a scale of the tensor or of each block. Requested
// by pass quantization.
#include <algorithm>

#include "backend/body.h"
#include "backend/cuda/column_sums.h"
#include "backend/cuda/device/activation.h"
#include "backend/cuda/quantize.h"
#include "ops/fused.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

using T = bfloat16;

struct Same {  // an existing gradient
  static constexpr int inputs = 1, values = 1;
  static constexpr uint32_t gradients = 1;
  __device__ static void run(const float (&x)[1], float (&y)[1]) { y[0] = x[0]; }
};
struct Gelu {  // x
  static constexpr int inputs = 1, values = 1;
  static constexpr uint32_t gradients = 0;
  __device__ static void run(const float (&x)[1], float (&y)[1]) { y[0] = gelu(x[0]); }
};
struct GeluGrad {  // dy, x -> dx, gelu(x)
  static constexpr int inputs = 2, values = 2;
  static constexpr uint32_t gradients = 1;
  __device__ static void run(const float (&x)[2], float (&y)[2]) { gelu_and_grad(x[0], x[1], y[1], y[0]); }
};
struct Swiglu {  // gate, up
  static constexpr int inputs = 2, values = 1;
  static constexpr uint32_t gradients = 0;
  __device__ static void run(const float (&x)[2], float (&y)[1]) { y[0] = silu(x[0]) * x[1]; }
};
struct SwigluGrad {  // da, gate, up -> dgate, dup, a
  static constexpr int inputs = 3, values = 3;
  static constexpr uint32_t gradients = 3;
  __device__ static void run(const float (&x)[3], float (&y)[3]) {
    const float s = silu(x[1]);
    y[0] = silu_grad(x[0] * x[2], x[1]);
    y[1] = x[0] * s;
    y[2] = s * x[2];
  }
};

// The results of a function, element by element: its `values` from its `inputs`. `gradients` has a
// bit for each value with a gradient, in e5m2 or e4m3; the others are e4m3.
template <class Function, bool E5m2>
struct Elements {
  using Type = T;
  static constexpr bool vectors = true, exact = std::is_same_v<Function, Same>;
  static constexpr int inputs = Function::inputs, values = Function::values;
  __host__ __device__ static constexpr bool e5m2(int v) { return E5m2 && (Function::gradients >> v & 1u); }
  struct Row {
    Eight<T, true> x[inputs];
  };
  struct Columns {};
  const T* in[inputs];
  __device__ Columns columns(int64_t, int64_t) const { return {}; }
  __device__ void load(Row& row, int64_t index, int64_t column, int64_t width) const {
#pragma unroll
    for (int i = 0; i < inputs; ++i) row.x[i].load(in[i] + index * width, column, width);
  }
  static constexpr int packs = inputs;
  __device__ const T* address(int pack, int64_t index, int64_t column, int64_t width) const {
    return in[pack] + index * width + column;
  }
  __device__ static void take(Row& row, int pack, const Pack<T>& value) { row.x[pack].pack[0] = value; }
  __device__ static const Eight<T, true>& whole(const Row& row) { return row.x[0]; }
  __device__ static void rest(Row&, int64_t) {}
  __device__ void compute(const Row& row, const Columns&, float (&y)[values][8]) const {
    float x[inputs][8];
#pragma unroll
    for (int i = 0; i < inputs; ++i) row.x[i].widen_to(x[i]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float from[inputs], to[values];
#pragma unroll
      for (int k = 0; k < inputs; ++k) from[k] = x[k][i];
      Function::run(from, to);
#pragma unroll
      for (int k = 0; k < values; ++k) y[k][i] = to[k];
    }
  }
};

enum class Kind { none, same, gelu, gelu_grad, swiglu, swiglu_grad };

// A body as one of the functions: its inputs and values in their order; no_value: not there.
struct Match {
  Kind kind = Kind::none;
  std::vector<ValueId> in, values;
  bool e5m2 = false;    // the format of gradients
  bool blocks = false;  // with scales of blocks
};

bool is_gradient(Kind kind, int value) {
  uint32_t gradients = kind == Kind::same || kind == Kind::gelu_grad ? Same::gradients
                       : kind == Kind::swiglu_grad                   ? SwigluGrad::gradients
                                                                     : 0;
  return gradients >> value & 1u;
}

class Matcher {
 public:
  explicit Matcher(const Program& body) {
    for (const Instr& i : body.code)
      if (!ends_body(i))
        code_.push_back(&i);
      else
        ends_.push_back(&i);
  }

  Match run() const {
    Match m = functions();
    m.blocks = std::any_of(ends_.begin(), ends_.end(), [](const Instr* e) { return e->attrs.has("blocks"); });
    for (size_t v = 0; v < m.values.size(); ++v)
      m.e5m2 |= is_gradient(m.kind, int(v)) && has_format(m.values[v], "e5m2");
    return m;
  }

 private:
  Match functions() const {
    if (code_.empty()) {
      for (const Instr* e : ends_)
        if (e->in[0] != ends_[0]->in[0]) return {};
      return {Kind::same, {ends_[0]->in[0]}, {ends_[0]->in[0]}};
    }
    const Instr *gelu = only(&op_gelu), *gelu_grad = only(&op_gelu_grad);
    if (code_.size() == 1 && gelu) return {Kind::gelu, {gelu->in[0]}, {gelu->out[0]}};
    if (gelu_grad && code_.size() == (gelu ? 2u : 1u)) {
      const ValueId x = gelu_grad->in[in::gelu_grad::x];
      if (gelu && gelu->in[0] != x) return {};
      return {
          Kind::gelu_grad, {gelu_grad->in[in::gelu_grad::dy], x}, {gelu_grad->out[0], gelu ? gelu->out[0] : no_value}};
    }
    return swiglu();
  }
  const Instr* only(const OpDef* op) const {
    const Instr* found = nullptr;
    for (const Instr* i : code_)
      if (i->op == op) {
        if (found) return nullptr;
        found = i;
      }
    return found;
  }
  // The product of a and b, in any order.
  const Instr* product(ValueId a, ValueId b) const {
    for (const Instr* i : code_)
      if (i->op == &op_mul && ((i->in[0] == a && i->in[1] == b) || (i->in[0] == b && i->in[1] == a))) return i;
    return nullptr;
  }
  static ValueId other(const Instr& product, ValueId a) { return product.in[product.in[0] == a ? 1 : 0]; }

  // s = silu(gate), a = s up; du = da s, ds = da up, dg = silu_grad(ds, gate)
  Match swiglu() const {
    const Instr *silu = only(&op_silu), *grad = only(&op_silu_grad);
    if (!silu) return {};
    const ValueId gate = silu->in[0], s = silu->out[0];
    if (!grad) {
      const Instr* a = only(&op_mul);
      if (!a || code_.size() != 2 || (a->in[0] != s && a->in[1] != s) || a->in[0] == a->in[1]) return {};
      return {Kind::swiglu, {gate, other(*a, s)}, {a->out[0]}};
    }
    if (grad->in[in::silu_grad::x] != gate) return {};
    const Instr* ds = nullptr;
    for (const Instr* i : code_)
      if (i->op == &op_mul && i->out[0] == grad->in[in::silu_grad::dy]) ds = i;
    if (!ds) return {};
    for (size_t k : {0, 1}) {
      const ValueId up = ds->in[k], da = ds->in[1 - k];
      const Instr *a = product(s, up), *du = product(da, s);
      // Finds the factor `up`. The kernel makes both copies of the gradients, but only the
      // transpose of a.
      if (a && du && a != du && code_.size() == 5 && !ended_by(a->out[0], quantizes_rows) &&
          !ended_by(du->out[0], quantizes_columns))
        return {Kind::swiglu_grad, {da, gate, up}, {grad->out[0], du->out[0], a->out[0]}};
    }
    return {};
  }
  bool ended_by(ValueId v, bool (*is)(const Instr&)) const {
    return std::any_of(ends_.begin(), ends_.end(), [&](const Instr* e) { return e->in[0] == v && is(*e); });
  }
  bool has_format(ValueId v, std::string_view format) const {
    return std::any_of(ends_.begin(), ends_.end(), [&](const Instr* e) {
      return e->in[0] == v && quantizes(*e) && e->attrs.text("format") == format;
    });
  }

  std::vector<const Instr*> code_, ends_;
};

bool sums_columns(const Instr& i) { return i.op == &op_bias_grad; }

// The one instruction accepted by `is` at the end of the body, at v; null if there is none.
const Instr* end_of(const Program& body, ValueId v, bool (*is)(const Instr&)) {
  for (const Instr& i : body.code)
    if (is(i) && i.in[0] == v) return &i;
  return nullptr;
}

int position(const std::vector<ValueId>& list, ValueId v) {
  auto it = std::find(list.begin(), list.end(), v);
  return it == list.end() ? -1 : int(it - list.begin());
}

// body(source, scales): default values of the types of a kernel's Tiles.
template <class Function, class Body>
auto with_function(const Match& m, Body body) {
  auto of = [&](auto source) { return m.blocks ? body(source, BlockQuantizer()) : body(source, Quantizer()); };
  if constexpr (Function::gradients != 0)
    if (m.e5m2) return of(Elements<Function, true>{});
  return of(Elements<Function, false>{});
}
template <class Body>
auto with_source(const Match& m, Body body) {
  switch (m.kind) {
    case Kind::same: return with_function<Same>(m, body);
    case Kind::gelu: return with_function<Gelu>(m, body);
    case Kind::gelu_grad: return with_function<GeluGrad>(m, body);
    case Kind::swiglu: return with_function<Swiglu>(m, body);
    case Kind::swiglu_grad: return with_function<SwigluGrad>(m, body);
    case Kind::none: break;
  }
  fail_internal("a fused body that is rejected");
}

std::string reject(const KernelQuery& q) {
  const Program& body = *q.instr.body;
  if (std::none_of(body.code.begin(), body.code.end(), quantizes)) return "takes bodies that quantize";
  const Match m = Matcher(body).run();
  if (m.kind == Kind::none) return "the body is not one of GELU, SwiGLU, their gradients and bias gradients";
  for (ValueId v : m.in) {
    const int i = position(body.inputs, v);
    if (i < 0) return "the body does not read its inputs";
    const Value& x = q.in(size_t(i));
    if (std::string why = reject_value(x); !why.empty()) return why;
    if (x.dtype != DType::bf16 || x.shape.back() % tile_vector || x.layout.offset % tile_vector)
      return "takes bf16 in rows that are whole vectors of 16 bytes";
    if (x.numel() == 0) return "empty operands";
  }
  for (const Instr& i : body.code) {
    if (!ends_body(i)) {
      // Neither a value of the kernel nor read only inside.
      if (position(m.values, i.out[0]) < 0 && position(body.outputs, i.out[0]) >= 0)
        return "the body writes an intermediate result";
      continue;
    }
    const int v = position(m.values, i.in[0]);
    if (v < 0) return "the body sums or quantizes an intermediate result";
    if (sums_columns(i)) {
      const ValueId acc = i.in.size() > in::bias_grad::acc ? i.in[in::bias_grad::acc] : no_value;
      if (position(body.outputs, i.out[0]) < 0 || (acc != no_value && position(body.inputs, acc) < 0))
        return "column sums are no outputs of the body";
    } else {
      if (!is_gradient(m.kind, v) && i.attrs.text("format") != "e4m3") return "takes e4m3 of activations";
      if (is_gradient(m.kind, v) && (i.attrs.text("format") == "e5m2") != m.e5m2)
        return "takes gradients of one format";
      if (i.attrs.has("blocks") != m.blocks) return "takes scales of tensors, or of blocks";
      if (m.blocks && fp8_blocks(i.attrs) != Fp8Blocks::rows) return "takes blocks of 1x128";
      for (size_t k = 1; k < i.in.size(); ++k)
        if (body.at(i.in[k]).dtype != DType::f32 && body.at(i.in[k]).dtype != DType::i64) return "takes scales of f32";
    }
    for (const Instr& other : body.code)
      if (&other != &i && other.in[0] == i.in[0] &&
          ((quantizes(i) && quantizes(other)) || (sums_columns(i) && sums_columns(other))))
        return "the body quantizes or sums a result twice";
  }
  for (ValueId o : body.outputs)
    if (position(m.values, o) >= 0 && body.at(o).dtype != DType::bf16) return "writes bf16";
  return with_source(m, [&](auto source, auto scales) { return reject_tiles<decltype(source), decltype(scales)>(q); });
}

int64_t tiles_down(const Value& x) { return (x.shape.rows() + tile_rows - 1) / tile_rows; }

size_t sum_bytes(const Value& x) { return size_t(tiles_down(x) * x.shape.back()) * sizeof(float); }

size_t workspace(const KernelQuery& q) {
  const Program& body = *q.instr.body;
  const auto count = size_t(std::count_if(body.code.begin(), body.code.end(), sums_columns));
  return count * sum_bytes(body.at(body.code[0].in[0]));
}

std::shared_ptr<void> prepare(const KernelQuery& q) { return std::make_shared<Match>(Matcher(*q.instr.body).run()); }

#if CREST_HAS_DEVICE_CODE
// How an instruction of the body quantizes.
void set_quantizer(const KernelCall& c, const Instr& i, Quantizer& q) {
  namespace at = in::quantize;
  namespace to = out::quantize;
  if (quantizes_columns(i)) {
    q.columns = static_cast<uint8_t*>(address_in_body(c, i.out[out::quantize_columns::t]));
    q.given_scale = static_cast<const float*>(address_in_body(c, i.in[in::quantize_columns::scale]));
    return;
  }
  const int64_t slot = i.attrs.integer("slot"), ranks = c.instr.body->at(i.in[at::record]).shape[1];
  q.rows = static_cast<uint8_t*>(address_in_body(c, i.out[to::q]));
  if (i.out.size() > to::t) q.columns = static_cast<uint8_t*>(address_in_body(c, i.out[to::t]));
  q.history = static_cast<const float*>(address_in_body(c, i.in[at::amax])) + slot;
  q.margin = int(i.attrs.integer("margin"));
  q.scale = static_cast<float*>(address_in_body(c, i.out[to::scale]));
  q.record = static_cast<float*>(address_in_body(c, i.in[at::record])) + slot * ranks + c.index();
  q.counts = static_cast<unsigned long long*>(address_in_body(c, i.in[at::counts])) + 2 * slot;
}
void set_quantizer(const KernelCall& c, const Instr& i, BlockQuantizer& q) {
  q = block_quantizer(c.instr.body->at(i.in[0]), i.attrs);
  auto out = [&](size_t o) { return address_in_body(c, i.out[o]); };
  if (quantizes_columns(i))
    return set_columns(q, out(out::quantize_blocks_columns::t), out(out::quantize_blocks_columns::scale));
  namespace to = out::quantize_blocks;
  set_rows(q, i.attrs, out(to::q), out(to::scale), address_in_body(c, i.in[in::quantize_blocks::counts]));
  if (i.out.size() > to::t) set_columns(q, out(to::t), out(to::t_scale));
}

template <class Source, class Scales>
void launch_source(const KernelCall& c, const Match& m) {
  const Program& body = *c.instr.body;
  const Value& x = body.at(m.in[0]);
  Tiles<Source, Scales> a = {};
  auto* partial = static_cast<float*>(c.workspace);
  for (int i = 0; i < Source::inputs; ++i) a.source.in[i] = static_cast<const T*>(address_in_body(c, m.in[size_t(i)]));
  struct Sum {
    const Instr* instr;
    float* partial;
  };
  std::vector<Sum> column_sums;
  for (size_t v = 0; v < m.values.size(); ++v) {
    if (m.values[v] == no_value) continue;
    if (position(body.outputs, m.values[v]) >= 0) a.stores[v] = static_cast<T*>(address_in_body(c, m.values[v]));
    if (const Instr* i = end_of(body, m.values[v], quantizes)) set_quantizer(c, *i, a.quantizers[v]);
    if (const Instr* i = end_of(body, m.values[v], sums_columns)) {
      a.sums[v] = partial;
      column_sums.push_back({i, partial});
      partial += sum_bytes(x) / sizeof(float);
    }
  }
  start_tiles(c, a, x);
  for (const Sum& s : column_sums) {
    const ValueId acc = s.instr->in.size() > in::bias_grad::acc ? s.instr->in[in::bias_grad::acc] : no_value;
    launch_column_sums(c, s.partial, tiles_down(x), x.shape.back(), body.at(s.instr->out[0]).dtype,
                       acc == no_value ? nullptr : address_in_body(c, acc), address_in_body(c, s.instr->out[0]));
  }
}

void launch_fused(const KernelCall& c) {
  const Match& m = *static_cast<const Match*>(c.prepared);
  with_source(m, [&](auto source, auto scales) { launch_source<decltype(source), decltype(scales)>(c, m); });
}
#endif

}  // namespace

Kernel fused_quantize_kernel() {
  return {"fused", "cuda.fused.quantize", reject, workspace, prepare, CREST_DEVICE_CODE(launch_fused)};
}

}  // namespace crest::cuda
