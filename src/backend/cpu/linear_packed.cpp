// linear, linear_gelu, linear_dx, linear_dw on our own packed product (gemm_packed.h): half precision that the machine
// does not multiply becomes floats while it is packed, and results are rounded while they are in registers.
#include "backend/cpu/common.h"
#include "backend/cpu/gemm_packed.h"
#include "backend/cpu/linear.h"

namespace crest::cpu {
namespace {

std::string reject(const KernelQuery& q) {
  if (std::string why = check_linear(q); !why.empty()) return why;
  // docs/results/cpu_gemm.md
  DType t = q.in(0).dtype;
  if (multiplied_directly(q.device, t)) return "oneDNN's product of " + std::string(name(t)) + " is faster";
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

// What prepare() keeps; the bias as floats lies behind the product's own workspace.
struct Prepared {
  PackedShape shape;
  size_t bias_at;
};

Prepared make(const KernelQuery& q) {
  PackedShape s = packed_shape(linear_shape(q));
  return {s, lines(packed_gemm_workspace(s))};
}

size_t workspace(const KernelQuery& q) {
  LinearShape s = linear_shape(q);
  return make(q).bias_at + (s.has_bias ? float_lines(s.n) : 0);
}
std::shared_ptr<void> prepare(const KernelQuery& q) { return std::make_shared<Prepared>(make(q)); }

PackedOperands operands(const KernelCall& c) {
  PackedOperands o;
  o.a = c.in[0], o.b = c.in[1], o.c = c.out[0];
  return o;
}

void run(const KernelCall& c, const PackedOperands& o) {
  packed_gemm(static_cast<const Prepared*>(c.prepared)->shape, o, c.workspace, c.threads);
}

const float* bias_of(const KernelCall& c) {
  if (!c.has(2)) return nullptr;
  auto* floats =
      reinterpret_cast<float*>(static_cast<char*>(c.workspace) + static_cast<const Prepared*>(c.prepared)->bias_at);
  return floats_of(c.in[2], c.in_value(2).dtype, c.in_value(2).numel(), floats);
}

void launch_forward(const KernelCall& c) {
  PackedOperands o = operands(c);
  o.bias = bias_of(c);
  run(c, o);
}

void launch_gelu(const KernelCall& c) {
  PackedOperands o = operands(c);
  o.bias = bias_of(c), o.gelu = true;
  o.h = c.instr.out.size() > 1 ? c.out[1] : nullptr;
  run(c, o);
}

void launch_dx(const KernelCall& c) { run(c, operands(c)); }

// dy^T[N,rows] x[rows,K].
void launch_dw(const KernelCall& c) {
  PackedOperands o = operands(c);
  o.add = c.has(2) ? c.in[2] : nullptr;
  run(c, o);
}

}  // namespace

Kernel linear_packed_kernel() { return {"linear", "cpu.linear.packed", reject, workspace, prepare, launch_forward}; }
Kernel linear_gelu_packed_kernel() {
  return {"linear_gelu", "cpu.linear_gelu.packed", reject, workspace, prepare, launch_gelu};
}
Kernel linear_dx_packed_kernel() {
  return {"linear_dx", "cpu.linear_dx.packed", reject, workspace, prepare, launch_dx};
}
Kernel linear_dw_packed_kernel() {
  return {"linear_dw", "cpu.linear_dw.packed", reject, workspace, prepare, launch_dw};
}

}  // namespace crest::cpu
