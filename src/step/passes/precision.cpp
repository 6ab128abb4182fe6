// Settings --precision, --policy, --grad-dtype. pure: 16-bit weights and activations, fp32 masters
// in the optimizer. autocast: fp32 weights; matmuls and attention on 16-bit casts; norms, softmax
// and loss in fp32 (the lists of PyTorch's autocast).
#include <fmt/format.h>

#include <map>

#include "core/error.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

void pure(Program& program, DType half) {
  for (auto& q : program.params) program.at(q.value).dtype = half;
  for (auto& v : program.values)
    if (v.role == Role::cache) v.dtype = half;
  for (auto& instr : program.code)
    if (is(instr, "receive")) instr.attrs.set("dtype", name(half));
  reinfer(program);
}

class Autocast {
 public:
  Autocast(Program& program, DType half, bool first) : program_(program), w_(program), half_(half), first_(first) {}

  void run() {
    for (auto& v : program_.values)
      if (v.role == Role::cache) v.dtype = half_;
    for (auto& old : w_.old) {
      Instr instr = old;
      std::optional<DType> wanted;
      if (instr.op->half_compute || cached(instr))
        wanted = half_;
      else if (instr.op->full_precision || mixed(instr))
        wanted = DType::f32;
      if (wanted)
        for (ValueId& v : instr.in) v = converted(instr, v, *wanted);
      w_.keep(std::move(instr));
      reinfer(program_, program_.code.back());
    }
    w_.finish();
  }

 private:
  // Whether an operation uses a key/value cache, and so the cache's dtype.
  bool cached(const Instr& instr) const {
    for (ValueId v : instr.in)
      if (v != no_value && program_.at(v).role == Role::cache) return true;
    return false;
  }
  bool mixed(const Instr& instr) const {
    bool f32 = false, half = false;
    for (ValueId v : instr.in) {
      if (v == no_value || program_.at(v).role == Role::cache) continue;
      f32 |= program_.at(w_.now(v)).dtype == DType::f32, half |= program_.at(w_.now(v)).dtype == half_;
    }
    return f32 && half;
  }

  ValueId converted(const Instr& user, ValueId v, DType to) {
    if (v == no_value || !is_float(program_.at(w_.now(v)).dtype) || program_.at(w_.now(v)).dtype == to) return v;
    v = w_.now(v);
    auto [it, added] = casts_.emplace(std::pair{v, to}, no_value);
    if (!added) return it->second;
    Builder& b = w_.build(user);
    if (program_.at(v).role == Role::weight) {
      // A weight is cast once per step. The first micro step writes the copy, later ones read it.
      std::string copy = fmt::format("{}.{}", program_.at(v).name, name(to));
      if (first_) {
        it->second = b.emit1("cast", {v}, Attrs().set("dtype", name(to)));
        Value& c = program_.at(it->second);
        c.name = copy, c.role = Role::weight, c.lifetime = Lifetime::step;
      } else {
        it->second = b.declare(copy, to, program_.at(v).shape, Role::weight, Lifetime::step);
        program_.at(it->second).placement = program_.at(v).placement;
      }
    } else {
      it->second = b.emit1("cast", {v}, Attrs().set("dtype", name(to)));
    }
    return it->second;
  }

  Program& program_;
  Rewriter w_;
  DType half_;
  bool first_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
};

}  // namespace

DType weight_dtype(const Recipe& r) {
  if (r.policy != "pure" || r.precision == "fp32" || r.precision == "tf32") return DType::f32;
  return r.precision == "fp16" ? DType::f16 : DType::bf16;  // fp8 starts from bf16 (passes/fp8.cpp)
}

void set_precision(Program& program, const PassContext& context) {
  const Recipe& r = context.recipe;
  if (r.precision == "fp32") return;
  // The precision of an optimizer's own matmuls. Other Programs show it in their operands; an
  // update Program does not.
  bool own = context.kind == ProgramKind::update && (r.precision == "tf32" || r.policy == "autocast");
  if (own) program.properties.set(product_precision_property, r.precision);
  if (r.precision == "tf32") {
    for (auto& instr : program.code)
      if (instr.op->half_compute) instr.attrs.set("tf32", 1);
    return;
  }
  if (r.precision == "auto") fail_internal("precision auto was not resolved for a device");
  DType half = r.precision == "fp16" ? DType::f16 : DType::bf16;
  if (half == DType::f16) program.properties.set("loss_scale", r.loss_scale);
  if (r.grad_dtype == "bf16") program.properties.set("grad_dtype", "bf16");
  if (r.policy == "pure")
    pure(program, weight_dtype(r));
  else
    Autocast(program, half, context.first || context.kind != ProgramKind::train).run();
}

const std::vector<Setting>& precision_settings() {
  const char* group = "Precision and memory";
  static const std::vector<Setting> rows = {
      setting<&Recipe::precision>(
          {.name = "precision",
           .group = group,
           .help = "arithmetic of matmuls; auto: bf16 if the device supports it and, on a CPU, is "
                   "faster, else fp32; fp8: bf16 with 8-bit floats in the linear layers of the blocks",
           .choices = {"auto", "fp32", "tf32", "bf16", "fp16", "fp8"},
           .common = true,
           .effects = {{Effect::rate, Effect::types}, {Effect::all, Effect::types, {}, nullptr, true}},
           .smaller = {"bf16"}}),
      setting<&Recipe::policy>(
          {.name = "policy",
           .group = group,
           .help = "for bf16 and fp16: 16-bit weights with fp32 master weights (pure), or fp32 weights "
                   "cast on use (autocast)",
           .choices = {"pure", "autocast"},
           .effects = {{Effect::rate, Effect::types}, {Effect::all, Effect::changed, {}, nullptr, true}},
           .smaller = {"pure", "autocast"}}),
      setting<&Recipe::grad_dtype>({.name = "grad-dtype",
                                    .group = group,
                                    .help = "dtype of the gradients, with --policy pure",
                                    .choices = {"fp32", "bf16"},
                                    .effects = {{Effect::all, Effect::types_or_amount, {}, nullptr, true}},
                                    .smaller = {"bf16"}}),
      setting<&Recipe::loss_scale>({.name = "loss-scale",
                                    .group = group,
                                    .help = "fp16: initial loss scale, adapted during training",
                                    .min = 1,
                                    .max = 3.4028234663852886e38}),
  };
  return rows;
}

}  // namespace crest
