// linear, linear_gelu, linear_dx, linear_dw on Crest's own packed products: bf16 on matrix units
// (gemm_amx.h), and half precision without native multiplication (gemm_packed.h), converted to
// floats during packing. Results are rounded in registers.
#include "backend/cpu/common.h"
#include "backend/cpu/gemm_amx.h"
#include "backend/cpu/linear.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

std::string reject_amx(const KernelQuery& q) {
  if (std::string why = check_linear(q); !why.empty()) return why;
  if (q.in(0).dtype != DType::bf16) return "the matrix units multiply bf16, not " + std::string(name(q.in(0).dtype));
  if (!q.device.amx) return "this machine has no matrix units for bf16 (AMX)";
  return {};
}

std::string reject_floats(const KernelQuery& q) {
  if (std::string why = check_linear(q); !why.empty()) return why;
  if (refusal_of_onednn(q).empty())  // docs/results/cpu_gemm.md
    return "oneDNN's product of " + std::string(name(q.in(0).dtype)) + " is faster";
  return {};
}

PackedShape packed_shape(const LinearShape& s) {
  switch (s.kind) {
    case LinearKind::forward: return {s.rows, s.n, s.k, false, true, s.dtype, s.dtype};
    case LinearKind::dx: return {s.rows, s.k, s.n, false, false, s.dtype, s.dtype};
    case LinearKind::dw: return {s.n, s.k, s.rows, true, false, s.dtype, s.dw};
  }
  return {};
}

// Made by prepare(); the bias as floats lies behind the product's own workspace.
struct Prepared {
  PackedShape shape;
  size_t bias_at;
};

// The product run by a kernel.
struct Amx {
  static size_t workspace(const PackedShape& s, const Device& d) { return amx_gemm_workspace(s, d.threads); }
  static void run(const PackedShape& s, const PackedOperands& o, void* workspace, const Device& d) {
    AmxBlocking blocking;
    blocking.emulated = d.emulated;
    amx_gemm(s, o, workspace, d.threads, blocking);
  }
};
struct Floats {
  static size_t workspace(const PackedShape& s, const Device& d) { return packed_gemm_workspace(s, vectors_of(d)); }
  static void run(const PackedShape& s, const PackedOperands& o, void* workspace, const Device& d) {
    packed_gemm(s, o, workspace, d.threads);
  }
};

template <class Unit>
Prepared make(const KernelQuery& q) {
  PackedShape s = packed_shape(linear_shape(q));
  return {s, lines(Unit::workspace(s, q.device))};
}

template <class Unit>
size_t workspace(const KernelQuery& q) {
  LinearShape s = linear_shape(q);
  return make<Unit>(q).bias_at + (s.has_bias ? float_lines(s.n) : 0);
}
template <class Unit>
std::shared_ptr<void> prepare(const KernelQuery& q) {
  return std::make_shared<Prepared>(make<Unit>(q));
}

PackedOperands operands(const KernelCall& c) {
  PackedOperands o;
  o.a = c.in[0], o.b = c.in[1], o.c = c.out[0];
  return o;
}

template <class Unit>
void run(const KernelCall& c, const PackedOperands& o) {
  Unit::run(static_cast<const Prepared*>(c.prepared)->shape, o, c.workspace, *c.device);
}

const float* bias_of(const KernelCall& c) {
  if (!c.has(in::linear::b)) return nullptr;
  auto* floats =
      reinterpret_cast<float*>(static_cast<char*>(c.workspace) + static_cast<const Prepared*>(c.prepared)->bias_at);
  return floats_of(c.in[in::linear::b], c.in_value(in::linear::b).dtype, c.in_value(in::linear::b).numel(), floats);
}

template <class Unit>
void launch_forward(const KernelCall& c) {
  PackedOperands o = operands(c);
  o.bias = bias_of(c);
  run<Unit>(c, o);
}

template <class Unit>
void launch_gelu(const KernelCall& c) {
  PackedOperands o = operands(c);
  o.bias = bias_of(c), o.gelu = true;
  o.h = c.instr.out.size() > 1 ? c.out[out::linear_gelu::h] : nullptr;
  run<Unit>(c, o);
}

template <class Unit>
void launch_dx(const KernelCall& c) {
  run<Unit>(c, operands(c));
}

// dy^T[N,rows] x[rows,K].
template <class Unit>
void launch_dw(const KernelCall& c) {
  PackedOperands o = operands(c);
  o.add = c.has(in::linear_dw::acc) ? c.in[in::linear_dw::acc] : nullptr;
  run<Unit>(c, o);
}

template <class Unit>
Kernel kernel(const char* op, const char* name, void (*launch)(const KernelCall&)) {
  bool amx = std::is_same_v<Unit, Amx>;
  return {op, name, amx ? reject_amx : reject_floats, workspace<Unit>, prepare<Unit>, launch};
}

}  // namespace

Kernel linear_amx_kernel() { return kernel<Amx>("linear", "cpu.linear.amx", launch_forward<Amx>); }
Kernel linear_packed_kernel() { return kernel<Floats>("linear", "cpu.linear.packed", launch_forward<Floats>); }
Kernel linear_gelu_amx_kernel() { return kernel<Amx>("linear_gelu", "cpu.linear_gelu.amx", launch_gelu<Amx>); }
Kernel linear_gelu_packed_kernel() {
  return kernel<Floats>("linear_gelu", "cpu.linear_gelu.packed", launch_gelu<Floats>);
}
Kernel linear_dx_amx_kernel() { return kernel<Amx>("linear_dx", "cpu.linear_dx.amx", launch_dx<Amx>); }
Kernel linear_dx_packed_kernel() { return kernel<Floats>("linear_dx", "cpu.linear_dx.packed", launch_dx<Floats>); }
Kernel linear_dw_amx_kernel() { return kernel<Amx>("linear_dw", "cpu.linear_dw.amx", launch_dw<Amx>); }
Kernel linear_dw_packed_kernel() { return kernel<Floats>("linear_dw", "cpu.linear_dw.packed", launch_dw<Floats>); }

}  // namespace crest::cpu
