// Batched matmuls of attention heads, with grouped key/value heads.
#include "core/error.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::rank(c, in::matmul::a, 4);
  rules::rank(c, in::matmul::b, 4);
  rules::floating(c, in::matmul::a);
  c.same_dtype(in::matmul::b, in::matmul::a);
  const Shape &a = c.in(in::matmul::a).shape, &b = c.in(in::matmul::b).shape;
  bool ta = rules::flag(c, "transpose_a"), tb = rules::flag(c, "transpose_b");
  int64_t m = ta ? a[3] : a[2], k = ta ? a[2] : a[3], n = tb ? b[2] : b[3];
  c.check((tb ? b[3] : b[2]) == k, "the inner dimensions of a and b differ");
  c.check(a[0] == b[0], "a and b differ in their batch");
  int64_t out_heads = a[1];
  if (c.attrs().has("reduce")) {
    out_heads = rules::integer(c, "reduce", 1);
    c.check(a[1] == b[1], "with 'reduce' a and b must have the same number of heads");
    c.check(a[1] % out_heads == 0, "'reduce' must divide the number of heads");
  } else {
    c.check(b[1] > 0 && a[1] % b[1] == 0, "the heads of b must divide the heads of a");
  }
  c.out(c.in(in::matmul::a).dtype, {a[0], out_heads, m, n});
}

static Cost cost(const Program& p, const Instr& i) {
  const Shape &a = p.at(i.in[in::matmul::a]).shape, &c = p.at(i.out[out::matmul::c]).shape;
  return traffic_with_flops(p, i, 2.0 * double(a.numel()) * double(c[3]));  // numel(a) = B H M K
}

// C = A B with A = a or a^T, B = b or b^T: dA = dC B^T, dB = A^T dC (summed over all heads with the
// same B).
static void grad(Grad& g) {
  Builder& e = g.builder();
  bool ta = g.attrs().integer("transpose_a", 0), tb = g.attrs().integer("transpose_b", 0);
  int64_t heads = e.at(g.in(in::matmul::a)).shape[1], groups = e.at(g.in(in::matmul::b)).shape[1];
  if (g.attrs().has("reduce")) fail_internal("matmul with 'reduce' has no gradient rule");
  ValueId dc = g.dout(out::matmul::c);
  if (g.needs(in::matmul::a)) {
    if (ta && heads != groups) fail_internal("matmul with 'transpose_a' and grouped heads has no gradient rule");
    Attrs attrs;
    if (ta)
      attrs.set("transpose_a", tb).set("transpose_b", true);
    else
      attrs.set("transpose_b", !tb);
    g.add(in::matmul::a, ta ? e.emit1("matmul", {g.in(in::matmul::b), dc}, attrs)
                            : e.emit1("matmul", {dc, g.in(in::matmul::b)}, attrs));
  }
  if (g.needs(in::matmul::b)) {
    Attrs attrs;
    if (tb)
      attrs.set("transpose_a", true).set("transpose_b", ta);
    else
      attrs.set("transpose_a", !ta);
    if (heads != groups) attrs.set("reduce", groups);
    g.add(in::matmul::b, tb ? e.emit1("matmul", {dc, g.in(in::matmul::a)}, attrs)
                            : e.emit1("matmul", {g.in(in::matmul::a), dc}, attrs));
  }
}

// cheap: these are the matmuls inside naive attention; recomputing them frees the T x T matrices
// (selective recomputation of Korthikanti et al., "Reducing Activation Recomputation in Large
// Transformer Models", section 5).
static const char* place(const Program& p, const Instr& i) {
  bool ta = i.attrs.integer("transpose_a", 0) != 0, tb = i.attrs.integer("transpose_b", 0) != 0;
  return ta ? (tb ? cut<"BHKM, BHNK -> BHMN; B H M N K+">(p, i) : cut<"BHKM, BHKN -> BHMN; B H M N K+">(p, i))
            : (tb ? cut<"BHMK, BHNK -> BHMN; B H M N K+">(p, i) : cut<"BHMK, BHKN -> BHMN; B H M N K+">(p, i));
}

const OpDef op_matmul = {.name = "matmul",
                         .inputs = in::matmul::names,
                         .outputs = out::matmul::names,
                         .help = "a[B,H,M,K], b[B,G,K,N] -> c[B,H,M,N]: per head, head h of a with head h G / H of b",
                         .op_class = OpClass::contraction,
                         .infer = infer,
                         .place = place,
                         .cost = cost,
                         .grad = grad,
                         .cheap = true,
                         .half_compute = true};

}  // namespace crest
