// matmul: batches of small products on views. Each product runs on one thread; a batch smaller than
// the machine runs one product after the other on all threads.
#include <omp.h>

#include <optional>

#include "backend/cpu/cast.h"
#include "backend/cpu/common.h"
#include "backend/cpu/contraction.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/linear.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

// The two inner dimensions of a view: rows ld elements apart, or columns (transposed).
struct Inner {
  bool transposed = false;
  int64_t ld = 0;
};

// How the last two dimensions of v are of a 4-dimensional v are stored as a matrix; nothing when
// neither of them is dense.
std::optional<Inner> inner_of(const Value& v) {
  int64_t rows = v.shape[2], cols = v.shape[3];
  int64_t row_stride = rows == 1 ? cols : v.layout.strides[2], col_stride = cols == 1 ? 1 : v.layout.strides[3];
  if (col_stride == 1 && row_stride >= cols) return Inner{false, row_stride};
  if (rows == 1) row_stride = 1;
  if (row_stride == 1 && col_stride >= rows) return Inner{true, col_stride};
  return std::nullopt;
}

// a[B,H,M,K] and b[B,G,K,N]; with reduce, c[B,G',M,N] sums `terms` products.
struct Batched {
  int64_t batch = 0, heads_a = 0, heads_b = 0, heads_c = 0, terms = 1, m = 0, n = 0, k = 0;
  DType dtype = DType::f32;
  bool direct = true;       // operands are multiplied as they are; else each product's operands become f32
  bool sum_in_f32 = false;  // partial sums of half-precision outputs
  int threads = 1;          // of one product
  int products_at_once = 1;
  std::shared_ptr<const Gemm> first, next;
  std::string refused;                                          // why oneDNN does not multiply them
  size_t a_at = 0, b_at = 0, c_at = 0, gemm_at = 0, bytes = 0;  // one product's workspace
};

Batched make(const KernelQuery& q, bool direct) {
  const Value &a = q.in(in::matmul::a), &b = q.in(in::matmul::b), &c = q.out(out::matmul::c);
  bool ta = q.instr.attrs.integer("transpose_a", 0) != 0, tb = q.instr.attrs.integer("transpose_b", 0) != 0;
  Batched s;
  s.dtype = a.dtype;
  s.batch = a.shape[0], s.heads_a = a.shape[1], s.heads_b = b.shape[1], s.heads_c = c.shape[1];
  s.terms = s.heads_a / s.heads_c;
  s.m = c.shape[2], s.n = c.shape[3], s.k = a.shape[ta ? 2 : 3];
  int64_t products = s.batch * s.heads_c;
  bool parallel = products >= q.device.threads;
  s.threads = parallel ? 1 : q.device.threads;
  s.products_at_once = parallel ? q.device.threads : 1;
  s.direct = direct;
  s.sum_in_f32 = s.direct && s.terms > 1 && s.dtype != DType::f32;
  Inner ia = *inner_of(a), ib = *inner_of(b), ic = *inner_of(c);
  GemmShape g;
  g.m = s.m, g.n = s.n, g.k = s.k, g.threads = s.threads;
  g.a_transposed = ta != ia.transposed, g.b_transposed = tb != ib.transposed;
  g.ab = s.direct ? s.dtype : DType::f32;
  g.c = s.sum_in_f32 ? DType::f32 : g.ab;
  if (s.direct) {
    g.lda = ia.ld, g.ldb = ib.ld;
  } else {  // converted rows (or columns) lie dense
    g.lda = g.a_transposed ? s.m : s.k, g.ldb = g.b_transposed ? s.k : s.n;
    s.b_at = float_lines(s.m * s.k);
    s.c_at = s.b_at + float_lines(s.k * s.n);
  }
  bool own_c = !s.direct || s.sum_in_f32;
  g.ldc = own_c ? s.n : ic.ld;
  s.gemm_at = s.c_at + (own_c ? float_lines(s.m * s.n) : 0);
  FoundGemm first = find_gemm(g, q.device);
  g.accumulate = true;
  FoundGemm next = s.terms > 1 ? find_gemm(g, q.device) : first;
  s.first = first.gemm, s.next = next.gemm;
  s.refused = first.refused.empty() ? next.refused : first.refused;
  if (!s.refused.empty()) return s;
  s.bytes = lines(s.gemm_at + std::max(s.first->workspace(), s.next->workspace()));
  return s;
}

// As they are where the library multiplies them so, else as floats.
Batched make(const KernelQuery& q) {
  Batched s;
  s.refused = "-";
  if (multiplied_directly(q.device, q.in(in::matmul::a).dtype)) s = make(q, true);
  return s.refused.empty() || q.in(in::matmul::a).dtype == DType::f32 ? s : make(q, false);
}

std::string reject(const KernelQuery& q) {
  for (const Value* v : {&q.in(in::matmul::a), &q.in(in::matmul::b), &q.out(out::matmul::c)}) {
    if (v->dtype != DType::f32 && !is_half(v->dtype))
      return v->name + ": takes f32, bf16 and f16, not " + std::string(name(v->dtype));
    if (v->dtype != q.in(in::matmul::a).dtype) return v->name + ": takes one dtype for all operands";
    if (v->shape.rank() != 4) return v->name + ": takes four dimensions";
    if (v->numel() == 0) return "empty operands";
    if (!inner_of(*v)) return v->name + ": takes views with a dense row or column";
  }
  if (inner_of(q.out(out::matmul::c))->transposed)
    return q.out(out::matmul::c).name + ": takes outputs with dense rows";
  return make(q).refused;
}

size_t workspace(const KernelQuery& q) {
  Batched s = make(q);
  return s.bytes * size_t(s.products_at_once);
}
std::shared_ptr<void> prepare(const KernelQuery& q) { return std::make_shared<Batched>(make(q)); }

const char* matrix_at(const void* p, const Value& v, int64_t batch, int64_t head) {
  return static_cast<const char*>(p) +
         (batch * v.layout.strides[0] + head * v.layout.strides[1]) * int64_t(size_of(v.dtype));
}

// A stored matrix as dense f32 rows (or columns, if the columns are dense).
void widen(float* to, const void* from, const Value& v, int threads) {
  Inner i = *inner_of(v);
  int64_t rows = v.shape[i.transposed ? 3 : 2], cols = v.shape[i.transposed ? 2 : 3];
  convert_rows(to, DType::f32, cols, from, v.dtype, i.ld, rows, cols, threads);
}

void product(const KernelCall& c, const Batched& s, int64_t batch, int64_t head, char* scratch) {
  const Value &a = c.in_value(in::matmul::a), &b = c.in_value(in::matmul::b), &out = c.out_value(out::matmul::c);
  auto* to = const_cast<char*>(matrix_at(c.out[out::matmul::c], out, batch, head));
  bool own_c = !s.direct || s.sum_in_f32;
  void* sum = own_c ? static_cast<void*>(scratch + s.c_at) : to;
  for (int64_t t = 0; t < s.terms; ++t) {
    int64_t head_a = head * s.terms + t, head_b = head_a * s.heads_b / s.heads_a;
    const void* pa = matrix_at(c.in[in::matmul::a], a, batch, head_a);
    const void* pb = matrix_at(c.in[in::matmul::b], b, batch, head_b);
    if (!s.direct) {
      widen(reinterpret_cast<float*>(scratch + s.a_at), pa, a, s.threads);
      widen(reinterpret_cast<float*>(scratch + s.b_at), pb, b, s.threads);
      pa = scratch + s.a_at, pb = scratch + s.b_at;
    }
    (t ? s.next : s.first)->run(pa, pb, nullptr, sum, scratch + s.gemm_at);
  }
  if (own_c) convert_rows(to, out.dtype, inner_of(out)->ld, sum, DType::f32, s.n, s.m, s.n, s.threads);
}

void launch(const KernelCall& c) {
  auto& s = *static_cast<const Batched*>(c.prepared);
  auto* w = static_cast<char*>(c.workspace);
  int64_t products = s.batch * s.heads_c;
  if (s.products_at_once == 1) {
    for (int64_t i = 0; i < products; ++i) product(c, s, i / s.heads_c, i % s.heads_c, w);
    return;
  }
#pragma omp parallel for num_threads(s.products_at_once) schedule(static)
  for (int64_t i = 0; i < products; ++i)
    product(c, s, i / s.heads_c, i % s.heads_c, w + size_t(omp_get_thread_num()) * s.bytes);
}

}  // namespace

Kernel matmul_kernel() { return {"matmul", "cpu.matmul.onednn", reject, workspace, prepare, launch}; }

}  // namespace crest::cpu
