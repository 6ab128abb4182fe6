// linear, linear_gelu, linear_dx, linear_dw: oneDNN on the operands as they are (f32; bf16 where
// the machine multiplies it).
#include "backend/cpu/linear.h"

#include <cstring>

#include "backend/cpu/common.h"
#include "backend/cpu/contraction.h"
#include "backend/cpu/gemm.h"
#include "ops/index.h"
#include "program/op.h"

namespace crest::cpu {
namespace {

// dw may be f32 or the dtype of its operands; so may the bias.
std::string check_like_or_f32(const Value& v, const Value& like) {
  if (std::string why = check_float(v); !why.empty()) return why;
  if (v.dtype != DType::f32 && v.dtype != like.dtype)
    return v.name + ": takes f32 or the dtype of " + like.name + ", not " + std::string(name(v.dtype));
  return {};
}

}  // namespace

bool multiplied_directly(const Device& device, DType t) {
  return t == DType::f32 || (t == DType::bf16 && device.native_bf16);
}

// linear: its result; the others: the gradient of the result.
static const Value& y_of(const KernelQuery& q) {
  std::string_view op = q.instr.op->name;
  return op == "linear" || op == "linear_gelu" ? q.out(0) : q.in(0);
}

std::string check_linear(const KernelQuery& q, bool any_pitch) {
  const Value& y = y_of(q);
  auto check_same = [&](const Value& v, const Value& like) {
    return any_pitch && &v == &y ? check_same_rows(v, like) : cpu::check_same(v, like);
  };
  for (size_t i = 0; i < 2; ++i)
    if (std::string why = check_same(q.in(i), q.in(0)); !why.empty()) return why;
  bool dw = std::string_view(q.instr.op->name) == "linear_dw";
  size_t third = dw ? size_t(in::linear_dw::acc) : size_t(in::linear::b);
  for (size_t i = 0; i < q.instr.out.size(); ++i)
    if (std::string why = dw ? check_like_or_f32(q.out(i), q.in(0)) : check_same(q.out(i), q.in(0)); !why.empty())
      return why;
  if (q.has(third))
    if (std::string why = dw ? check_same(q.in(third), q.out(0)) : check_like_or_f32(q.in(third), q.in(0));
        !why.empty())
      return why;
  if (q.in(0).numel() == 0 || q.in(1).numel() == 0) return "empty operands";
  return {};
}

LinearShape linear_shape(const KernelQuery& q) {
  std::string_view op = q.instr.op->name;
  LinearShape s;
  s.rows = q.in(0).shape.rows();
  s.dtype = q.in(0).dtype;
  s.pitch = y_of(q).pitch();
  if (op == "linear" || op == "linear_gelu") {
    s.kind = LinearKind::forward;
    s.k = q.in(in::linear::x).shape.back(), s.n = q.in(in::linear::w).shape[0];
    s.has_bias = q.has(in::linear::b);
    if (s.has_bias) s.bias = q.in(in::linear::b).dtype;
    s.gelu = op == "linear_gelu";
  } else if (op == "linear_dx") {
    s.kind = LinearKind::dx;
    s.n = q.in(in::linear_dx::w).shape[0], s.k = q.in(in::linear_dx::w).shape[1];
  } else {
    s.kind = LinearKind::dw;
    s.n = q.in(in::linear_dw::dy).shape.back(), s.k = q.in(in::linear_dw::x).shape.back();
    s.dw = q.out(out::linear_dw::dw).dtype;
    s.accumulate = q.has(in::linear_dw::acc);
  }
  return s;
}

namespace {

GemmShape gemm_of(const LinearShape& s, int threads) {
  GemmShape g;
  g.ab = g.c = s.dtype, g.threads = threads;
  switch (s.kind) {
    case LinearKind::forward:
      g.m = s.rows, g.n = s.n, g.k = s.k;
      g.b_transposed = true;
      g.lda = g.ldb = s.k, g.ldc = s.pitch;
      g.has_bias = s.has_bias, g.bias = s.bias;
      break;
    case LinearKind::dx:
      g.m = s.rows, g.n = s.k, g.k = s.n;
      g.lda = s.pitch, g.ldb = g.ldc = s.k;
      break;
    case LinearKind::dw:
      g.m = s.n, g.n = s.k, g.k = s.rows;
      g.a_transposed = true;
      g.lda = s.pitch, g.ldb = g.ldc = s.k;
      g.c = s.dw, g.accumulate = s.accumulate;
      break;
  }
  return g;
}

FoundGemm gemm_for(const KernelQuery& q) { return find_gemm(gemm_of(linear_shape(q), q.device.threads), q.device); }

std::string reject(const KernelQuery& q) {
  if (std::string why = check_linear(q, true); !why.empty()) return why;
  return refusal_of_onednn(q);
}

size_t workspace(const KernelQuery& q) { return gemm_for(q).gemm->workspace(); }
std::shared_ptr<void> prepare(const KernelQuery& q) {
  return std::make_shared<std::shared_ptr<const Gemm>>(gemm_for(q).gemm);
}

void multiply(const KernelCall& c, const void* bias, void* out) {
  auto& gemm = *static_cast<const std::shared_ptr<const Gemm>*>(c.prepared);
  gemm->run(c.in[0], c.in[1], bias, out, c.workspace);
}

void launch_forward(const KernelCall& c) {
  multiply(c, c.has(in::linear::b) ? c.in[in::linear::b] : nullptr, c.out[out::linear::y]);
}

void launch_gelu(const KernelCall& c) {
  void* product = c.instr.out.size() > 1 ? c.out[out::linear_gelu::h] : c.out[out::linear_gelu::a];
  multiply(c, c.has(in::linear_gelu::b) ? c.in[in::linear_gelu::b] : nullptr, product);
  gelu(c.out[out::linear_gelu::a], product, c.out_value(out::linear_gelu::a).dtype,
       c.out_value(out::linear_gelu::a).numel(), c.threads);
}

void launch_dx(const KernelCall& c) { multiply(c, nullptr, c.out[out::linear_dx::dx]); }

// dy^T[N,rows] x[rows,K]; the accumulator is the output's memory.
void launch_dw(const KernelCall& c) {
  if (c.has(in::linear_dw::acc) && c.in[in::linear_dw::acc] != c.out[out::linear_dw::dw])
    std::memcpy(c.out[out::linear_dw::dw], c.in[in::linear_dw::acc], size_t(c.out_value(out::linear_dw::dw).bytes()));
  multiply(c, nullptr, c.out[out::linear_dw::dw]);
}

}  // namespace

std::string refusal_of_onednn(const KernelQuery& q) {
  DType t = q.in(0).dtype;
  if (!multiplied_directly(q.device, t))
    return "oneDNN has no fast product of " + std::string(name(t)) + " on this class of processors";
  return gemm_for(q).refused;
}

void describe_onednn(const KernelQuery& q, ProductDetail& detail) {
  auto gemm = gemm_for(q).gemm;
  detail.algorithm = gemm->implementation();
  if (!gemm->allocates()) detail.requested_workspace = int64_t(gemm->workspace());
}

Kernel linear_kernel() { return {"linear", "cpu.linear.onednn", reject, workspace, prepare, launch_forward}; }
Kernel linear_gelu_kernel() {
  return {"linear_gelu", "cpu.linear_gelu.onednn", reject, workspace, prepare, launch_gelu};
}
Kernel linear_dx_kernel() { return {"linear_dx", "cpu.linear_dx.onednn", reject, workspace, prepare, launch_dx}; }
Kernel linear_dw_kernel() { return {"linear_dw", "cpu.linear_dw.onednn", reject, workspace, prepare, launch_dw}; }

}  // namespace crest::cpu
