// Cases of an update with quantized matrices of its group, and of a matrix of a group.
#include <algorithm>

#include "ops/case.h"
#include "ops/harness.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "program/builder.h"

namespace crest::test {

Case fused_update(const std::string& name, int64_t numel, const std::vector<GroupMatrix>& matrices, DType gradient,
                  Masters masters, bool skipped) {
  const DType f = DType::f32;
  const int64_t slots = int64_t(matrices.size()) + 2;
  Arg master = masters == Masters::halves ? Arg{Arg::Fill::ids, DType::u16, {numel}, 1, 1 << 16} : tensor(f, {numel});
  std::vector<Arg> in = {scalars_arg(),
                         master,
                         tensor(f, {numel}),
                         positive(f, {numel}),
                         tensor(gradient, {numel}, 8),
                         tensor(DType::bf16, {numel}),
                         positive(f, {1, slots}),
                         positive(f, {slots, 2}),
                         {Arg::Fill::ids, DType::i64, {slots, 2}, 1, 1000}};
  auto body = std::make_shared<Program>();
  Builder b(*body);
  b.origin = Origin("test");
  for (size_t i = 0; i < in.size(); ++i)
    body->inputs.push_back(
        b.declare("x" + std::to_string(i), in[i].dtype, in[i].shape, Role::input, Lifetime::micro_step));
  const std::vector<ValueId> x = body->inputs;
  std::vector<ValueId> updated =
      b.emit("adamw", {x[0], x[1], x[2], x[3], x[4], x[5]},
             Attrs().set("beta1", 0.9).set("beta2", 0.95).set("eps", 1e-8).set("weight_decay", 0.1));
  ValueId record = x[7], counts = x[8];
  for (size_t i = 0; i < matrices.size(); ++i) {
    const GroupMatrix& m = matrices[i];
    ValueId w = b.emit1("member", {updated[out::adamw::w]},
                        Attrs().set("offset", m.first).set("rows", m.rows).set("columns", m.columns));
    Attrs a = Attrs().set("format", "e4m3").set("slot", int64_t(i) + 1).set("margin", 1);
    if (m.transposed) a.set("columns", 1);
    std::vector<ValueId> q = b.emit("quantize", {w, x[6], record, counts}, a);
    record = q[out::quantize::record], counts = q[out::quantize::counts];
    body->outputs.push_back(q[out::quantize::q]), body->outputs.push_back(q[out::quantize::scale]);
    if (m.transposed) body->outputs.push_back(q[out::quantize::t]);
  }
  for (ValueId v : {record, counts, updated[out::adamw::master], updated[out::adamw::m], updated[out::adamw::v],
                    updated[out::adamw::w]})  // the weights last, as in every update
    body->outputs.push_back(v);
  Case c = {"fused_update", name, in};
  c.body = body;
  c.scalars = some_scalars();
  c.scalars.found_inf = skipped;
  c.complete = [matrices](Values& v) {
    for (size_t i = 0; i < matrices.size(); ++i)  // some weights saturate, and some of the third vanish
      v[6][i + 1] = !matrices[i].known ? 0 : i == 2 ? 40000 : 1.5;
    for (double& r : v[7]) r = std::min(r, 0.01);  // the step's records so far are below a tensor's values
  };
  return c;
}

namespace {

// A group with other parameters before, between and after its matrices, in sizes other than whole
// tiles or half tiles; and with more matrices than one launch takes.
void cases(std::vector<Case>& list, DType t) {
  if (t == DType::f16) return;
  const std::string dtype(name(t));
  for (Masters masters : {Masters::halves, Masters::whole}) {
    const std::string called = std::string(masters == Masters::halves ? "halves_" : "whole_") + dtype;
    auto add = [&](const std::string& what, bool a, bool b, bool c, bool skipped) {
      const std::vector<GroupMatrix> matrices = {
          {64, 160, 96, a, true}, {15424, 16, 16, b, true}, {15744, 48, 208, c, false}};
      list.push_back(fused_update(what + called, 25800, matrices, t, masters, skipped));
    };
    add("known_", true, true, true, false);
    add("first_", false, false, false, false);
    add("some_known_", true, false, true, false);
    add("skipped_", true, false, true, true);
    std::vector<GroupMatrix> many;
    for (int64_t i = 0; i < 70; ++i) many.push_back({i * 256, 16, 16, i % 3 != 0, i % 2 == 0});
    list.push_back(fused_update("many_" + called, 70 * 256, many, t, masters, false));
  }
  list.push_back({"member", dtype, {tensor(t, {200})}, Attrs().set("offset", 24).set("rows", 5).set("columns", 16)});
}

const CaseFile file = {cases, nullptr};

}  // namespace

}  // namespace crest::test
