// Lever --precision fp8: the linear layers of the blocks multiply 8-bit floats, in all three
// matmuls: e4m3 for activations and weights, and for gradients e5m2 (Micikevicius et al. 2022) or
// e4m3. The rest stays bf16, as pass precision left it. Each tensor has one scale, a power of two,
// from its largest magnitude in the step before (delayed scaling; in the first step, of the tensor
// itself).
//
//   y = linear(x, w, b)       ->  y = linear_fp8(q(x), q(w), b)
//   dx = linear_dx(dy, w)     ->  dx = linear_fp8(q(dy), q(w)^T)
//   dw = linear_dw(dy, x)     ->  dw = linear_fp8(q(dy)^T, q(x)^T)
//
// A GPU multiplies rows by rows only, so quantize makes transposes too. The input of a layer is
// transposed in the backward half, from what bf16 would keep for dw, so recompute treats it as with
// bf16. Weights are quantized in the first micro step and kept, or (--fp8-weights again) in every
// one, and transposed in its backward half, so that they take no memory between.
#include "passes/fp8.h"

#include <fmt/format.h>

#include <map>

#include "core/error.h"
#include "ops/fp8.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

constexpr const char* fp8_record = "fp8.record";
constexpr const char* fp8_counts = "fp8.counts";
constexpr int64_t slots_of_linear = 3;  // the weight, x, dy

// Both dimensions are multiples of what rows of operands are aligned to.
bool fits(const Shape& weight) { return weight[0] % fp8_multiple == 0 && weight[1] % fp8_multiple == 0; }

// Matrices of the blocks, whose features fit, in the order of the parameters.
std::vector<size_t> linears(const Program& p) {
  std::vector<size_t> list;
  for (size_t q = 0; q < p.params.size(); ++q) {
    const Param& param = p.params[q];
    if (param.shape.rank() == 2 && Origin(param.name).layer() >= 0 && fits(p.at(param.value).shape)) list.push_back(q);
  }
  return list;
}

class QuantizeLinears {
 public:
  QuantizeLinears(Program& program, const PassContext& context)
      : p_(program),
        w_(program),
        margin_(int64_t(context.number("fp8-margin"))),
        history_(int64_t(context.number("fp8-history"))),
        gradients_(*parse_dtype(context.lever("fp8-gradients"))),
        ranks_(context.recipe.world_size()),
        first_(context.first),
        last_(context.last),
        keeps_weights_(context.lever("fp8-weights") == "keep" ||
                       (context.lever("fp8-weights") == "auto" && !(first_ && last_))) {}

  void run(const std::vector<size_t>& linears) {
    declare_tables(int64_t(linears.size()) * slots_of_linear);
    for (size_t l = 0; l < linears.size(); ++l) weights_[p_.params[linears[l]].value] = int64_t(l);
    for (const Instr& instr : w_.old) {
      if (is(instr, "linear"))
        forward(instr);
      else if (is(instr, "linear_dx"))
        input_gradient(instr);
      else if (is(instr, "linear_dw"))
        weight_gradient(instr);
      else
        w_.keep(instr);
    }
    w_.finish();
    if (ranks_ > 1 && last_) p_.outputs.push_back(record_);  // pass data_parallel sums it, as it does gradients
  }

 private:
  struct Operand {
    ValueId q = no_value, t = no_value, scale = no_value;
  };

  void declare_tables(int64_t slots) {
    Builder b(p_);
    amax_ = b.declare(fp8_amax, DType::f32, {history_, slots}, Role::state, Lifetime::persistent);
    // A column for each rank: their sum is what the largest of all ranks is found in.
    record_ = b.declare(fp8_record, DType::f32, {slots, ranks_}, Role::output, Lifetime::persistent);
    counts_ = b.declare(fp8_counts, DType::i64, {slots, 2}, Role::state, Lifetime::persistent);
  }

  Operand quantize(const Instr& user, ValueId x, int64_t slot, DType format, bool columns) {
    Attrs a;
    a.set("format", name(format)).set("slot", slot).set("margin", margin_);
    if (columns) a.set("columns", 1);
    std::vector<ValueId> out = w_.build(user).emit("quantize", {x, amax_, record_, counts_}, a);
    record_ = out[out::quantize::record], counts_ = out[out::quantize::counts];
    return {out[out::quantize::q], columns ? out[out::quantize::t] : no_value, out[out::quantize::scale]};
  }

  // The weight in 8 bits. If it is kept, the first micro step makes it with its transpose, and the
  // others read both.
  Operand& weight(const Instr& user, ValueId w, int64_t l) {
    auto [it, added] = quantized_.emplace(w, Operand());
    if (!added) return it->second;
    Operand& o = it->second;
    const std::string name = p_.at(w).name + ".e4m3";
    if (first_ || !keeps_weights_) {
      o = quantize(user, w, l * slots_of_linear, DType::e4m3, keeps_weights_);
      if (last_ || !keeps_weights_) return o;
      for (auto [v, called] : {std::pair{o.q, name}, {o.t, name + ".t"}, {o.scale, name + ".scale"}}) {
        Value& value = p_.at(v);
        value.name = called, value.role = Role::weight, value.lifetime = Lifetime::step;
      }
    } else {
      Builder& b = w_.build(user);
      auto made = [&](const std::string& called, DType t, const Shape& s) {
        return b.declare(called, t, s, Role::weight, Lifetime::step);
      };
      const Shape s = p_.at(w).shape;
      o.q = made(name, DType::e4m3, s);
      o.t = made(name + ".t", DType::e4m3, {s[1], fp8_padded(s[0])});
      o.scale = made(name + ".scale", DType::f32, {1});
    }
    return o;
  }

  // The transpose of x, whose rows are quantized already, made for one user.
  ValueId columns(const Instr& user, ValueId x, ValueId scale) {
    return w_.build(user).emit1("quantize_columns", {x, scale}, Attrs().set("format", name(DType::e4m3)));
  }

  void product(Instr instr, const std::vector<ValueId>& in, DType dtype) {
    instr.op = &op("linear_fp8");
    instr.in = in;
    instr.attrs.set("dtype", name(dtype));
    w_.keep(std::move(instr));
  }
  DType dtype_of(const Instr& instr) const { return p_.at(instr.out[0]).dtype; }

  void forward(const Instr& instr) {
    auto it = weights_.find(instr.in[in::linear::w]);
    if (it == weights_.end()) return w_.keep(instr);
    layers_[instr.origin.text()] = it->second;
    const Operand w = weight(instr, it->first, it->second);
    ValueId x = instr.in[in::linear::x];
    if (!quantized_.count(x)) quantized_[x] = quantize(instr, x, it->second * slots_of_linear + 1, DType::e4m3, false);
    const Operand& o = quantized_.at(x);
    ValueId bias = instr.in.size() > in::linear::b ? instr.in[in::linear::b] : no_value;
    product(instr, {o.q, w.q, o.scale, w.scale, bias, no_value}, dtype_of(instr));
  }

  const Operand& gradient(const Instr& user, ValueId dy, int64_t l) {
    if (!quantized_.count(dy)) quantized_[dy] = quantize(user, dy, l * slots_of_linear + 2, gradients_, true);
    return quantized_.at(dy);
  }

  void input_gradient(const Instr& instr) {
    auto it = weights_.find(instr.in[in::linear_dx::w]);
    if (it == weights_.end()) return w_.keep(instr);
    const Operand dy = gradient(instr, instr.in[in::linear_dx::dy], it->second);
    Operand& w = weight(instr, it->first, it->second);
    if (w.t == no_value) w.t = columns(instr, it->first, w.scale);
    product(instr, {dy.q, w.t, dy.scale, w.scale, no_value, no_value}, dtype_of(instr));
  }

  void weight_gradient(const Instr& instr) {
    auto it = layers_.find(instr.origin.text());  // that of the layer whose gradient it is
    if (it == layers_.end()) return w_.keep(instr);
    const Operand dy = gradient(instr, instr.in[in::linear_dw::dy], it->second);
    Operand& x = quantized_.at(instr.in[in::linear_dw::x]);
    if (x.t == no_value) x.t = columns(instr, instr.in[in::linear_dw::x], x.scale);
    ValueId acc = instr.in.size() > in::linear_dw::acc ? instr.in[in::linear_dw::acc] : no_value;
    product(instr, {dy.t, x.t, dy.scale, x.scale, no_value, acc}, dtype_of(instr));
  }

  Program& p_;
  Rewriter w_;
  const int64_t margin_, history_;
  const DType gradients_;
  const int64_t ranks_;
  const bool first_, last_, keeps_weights_;
  ValueId amax_ = no_value, record_ = no_value, counts_ = no_value;  // the newest versions
  std::map<ValueId, int64_t> weights_;                               // linear layers by their weight
  std::map<std::string, int64_t> layers_;                            // and by their origin
  std::map<ValueId, Operand> quantized_;
};

// Ends the step of the scales, and names their slots.
void end_step(Program& p, const std::vector<size_t>& linears, int64_t ranks, int64_t history) {
  std::string names;
  for (size_t q : linears)
    for (const char* what : {"", ".x", ".dy"}) names += (names.empty() ? "" : ",") + p.params[q].name + what;
  p.properties.set("fp8_slots", names);
  Builder b(p);
  b.origin = Origin("fp8");
  b.phase = Phase::update;
  auto slots = int64_t(linears.size()) * slots_of_linear;
  ValueId amax = b.declare(fp8_amax, DType::f32, {history, slots}, Role::state, Lifetime::persistent);
  ValueId record = b.declare(fp8_record, DType::f32, {slots, ranks}, Role::output, Lifetime::persistent);
  ValueId counts = b.declare(fp8_counts, DType::i64, {slots, 2}, Role::state, Lifetime::persistent);
  ValueId lost = b.declare(fp8_lost, DType::i64, {slots, 2}, Role::output, Lifetime::persistent);
  b.emit("amax_history", {amax, record, counts, lost});
}

}  // namespace

void quantize_linears(Program& program, const PassContext& context) {
  if (context.recipe.precision != "fp8") return;
  if (context.kind != ProgramKind::train && context.kind != ProgramKind::update) return;
  std::vector<size_t> list = linears(program);
  if (list.empty())
    fail_usage("no linear layer of this model can run in fp8: none has features in multiples of 16", "--precision",
               "Use --precision bf16, or a model whose width and ff are multiples of 16.");
  if (context.kind == ProgramKind::train)
    QuantizeLinears(program, context).run(list);
  else
    end_step(program, list, context.recipe.world_size(), int64_t(context.number("fp8-history")));
}

std::vector<std::string> fp8_slots(const Program& program) {
  std::vector<std::string> names;
  if (!program.properties.has("fp8_slots")) return names;
  std::string_view rest = program.properties.text("fp8_slots");
  for (size_t comma; (comma = rest.find(',')) != rest.npos; rest.remove_prefix(comma + 1))
    names.emplace_back(rest.substr(0, comma));
  names.emplace_back(rest);
  return names;
}

int64_t fp8_elements(const Program& train) {
  int64_t n = 0;
  for (const Instr& i : train.code) {
    if (is(i, "quantize")) n += train.at(i.in[in::quantize::x]).numel();
    if (is(i, "norm_quantize")) n += train.at(i.in[in::norm_quantize::a]).numel();
    if (i.body) n += fp8_elements(*i.body);
  }
  return n;
}

const std::vector<Setting>& fp8_settings() {
  static const std::vector<Setting> rows = {
      lever({.name = "fp8-gradients",
             .group = "Precision and memory",
             .help = "--precision fp8: the format of gradients, with more range (e5m2) or more precision (e4m3)",
             .otherwise = "e5m2",
             .choices = {"e5m2", "e4m3"},
             .effects = {{Effect::all, Effect::types, {}, nullptr, true}}}),
      lever({.name = "fp8-history",
             .group = "Precision and memory",
             .help = "--precision fp8: steps whose largest magnitude of a tensor gives its scale",
             .otherwise = "1",
             .least = 1,
             .most = 1024,
             .effects = {{Effect::all, Effect::types, {}, nullptr, true}},
             .type = SettingType::whole}),
      lever({.name = "fp8-margin",
             .group = "Precision and memory",
             .help = "--precision fp8: powers of two between a tensor's largest magnitude in the step before and the "
                     "largest that its scale can hold",
             .otherwise = "1",
             .least = 0,
             .most = 8,
             .effects = {{Effect::all, Effect::types, {}, nullptr, true}},
             .type = SettingType::whole}),
      lever({.name = "fp8-weights",
             .group = "Precision and memory",
             .help = "--precision fp8: weights in 8 bits are kept from the first micro step to the last use (keep), or "
                     "made in each half of each micro step (again): less memory, the same results; auto: again "
                     "without --grad-accumulation",
             .otherwise = "auto",
             .choices = {"auto", "keep", "again"},
             .effects = {{Effect::all, Effect::anywhere}},
             .smaller = {"again"}})};
  return rows;
}

}  // namespace crest
