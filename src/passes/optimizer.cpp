// Lever --optimizer: the instructions that turn gradients into new weights. The table below is the list of optimizers;
// what one does with a parameter is a function in optimizer_*.cpp.
#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "passes/optimizers.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

struct Optimizer {
  const char* name;
  EmitUpdate emit;
  bool bf16_weights = false;  // no fp32 master: the weights themselves are bf16
  bool blocks = false;        // state in blocks of --state-block elements
};

constexpr Optimizer optimizers[] = {
    {"adamw", emit_adamw},
    {"adamw-unfused", emit_adamw_unfused},
    {"adamw-bf16", emit_adamw_bf16, true},
    {"adamw-bf16-kahan", emit_adamw_bf16_kahan, true},
    {"adamw-bf16-stochastic", emit_adamw_bf16_stochastic, true},
    {"adamw-8bit", emit_adamw_8bit, false, true},
    {"sgd", emit_sgd},
    {"lion", emit_lion},
    {"adafactor", emit_adafactor},
    {"muon", emit_muon},
};

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (auto& o : optimizers) list.push_back(o.name);
  return list;
}

const Optimizer& chosen(const Recipe& r) {
  for (auto& o : optimizers)
    if (r.optimizer == o.name) return o;
  fail_usage(fmt::format("'{}' is not a value of --optimizer", printable(r.optimizer)), "--optimizer",
             fmt::format("{} Values: {}.", did_you_mean(r.optimizer, names()), optimizer_names()));
}

int64_t state_block(const PassContext& context) {
  double n = context.number("state-block");
  if (n != 64 && n != 128 && n != 256 && n != 512 && n != 1024 && n != 2048 && n != 4096)
    fail_usage(fmt::format("'{}' is no block of 8-bit state", printable(context.lever("state-block"))), "--state-block",
               "It must be a power of two between 64 and 4096.");
  return int64_t(n);
}

bool splits_masters(const PassContext& context) {
  std::string value = context.lever("master-weights");
  if (value != "split" && value != "fp32")
    fail_usage(fmt::format("'{}' is not a value of --master-weights", printable(value)), "--master-weights",
               "Values: split, fp32.");
  return value == "split";
}

void check_weights(const Optimizer& o, const Program& program) {
  for (auto& q : program.params)
    if (o.bf16_weights && program.at(q.value).dtype != DType::bf16)
      fail_usage(fmt::format("--optimizer {} updates bf16 weights, and those of this recipe are {}", o.name,
                             name(program.at(q.value).dtype)),
                 "--optimizer", "Add --precision bf16 --policy pure, or use adamw, which keeps fp32 masters.");
}

void finish_step(Builder& b, ValueId scalars) {
  b.origin = Origin("step");
  Attrs a;
  a.set("dynamic", b.program().properties.has("loss_scale"))
      .set("growth_interval", 2000)
      .set("min_scale", 1.0)
      .set("max_scale", 0x1p24);
  b.emit("finish_step", {scalars}, a);
}

// "" where all weights have the recipe's precision.
std::string product_precision(const Program& program) {
  return program.properties.has(product_precision_property) ? program.properties.word(product_precision_property) : "";
}

}  // namespace

DType Update::product_dtype() const {
  std::string precision = product_precision(b.program());
  return precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : weight_dtype();
}
bool Update::product_tf32() const { return product_precision(b.program()) == "tf32"; }

std::string optimizer_names() { return join(names(), ", "); }

void optimizer(Program& program, const PassContext& context) {
  const Optimizer& o = chosen(context.recipe);
  int64_t block = state_block(context);
  if (o.blocks) program.properties.set(state_block_property, block);  // in every Program: groups are aligned to it
  bool split = splits_masters(context);
  if (context.kind != ProgramKind::update) return;
  check_weights(o, program);
  Builder b(program);
  b.phase = Phase::update;
  ValueId scalars = latest(program, program.find("scalars"));
  std::vector<ValueId> gradients = required_gradients(program, "optimizer");
  for (size_t q = 0; q < program.params.size(); ++q) {
    const Param& p = program.params[q];
    b.origin = Origin(p.name.substr(0, p.name.rfind('.')));
    Update update(b, context.recipe, split, p, scalars, gradients[q]);
    o.emit(update);
  }
  finish_step(b, scalars);
}

}  // namespace crest
