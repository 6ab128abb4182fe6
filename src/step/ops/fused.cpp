// A chain of pointwise instructions in one pass over memory. Its body is a Program over one shape.
// The body may end with column sums (bias_grad) of a computed value, and with its quantization
// (quantize, quantize_columns, and the same in blocks), on numbers already rounded to their dtype.
// fused_update is an update of weights in one pass over memory with the quantization of the new
// weights.
#include <fmt/format.h>

#include <algorithm>

#include "ops/fused.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "ops/rules.h"

namespace crest {

bool quantizes_rows(const Instr& instr) { return instr.op == &op_quantize || instr.op == &op_quantize_blocks; }
bool quantizes_columns(const Instr& instr) {
  return instr.op == &op_quantize_columns || instr.op == &op_quantize_blocks_columns;
}
bool quantizes(const Instr& instr) { return quantizes_rows(instr) || quantizes_columns(instr); }
bool ends_body(const Instr& instr) { return instr.op == &op_bias_grad || quantizes(instr); }

static const Program& body_of(Infer& c) {
  c.check(c.body() != nullptr, "a fused instruction needs a body");
  const Program& body = *c.body();
  c.check(!body.code.empty(), "the body is empty");
  rules::inputs(c, body.inputs.size(), body.inputs.size());
  rules::contiguous(c);
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    const Value& v = body.at(body.inputs[i]);
    rules::dtype(c, i, v.dtype);
    rules::shape(c, i, v.shape);
  }
  return body;
}

// An output updated in place by the body shares the memory of an input: the accumulator of a column
// sum, tables, weights.
static void outputs_of(Infer& c, const Program& body) {
  for (ValueId o : body.outputs) {
    const Value& v = body.at(o);
    auto it = std::find(body.inputs.begin(), body.inputs.end(), v.layout.storage);
    if (v.layout.storage != o && it != body.inputs.end())
      c.out_in_place(size_t(it - body.inputs.begin()));
    else
      c.out(v.dtype, v.shape);
  }
}

static void infer(Infer& c) {
  const Program& body = body_of(c);
  const Shape& shape = body.at(body.code[0].in[0]).shape;
  for (const Instr& instr : body.code) {
    const bool end = ends_body(instr);
    if (!instr.op->pointwise && !end)
      c.reject(fmt::format("the body holds '{}', which is not pointwise", instr.op->name));
    const Value& v = body.at(end ? instr.in[0] : instr.out[0]);
    if (!(v.shape == shape))
      c.reject(fmt::format("the body computes both [{}] and [{}]", shape.text(), v.shape.text()));
  }
  outputs_of(c, body);
}

static void infer_fused_update(Infer& c) {
  const Program& body = body_of(c);
  const Instr* update = nullptr;
  for (const Instr& instr : body.code) {
    if (!instr.op->flat && instr.op != &op_member && instr.op != &op_quantize)
      c.reject(fmt::format("the body holds '{}', which neither updates nor quantizes weights", instr.op->name));
    if (instr.op->flat) {
      c.check(!update, "the body holds several updates");
      update = &instr;
      continue;
    }
    const ValueId weights = body.at(instr.in[0]).layout.storage;
    c.check(update && std::any_of(update->out.begin(), update->out.end(),
                                  [&](ValueId v) { return body.at(v).layout.storage == weights; }),
            "the body quantizes what it does not update");
  }
  c.check(update, "the body holds no update");
  outputs_of(c, body);
}

static Cost cost(const Program& p, const Instr& i) {
  double flops = 0;
  for (const Instr& b : i.body->code) flops += b.op->cost(*i.body, b).flops;
  return traffic_with_flops(p, i, flops);
}

// Quantized values are not read again, and the slots of the tables are a few bytes.
static Cost cost_of_update(const Program&, const Instr& i) {
  Cost all;
  for (const Instr& b : i.body->code) {
    Cost c = b.op->cost(*i.body, b);
    all.flops += c.flops, all.bytes_written += c.bytes_written;
    if (b.op->flat) all.bytes_read += c.bytes_read;
  }
  return all;
}

const OpDef op_fused = {.name = "fused",
                        .inputs = in::fused::names,
                        .outputs = out::fused::names,
                        .help = "inputs of the body -> outputs of the body, element by element in one pass",
                        .op_class = OpClass::elementwise,
                        .infer = infer,
                        .cost = cost,
                        .cheap = true};

const OpDef op_fused_update = {
    .name = "fused_update",
    .inputs = in::fused_update::names,
    .outputs = out::fused_update::names,
    .help =
        "inputs of the body -> outputs of the body: an update, and the weights that it makes as quantize stores them",
    .op_class = OpClass::optimizer,
    .infer = infer_fused_update,
    .cost = cost_of_update};

}  // namespace crest
