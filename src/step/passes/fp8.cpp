// Setting --precision fp8: the linear layers of the blocks use 8-bit floats in all three matmuls:
// e4m3 for activations and weights, e5m2 (Micikevicius et al. 2022) or e4m3 for gradients. Pass
// precision sets everything else to bf16. Scales are powers of two:
//
//   --fp8-recipe tensor: one for each tensor, from its largest magnitude in the step before (delayed
//     scaling; in the first step, of the tensor itself)
//   --fp8-recipe block: of the tensor itself, one for each 128 x 128 of weights and each 1 x 128 of
//     the rest, along the summed dimension (DeepSeek-AI 2024, DeepSeek-V3, section 3.3.2)
//
//   y = linear(x, w, b)       ->  y = linear_fp8(q(x), q(w), b)
//   dx = linear_dx(dy, w)     ->  dx = linear_fp8(q(dy), q(w^T))
//   dw = linear_dw(dy, x)     ->  dw = linear_fp8(q(dy^T), q(x^T))
//
// A GPU multiplies rows by rows only, so quantize also makes transposes. The backward half
// transposes a layer's input from the tensor that bf16 would keep for dw, so recompute works as in
// bf16. --fp8-weights decides when weights are quantized:
//
//   again: in every micro step, and transposed in its backward half, so that they take no memory
//     between
//   keep: in the first micro step, with their transposes
//   update: by the update, for the next step. Program `start` quantizes the initial weights for the
//     first step of a run.
#include "passes/fp8.h"

#include <fmt/format.h>

#include <map>

#include "core/error.h"
#include "model/parameters.h"
#include "ops/fp8.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

const std::vector<Setting>& fp8_settings();

namespace {

constexpr int64_t slots_of_linear = 3;  // the weight, x, dy

// Both dimensions must be multiples of the alignment of operand rows.
bool fits(const Shape& weight) { return weight[0] % fp8_multiple == 0 && weight[1] % fp8_multiple == 0; }

// The blocks' matrices with suitable features, in parameter order.
std::vector<size_t> linears(const Program& p) {
  std::vector<size_t> list;
  for (size_t q = 0; q < p.params.size(); ++q) {
    const Param& param = p.params[q];
    if (is_adapter(param)) continue;
    if (param.shape.rank() == 2 && Origin(param.name).layer() >= 0 && fits(p.at(param.value).shape)) list.push_back(q);
  }
  return list;
}

bool in_blocks(const PassContext& context) { return context.setting("fp8-recipe") == "block"; }

// Rejects settings of tensor scales combined with block scales.
void check_recipe(const PassContext& context) {
  if (!in_blocks(context)) return;
  const std::map<std::string_view, const char*> reasons = {
      {"fp8-history", "its scales are those of the tensors themselves"},
      {"fp8-margin", "its scales are those of the tensors themselves"},
      {"fp8-fast-accumulation", "the sum of each block is scaled, in fp32"}};
  for (const Setting& s : fp8_settings())
    if (auto reason = reasons.find(s.name); reason != reasons.end() && context.setting(s.name) != s.default_value)
      fail_usage(
          fmt::format("--fp8-recipe block has no use for {} {}: {}", s.flag(), context.setting(s.name), reason->second),
          s.flag(), fmt::format("Use {} {}, or --fp8-recipe tensor.", s.flag(), s.default_value));
}

enum class Fp8Weights { again, keep, update };

Fp8Weights weights_of(const PassContext& context) {
  std::string text = context.setting("fp8-weights");
  if (text == "auto") text = auto_fp8_weights(context.recipe.grad_accumulation);
  if (text == "again") return Fp8Weights::again;
  return text == "keep" ? Fp8Weights::keep : Fp8Weights::update;
}

// For matmuls of the forward half and of the backward half.
struct FastAccumulation {
  explicit FastAccumulation(const PassContext& context) {
    const std::string text = context.setting("fp8-fast-accumulation");
    forward = text != "none", backward = text == "all";
  }
  bool forward, backward;
};

// A tensor in 8 bits and its transpose, with scales.
struct Operand {
  ValueId q = no_value, t = no_value, scale = no_value, t_scale = no_value;
};

// Quantizes with a Program's tables.
class Quantization {
 public:
  Quantization(Program& program, const PassContext& context, int64_t linears)
      : blocks_(in_blocks(context)), margin_(int64_t(context.number("fp8-margin"))) {
    const int64_t slots = linears * slots_of_linear;
    Builder b(program);
    if (!blocks_) {
      const auto history = int64_t(context.number("fp8-history"));
      amax_ = b.declare(fp8_amax, DType::f32, {history, slots}, Role::state, Lifetime::persistent);
      // One column for each rank: the ranks collect the columns by a sum and take the largest.
      record_ =
          b.declare(fp8_record, DType::f32, {slots, context.recipe.data_ranks()}, Role::output, Lifetime::persistent);
    }
    counts_ = b.declare(fp8_counts, DType::i64, {slots, 2}, Role::state, Lifetime::persistent);
    const Mesh mesh = context.recipe.layout();
    for (Axis axis : axes_outermost_first)
      if (mesh.size(axis) > 1) program.at(counts_).placement[size_t(axis)] = Placement::own();
  }

  bool in_blocks_of_128() const { return blocks_; }
  ValueId record() const { return record_; }

  Operand quantize(Builder& b, ValueId x, int64_t slot, DType format, bool columns, Fp8Blocks blocks) {
    Attrs a;
    a.set("format", name(format)).set("slot", slot);
    if (!blocks_) a.set("margin", margin_);
    if (columns) a.set("columns", 1);
    if (blocks_) {
      namespace to = out::quantize_blocks;
      a.set("blocks", name_of(blocks));
      std::vector<ValueId> out = b.emit("quantize_blocks", {x, counts_}, a);
      counts_ = out[to::counts];
      return {out[to::q], columns ? out[to::t] : no_value, out[to::scale], columns ? out[to::t_scale] : no_value};
    }
    namespace to = out::quantize;
    std::vector<ValueId> out = b.emit("quantize", {x, amax_, record_, counts_}, a);
    record_ = out[to::record], counts_ = out[to::counts];
    return {out[to::q], columns ? out[to::t] : no_value, out[to::scale], out[to::scale]};
  }

  void end_step(Program& p) {
    Builder b(p);
    b.origin = Origin("fp8");
    b.phase = Phase::update;
    const Shape slots = p.at(counts_).shape;
    const ValueId lost = b.declare(fp8_lost, DType::i64, slots, Role::output, Lifetime::persistent);
    if (blocks_) {
      counts_ = b.emit("take_counts", {counts_, lost})[out::take_counts::counts];
      return;
    }
    namespace to = out::amax_history;
    std::vector<ValueId> out = b.emit("amax_history", {amax_, record_, counts_, lost});
    amax_ = out[to::amax], record_ = out[to::record], counts_ = out[to::counts];
  }

  // Quantizes a weight and its transpose, with names, for other Programs.
  Operand quantize_weight(Program& p, Builder& b, ValueId w, int64_t l, const std::string& weight, Lifetime lifetime) {
    Operand o = quantize(b, w, l * slots_of_linear, DType::e4m3, true, Fp8Blocks::squares);
    auto keep = [&](ValueId v, const char* what) {
      Value& value = p.at(v);
      value.name = weight + ".e4m3" + what, value.role = Role::weight, value.lifetime = lifetime;
    };
    keep(o.q, ""), keep(o.t, ".t"), keep(o.scale, ".scale");
    if (blocks_) keep(o.t_scale, ".t.scale");
    return o;
  }
  // A weight quantized by another Program.
  Operand quantized_weight(Builder& b, const Shape& s, const std::string& weight, Lifetime lifetime) const {
    auto made = [&](const char* what, DType t, const Shape& shape) {
      return b.declare(weight + ".e4m3" + what, t, shape, Role::weight, lifetime);
    };
    Operand o;
    o.q = made("", DType::e4m3, s);
    o.t = made(".t", DType::e4m3, {s[1], fp8_padded(s[0])});
    const Fp8Blocks blocks = blocks_ ? Fp8Blocks::squares : Fp8Blocks::none;
    o.scale = made(".scale", DType::f32, fp8_scales(blocks, s[0], s[1]));
    o.t_scale = blocks_ ? made(".t.scale", DType::f32, fp8_scales(blocks, s[1], s[0])) : o.scale;
    return o;
  }

 private:
  const bool blocks_;
  const int64_t margin_;
  ValueId amax_ = no_value, record_ = no_value, counts_ = no_value;  // newest versions
};

class QuantizeLinears {
 public:
  QuantizeLinears(Program& program, const PassContext& context, const std::vector<size_t>& linears)
      : p_(program),
        w_(program),
        tables_(program, context, int64_t(linears.size())),
        gradients_(*parse_dtype(context.setting("fp8-gradients"))),
        blocks_(tables_.in_blocks_of_128()),
        fast_(context),
        ranks_(context.recipe.data_ranks()),
        first_(context.first),
        last_(context.last),
        made_(weights_of(context)) {
    for (size_t l = 0; l < linears.size(); ++l) weights_[p_.params[linears[l]].value] = int64_t(l);
  }

  void run() {
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
    // Pass data_parallel sums it, like gradients.
    if (ranks_ > 1 && last_ && !blocks_) p_.outputs.push_back(tables_.record());
  }

 private:
  Operand quantize(const Instr& user, ValueId x, int64_t slot, DType format, bool columns,
                   Fp8Blocks blocks = Fp8Blocks::rows) {
    return tables_.quantize(w_.build(user), x, slot, format, columns, blocks);
  }

  // Adds the transpose of x. The rows of x are quantized already.
  void transpose(const Instr& user, ValueId x, Operand& o, Fp8Blocks blocks) {
    Builder& b = w_.build(user);
    Attrs a = Attrs().set("format", name(DType::e4m3));
    if (blocks_) {
      a.set("blocks", name_of(blocks));
      std::vector<ValueId> out = b.emit("quantize_blocks_columns", {x}, a);
      o.t = out[out::quantize_blocks_columns::t], o.t_scale = out[out::quantize_blocks_columns::scale];
    } else {
      o.t = b.emit1("quantize_columns", {x, o.scale}, a), o.t_scale = o.scale;
    }
  }

  // The 8-bit weight.
  Operand& weight(const Instr& user, ValueId w, int64_t l) {
    auto [it, added] = quantized_.emplace(w, Operand());
    if (!added) return it->second;
    Operand& o = it->second;
    const std::string name = p_.at(w).name;
    const Shape shape = p_.at(w).shape;
    Builder& b = w_.build(user);
    if (made_ == Fp8Weights::again)
      o = tables_.quantize(b, w, l * slots_of_linear, DType::e4m3, false, Fp8Blocks::squares);
    else if (made_ == Fp8Weights::update)
      o = tables_.quantized_weight(b, shape, name, Lifetime::persistent);
    else if (!first_)
      o = tables_.quantized_weight(b, shape, name, Lifetime::step);
    else if (last_)
      o = tables_.quantize(b, w, l * slots_of_linear, DType::e4m3, true, Fp8Blocks::squares);
    else
      o = tables_.quantize_weight(p_, b, w, l, name, Lifetime::step);
    return o;
  }

  // blocks: block scales of the second operand.
  void product(Instr instr, const std::vector<ValueId>& in, DType dtype, Fp8Blocks blocks, bool fast) {
    instr.op = &op("linear_fp8");
    instr.in = in;
    instr.attrs.set("dtype", name(dtype));
    if (blocks_) instr.attrs.set("blocks", name_of(blocks));
    if (fast) instr.attrs.set("fast_accumulation", 1);
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
    product(instr, {o.q, w.q, o.scale, w.scale, bias, no_value}, dtype_of(instr), Fp8Blocks::squares, fast_.forward);
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
    if (w.t == no_value) transpose(instr, it->first, w, Fp8Blocks::squares);
    product(instr, {dy.q, w.t, dy.scale, w.t_scale, no_value, no_value}, dtype_of(instr), Fp8Blocks::squares,
            fast_.backward);
  }

  void weight_gradient(const Instr& instr) {
    auto it = layers_.find(instr.origin.text());  // this weight gradient's layer
    if (it == layers_.end()) return w_.keep(instr);
    const Operand dy = gradient(instr, instr.in[in::linear_dw::dy], it->second);
    Operand& x = quantized_.at(instr.in[in::linear_dw::x]);
    if (x.t == no_value) transpose(instr, instr.in[in::linear_dw::x], x, Fp8Blocks::rows);
    ValueId acc = instr.in.size() > in::linear_dw::acc ? instr.in[in::linear_dw::acc] : no_value;
    product(instr, {dy.t, x.t, dy.t_scale, x.t_scale, no_value, acc}, dtype_of(instr), Fp8Blocks::rows, fast_.backward);
  }

  Program& p_;
  Rewriter w_;
  Quantization tables_;
  const DType gradients_;
  const bool blocks_;
  const FastAccumulation fast_;
  const int64_t ranks_;
  const bool first_, last_;
  const Fp8Weights made_;
  std::map<ValueId, int64_t> weights_;     // linear layer by weight
  std::map<std::string, int64_t> layers_;  // linear layer by origin
  std::map<ValueId, Operand> quantized_;
};

// Ends the step of the scales before the rest of the update, because later quantizations belong to
// the next step.
void end_step(Program& p, Quantization& tables, const std::vector<size_t>& linears) {
  std::string names;
  for (size_t q : linears)
    for (const char* what : {"", ".x", ".dy"}) names += (names.empty() ? "" : ",") + p.params[q].name + what;
  p.properties.set("fp8_slots", names);
  std::vector<Instr> update = std::move(p.code);
  p.code.clear();
  tables.end_step(p);
  p.code.insert(p.code.end(), std::make_move_iterator(update.begin()), std::make_move_iterator(update.end()));
}

// Quantizes the weights for the next step.
void quantize_for_next_step(Program& p, Quantization& tables, const std::vector<size_t>& linears) {
  Builder b(p);
  b.phase = Phase::update;
  for (size_t l = 0; l < linears.size(); ++l) {
    const Param& param = p.params[linears[l]];
    b.origin = Origin(param.name.substr(0, param.name.rfind('.')));
    tables.quantize_weight(p, b, latest(p, param.value), int64_t(l), param.name, Lifetime::persistent);
  }
}

}  // namespace

void quantize_linears(Program& program, const PassContext& context) {
  if (context.recipe.precision != "fp8") return;
  const ProgramKind kind = context.kind;
  if (kind != ProgramKind::train && kind != ProgramKind::update && kind != ProgramKind::start) return;
  const std::vector<size_t> list = linears(program);
  if (list.empty())
    fail_usage("no linear layer of this model can run in fp8: none has features in multiples of 16", "--precision",
               "Use --precision bf16, or a model whose width and ff are multiples of 16.");
  check_recipe(context);
  if (kind == ProgramKind::train) return QuantizeLinears(program, context, list).run();
  Quantization tables(program, context, int64_t(list.size()));
  if (kind == ProgramKind::update) end_step(program, tables, list);
  if (weights_of(context) == Fp8Weights::update) quantize_for_next_step(program, tables, list);
}

std::string auto_fp8_weights(int64_t micro_steps) { return micro_steps == 1 ? "again" : "keep"; }

bool has_start(const Recipe& recipe) {
  return recipe.precision == "fp8" && weights_of({recipe, ProgramKind::start}) == Fp8Weights::update;
}

bool keeps_fp8_weights(const Recipe& recipe) {
  return recipe.precision == "fp8" && weights_of({recipe, ProgramKind::train}) != Fp8Weights::again;
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

int64_t fp8_elements(const Program& program) {
  int64_t n = 0;
  for (const Instr& i : program.code) {
    if (is(i, "quantize")) n += program.at(i.in[in::quantize::x]).numel();
    if (is(i, "quantize_blocks")) n += program.at(i.in[in::quantize_blocks::x]).numel();
    if (is(i, "norm_quantize")) n += program.at(i.in[in::norm_quantize::a]).numel();
    if (i.body) n += fp8_elements(*i.body);
  }
  return n;
}

const std::vector<Setting>& fp8_settings() {
  static const std::vector<Setting> rows = {
      pass_setting({.name = "fp8-fast-accumulation",
                    .group = "Precision and memory",
                    .help = "with --precision fp8: the matmuls that a GPU's tensor cores sum with fewer bits than "
                            "fp32: none, the forward half's (forward), or all",
                    .default_value = "none",
                    .choices = {"none", "forward", "all"},
                    .newer = true,
                    .effects = {{Effect::all, Effect::kernels, {}, nullptr, true}}}),
      pass_setting({.name = "fp8-gradients",
                    .group = "Precision and memory",
                    .help = "with --precision fp8: format of gradients, with more range (e5m2) or more precision "
                            "(e4m3)",
                    .default_value = "e5m2",
                    .choices = {"e5m2", "e4m3"},
                    .effects = {{Effect::all, Effect::types, {}, nullptr, true}}}),
      pass_setting({.name = "fp8-history",
                    .group = "Precision and memory",
                    .help = "with --precision fp8: number of past steps whose maximum sets a tensor's scale",
                    .default_value = "1",
                    .min = 1,
                    .max = 1024,
                    .effects = {{Effect::all, Effect::types, {}, nullptr, true}},
                    .type = SettingType::whole}),
      pass_setting({.name = "fp8-margin",
                    .group = "Precision and memory",
                    .help = "with --precision fp8: headroom of a tensor's scale above the maximum of past steps, "
                            "in powers of two",
                    .default_value = "1",
                    .min = 0,
                    .max = 8,
                    .effects = {{Effect::all, Effect::types, {}, nullptr, true}},
                    .type = SettingType::whole}),
      pass_setting({.name = "fp8-recipe",
                    .group = "Precision and memory",
                    .help = "with --precision fp8: a scale for each tensor, from past steps (tensor), or for each "
                            "block of 1 x 128 numbers (weights: 128 x 128), from the tensor itself (block)",
                    .default_value = "tensor",
                    .choices = {"tensor", "block"},
                    .newer = true,
                    .effects = {{Effect::all, Effect::types, {}, nullptr, true}}}),
      pass_setting({.name = "fp8-weights",
                    .group = "Precision and memory",
                    .help = "with --precision fp8: when weights are converted to 8 bits: in the update, for the "
                            "next step (update); in the first micro step, kept until their last use (keep); or in "
                            "each half of each micro step, with less memory (again). Results are equal. auto: again "
                            "without --grad-accumulation. With it keep, or again if only that fits; with a "
                            "recompute budget the one predicted to be faster",
                    .default_value = "auto",
                    .choices = {"auto", "again", "keep", "update"},
                    .newer = true,
                    .effects = {{Effect::all, Effect::instructions, {}, nullptr, true}},
                    .smaller = {"again"}})};
  return rows;
}

}  // namespace crest
