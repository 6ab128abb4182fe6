// Copies between host memory and the device's.
#include "ops/index.h"
#include "ops/rules.h"

namespace crest {

// `into` is any version of a buffer: the previous copy there may have another type. Without it, the
// copy has memory of its own.
static void infer_copy_in(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::contiguous(c);
  if (!c.has(in::copy_in::into)) return c.out_like(in::copy_in::x);
  const Value &x = c.in(in::copy_in::x), &into = c.in(in::copy_in::into);
  c.check(into.layout.offset == 0, "the buffer must be the beginning of its storage");
  c.outs.push_back({x.dtype, x.shape, int(in::copy_in::into), true, 0, x.shape.contiguous_strides()});
}

static void infer_copy_out(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::contiguous(c);
  if (!c.has(in::copy_out::into)) return c.out_like(in::copy_out::x);
  c.same_dtype(in::copy_out::x, in::copy_out::into);
  c.same_shape(in::copy_out::x, in::copy_out::into);
  c.out_in_place(in::copy_out::into);
}

// Traffic of the device's memory. The link has the same traffic.
static Cost cost_copy_in(const Program& p, const Instr& i) {
  return {0, 0, double(p.at(i.in[in::copy_in::x]).bytes())};
}
static Cost cost_copy_out(const Program& p, const Instr& i) {
  return {0, double(p.at(i.in[in::copy_out::x]).bytes()), 0};
}

const OpDef op_copy_in = {
    .name = "copy_in",
    .inputs = in::copy_in::names,
    .outputs = out::copy_in::names,
    .help = "x (host), [into] -> y: a copy of x on the device, at the beginning of the buffer `into`",
    .op_class = OpClass::movement,
    .infer = infer_copy_in,
    .cost = cost_copy_in,
    .host_in = {in::copy_in::x}};

const OpDef op_copy_out = {.name = "copy_out",
                           .inputs = in::copy_out::names,
                           .outputs = out::copy_out::names,
                           .help = "x, [into] (host) -> y (host): a copy of x in host memory, in place of `into`",
                           .op_class = OpClass::movement,
                           .infer = infer_copy_out,
                           .cost = cost_copy_out,
                           .host_in = {in::copy_out::into},
                           .host_out = {out::copy_out::y}};

}  // namespace crest
