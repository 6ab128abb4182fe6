// Tensors on their way from one pipeline stage to another: ranks with the same coordinates on all
// other axes. `to` and `from` are coordinates along the pipeline axis. The n-th send of a rank to
// another one meets the n-th receive there (plan/schedule.h).
#include <charconv>

#include "core/text.h"
#include "ops/collectives.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

namespace {

// "8,256,768", as Shape::text() writes it.
Shape shape_attr(const Infer& c) {
  c.check(c.attrs().has("shape"), "needs attribute 'shape'");
  Shape shape;
  for (const std::string& text : split(c.attrs().text("shape"), ',')) {
    int64_t size = -1;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    const bool whole = error == std::errc() && end == text.data() + text.size() && size >= 0;
    c.check(whole && shape.rank() < Shape::max_rank, "attribute 'shape' must be a list of sizes");
    shape.push_back(size);
  }
  return shape;
}

void infer_send(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::integer(c, "to", 0);
  const Value& x = c.in(in::send::x);
  c.out_view(in::send::x, 0, x.shape, x.layout.strides);
}

void infer_receive(Infer& c) {
  rules::inputs(c, 0, 1);
  rules::contiguous(c);
  rules::integer(c, "from", 0);
  if (c.has(in::receive::acc)) {
    rules::floating(c, in::receive::acc);
    return c.out_in_place(in::receive::acc);
  }
  c.out(c.dtype_attr(DType::f32), shape_attr(c));
}

Cost cost_send(const Program& p, const Instr& i) { return {0, double(p.at(i.in[in::send::x]).bytes()), 0}; }

Cost cost_receive(const Program& p, const Instr& i) {
  const Value& y = p.at(i.out[out::receive::y]);
  const bool adds = adds_received(i);
  return {adds ? double(y.numel()) : 0, adds ? double(y.bytes()) : 0, double(y.bytes())};
}

// The gradient of a sent activation comes back. The gradient of sent weights comes once for all
// micro steps (passes/pipeline_parallel.cpp).
void grad_send(Grad& g) {
  const ValueId x = g.in(in::send::x);
  const Value& sent = g.builder().at(x);
  if (!g.needs(in::send::x) || sent.role == Role::weight) return;
  const Placements at = sent.placement;
  const ValueId dx = g.builder().emit1("receive", {}, receive_attrs(sent, int(g.attrs().integer("to"))));
  g.builder().program().at(dx).placement = at;
  g.add(in::send::x, dx);
}

void grad_receive(Grad& g) {
  g.builder().emit1("send", {g.dout(out::receive::y)}, send_attrs(int(g.attrs().integer("from"))));
}

}  // namespace

Attrs send_attrs(int to) { return Attrs().set("to", to).set("axes", name(Axis::pipeline)); }

Attrs receive_attrs(const Value& like, int from) {
  return Attrs()
      .set("from", from)
      .set("axes", name(Axis::pipeline))
      .set("shape", like.shape.text())
      .set("dtype", name(like.dtype));
}

size_t received_bytes(const Program& p, const Instr& i) {
  return adds_received(i) ? size_t(p.at(i.out[out::receive::y]).bytes()) : 0;
}

const OpDef op_send = {.name = "send",
                       .inputs = in::send::names,
                       .outputs = out::send::names,
                       .help = "x -> y: a view of x, which the pipeline stage `to` receives",
                       .op_class = OpClass::communication,
                       .infer = infer_send,
                       .cost = cost_send,
                       .grad = grad_send};

const OpDef op_receive = {.name = "receive",
                          .inputs = in::receive::names,
                          .outputs = out::receive::names,
                          .help = "[acc] -> y: what the pipeline stage `from` sends, added to acc in place",
                          .op_class = OpClass::communication,
                          .infer = infer_receive,
                          .cost = cost_receive,
                          .grad = grad_receive};

}  // namespace crest
