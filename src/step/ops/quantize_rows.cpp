// Activations in 8-bit floats, from the forward to the backward half: each row (a token) has one
// scale, from its own largest magnitude. `dequantize` makes floats of them.
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  namespace at = in::quantize_rows;
  rules::inputs(c, at::count, at::count);
  rules::contiguous(c);
  rules::at_least_rank(c, at::x, 1);
  rules::floating(c, at::x);
  const Value& x = c.in(at::x);
  c.out(DType::e4m3, x.shape);
  c.out(rules::stat(x.dtype), {x.shape.rows()});
}

const OpDef op_quantize_rows = {
    .name = "quantize_rows",
    .inputs = in::quantize_rows::names,
    .outputs = out::quantize_rows::names,
    .help = "x[..,K] -> q e4m3[..,K], scale[rows]: q = x / scale in 8 bits, each row with a scale of its own",
    .op_class = OpClass::elementwise,
    .infer = infer,
    .place = cut<"..C -> ..C, *; ..">,
    .cost = elementwise_cost<2>};

}  // namespace crest
