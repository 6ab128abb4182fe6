// Lever --weights int8, for Programs that do not train: the weights of linear layers, and the
// embedding where it is also the head, are integers of 8 bits with a scale for each row, that is,
// each output of a layer (Dettmers et al. 2022, section 3; here activations stay as they are).
// Loading a model makes them (run/parameters.cpp).
#include <map>

#include "core/error.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class Int8Weights {
 public:
  explicit Int8Weights(Program& program) : p_(program), w_(program) {}

  void run() {
    find();
    for (const Instr& instr : w_.old) {
      Instr changed = instr;
      if (is(instr, "linear") && scale_.count(instr.in[in::linear::w])) {
        ValueId w = instr.in[in::linear::w];
        ValueId bias = instr.in.size() > in::linear::b ? instr.in[in::linear::b] : no_value;
        changed.op = &op("linear_int8");
        changed.in = {instr.in[in::linear::x], w, scale_.at(w), bias};
        if (bias == no_value) changed.in.pop_back();
        changed.attrs = Attrs();
      } else if (is(instr, "embedding") && scale_.count(instr.in[in::embedding::table])) {
        ValueId table = instr.in[in::embedding::table];
        changed.op = &op("embedding_int8");
        changed.in = {instr.in[in::embedding::ids], table, scale_.at(table)};
        changed.attrs = Attrs().set("dtype", name(p_.at(instr.out[0]).dtype));
      }
      w_.keep(std::move(changed));
    }
    w_.finish();
  }

 private:
  // The matrices that linear layers multiply by.
  void find() {
    Builder b(p_);
    for (const Instr& instr : w_.old) {
      if (!is(instr, "linear")) continue;
      ValueId w = instr.in[in::linear::w];
      if (p_.at(w).role != Role::weight || scale_.count(w)) continue;
      std::string called = p_.at(w).name + ".scale";
      p_.at(w).dtype = DType::i8;
      scale_[w] = b.declare(called, DType::f32, {p_.at(w).shape[0]}, Role::weight, Lifetime::persistent);
    }
  }

  Program& p_;
  Rewriter w_;
  std::map<ValueId, ValueId> scale_;  // by weight
};

}  // namespace

void quantize_weights(Program& program, const PassContext& context) {
  if (context.lever("weights") != "int8") return;
  if (context.kind == ProgramKind::train || context.kind == ProgramKind::update)
    fail_usage("weights of int8 cannot be trained", "--weights int8",
               "Use it in crest sample, crest eval, or with --phase forward.");
  if (context.recipe.policy != "pure")
    fail_usage("--weights int8 needs --policy pure", "--policy", "Leave out --policy.");
  Int8Weights(program).run();
}

const std::vector<Setting>& weights_settings() {
  static const std::vector<Setting> rows = {
      lever({.name = "weights",
             .group = "Precision and memory",
             .help = "weights of a model that is not trained: as --precision says, or int8 with a scale for each "
                     "output of a layer",
             .otherwise = "precision",
             .choices = {"precision", "int8"},
             .effects = {{Effect::all, Effect::types, {}, nullptr, true}},
             .type = SettingType::text})};
  return rows;
}

}  // namespace crest
