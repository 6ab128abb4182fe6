#include "backend/cuda/contraction.h"

#include <string_view>

#include "ops/index.h"
#include "program/op.h"

namespace crest::cuda {

static Contraction linear_contraction(const Program& program, const Instr& instr) {
  auto in = [&](size_t i) -> const Value& { return program.at(instr.in[i]); };
  std::string_view op = instr.op->name;
  size_t last = op == "linear_dw" ? size_t(in::linear_dw::acc) : size_t(in::linear::b);
  bool third = instr.in.size() > last && instr.in[last] != no_value;
  Contraction c;
  c.a.dtype = in(0).dtype, c.b.dtype = in(1).dtype, c.c.dtype = program.at(instr.out[0]).dtype;
  c.tf32 = instr.attrs.integer("tf32", 0) != 0;
  if (op == "linear_dw") {  // dy[rows,N]^T x[rows,K]
    c.m = in(in::linear_dw::dy).shape.back(), c.n = in(in::linear_dw::x).shape.back();
    c.k = in(in::linear_dw::dy).shape.rows();
    c.a.row = 1, c.a.col = in(in::linear_dw::dy).pitch();
    c.b.row = c.n;
    c.accumulate = third;
  } else if (op == "linear_dx") {  // dy[rows,N] w[N,K]
    c.m = in(in::linear_dx::dy).shape.rows();
    c.n = in(in::linear_dx::w).shape[1], c.k = in(in::linear_dx::w).shape[0];
    c.a.row = in(in::linear_dx::dy).pitch();
    c.b.row = c.n;
  } else {  // x[rows,K] w[N,K]^T
    c.m = in(in::linear::x).shape.rows();
    c.n = in(in::linear::w).shape[0], c.k = in(in::linear::w).shape[1];
    c.a.row = c.k;
    c.b.row = 1, c.b.col = c.k;
    c.bias = third;
    c.gelu = op == "linear_gelu";
    c.keep = instr.out.size() > 1;
  }
  c.c.row = program.at(instr.out[0]).pitch();
  return c;
}

// x[rows,K] w[N,K]^T of 8-bit operands.
static Contraction fp8_contraction(const Program& program, const Instr& instr) {
  namespace at = in::linear_fp8;
  const Value &x = program.at(instr.in[at::x]), &w = program.at(instr.in[at::w]), &y = program.at(instr.out[0]);
  auto has = [&](size_t i) { return i < instr.in.size() && instr.in[i] != no_value; };
  Contraction c;
  c.m = x.shape.rows(), c.n = w.shape[0], c.k = w.shape[1];
  c.a = {x.dtype, c.k, 1}, c.b = {w.dtype, 1, c.k}, c.c = {y.dtype, c.n, 1};
  c.bias = has(at::b), c.accumulate = has(at::acc);
  c.scaled = true;
  c.fast_sums = fp8_fast_accumulation(instr.attrs);
  c.blocks = fp8_blocks(instr.attrs);
  c.third = c.accumulate ? size_t(at::acc) : size_t(at::b);
  return c;
}

// a[B,H,M,K] b[B,G,K,N] -> c[B,H,M,N], or [B,G',M,N] with `reduce`.
static Contraction matmul_contraction(const Program& program, const Instr& instr) {
  const Value &a = program.at(instr.in[in::matmul::a]), &b = program.at(instr.in[in::matmul::b]),
              &y = program.at(instr.out[out::matmul::c]);
  bool ta = instr.attrs.integer("transpose_a", 0) != 0, tb = instr.attrs.integer("transpose_b", 0) != 0;
  auto &sa = a.layout.strides, &sb = b.layout.strides, &sy = y.layout.strides;
  Contraction c;
  c.m = y.shape[2], c.n = y.shape[3], c.k = a.shape[ta ? 2 : 3];
  c.a = {a.dtype, sa[ta ? 3 : 2], sa[ta ? 2 : 3]};
  c.b = {b.dtype, sb[tb ? 3 : 2], sb[tb ? 2 : 3]};
  c.c = {y.dtype, sy[2], sy[3]};
  c.tf32 = instr.attrs.integer("tf32", 0) != 0;
  int64_t heads = a.shape[1], groups = b.shape[1], out_heads = y.shape[1];
  c.batch[0] = {a.shape[0], sa[0], sb[0], sy[0]};
  if (out_heads != heads) {
    int64_t summed = heads / out_heads;
    c.batch[1] = {out_heads, sa[1] * summed, sb[1] * summed, sy[1]};
    c.sum = {summed, sa[1], sb[1], 0};
  } else {
    int64_t shared = heads / groups;  // query heads for one head of b
    c.batch[1] = {groups, sa[1] * shared, sb[1], sy[1] * shared};
    c.batch[2] = {shared, sa[1], 0, sy[1]};
  }
  return c;
}

Contraction contraction_of(const Program& program, const Instr& instr) {
  if (std::string_view(instr.op->name) == "linear_fp8") return fp8_contraction(program, instr);
  bool matmul = std::string_view(instr.op->name) == "matmul";
  return matmul ? matmul_contraction(program, instr) : linear_contraction(program, instr);
}

}  // namespace crest::cuda
