// Setting --optimizer: turns gradients into new weights. The optimizers are in optimizer_*.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/error.h"
#include "core/text.h"
#include "model/parameters.h"
#include "passes/optimizers.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "passes/shard.h"

namespace crest {

namespace {

const std::vector<Optimizer>& optimizers() {
  static const std::vector<Optimizer> all = [] {
    std::vector<Optimizer> list;
    for (auto* family : {elementwise_optimizers, unfused_optimizers, adafactor_optimizers, muon_optimizers})
      for (const Optimizer& o : family()) list.push_back(o);
    return list;
  }();
  return all;
}

const Optimizer& chosen(const Recipe& r) {
  for (auto& o : optimizers())
    if (r.optimizer == o.name) return o;
  fail_internal(fmt::format("the optimizer '{}' was not checked", printable(r.optimizer)));
}

// The optimizer that updates a parameter.
const Optimizer& optimizer_of(const Optimizer& o, const Param& p) {
  return o.takes && !o.takes(p) ? optimizers().front() : o;
}

void check_weights(const Optimizer& o, const Program& program) {
  for (auto& q : program.params)
    if (!q.frozen && o.master == Master::none && program.at(q.value).dtype != DType::bf16)
      fail_usage(fmt::format("{} updates bf16 weights, but the weights of this recipe are {}", o.name,
                             name(program.at(q.value).dtype)),
                 "--optimizer", "Add --precision bf16 --policy pure, or use adamw, which keeps fp32 master weights.");
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

// "": all weights have the recipe's precision.
std::string product_precision(const Program& program) {
  return program.properties.has(product_precision_property) ? program.properties.text(product_precision_property) : "";
}

}  // namespace

std::vector<OptimizerState> optimizer_states(const PassContext& context, const Param& param, const Shape& shape,
                                             DType weight) {
  const Optimizer& o = optimizer_of(chosen(context.recipe), param);
  std::vector<OptimizerState> states;
  bool split = o.master == Master::split && weight == DType::bf16 && context.setting("master-weights") == "split";
  if (o.master != Master::none && is_half(weight)) states.push_back({"master", split ? DType::u16 : DType::f32, shape});
  for (const StateRow& row : o.states) {
    if (row.momentum && context.recipe.beta1 == 0) continue;
    OptimizerState s{row.name, row.dtype, shape};
    if (row.per == Per::row) s.shape = {shape[0]};
    if (row.per == Per::column) s.shape = {shape[1]};
    if (row.per == Per::block) {
      auto block = int64_t(context.number("state-block"));
      s.shape = {(shape.numel() + block - 1) / block};
    }
    states.push_back(s);
  }
  return states;
}

bool is_owned(const PassContext& context, const Param& param) {
  const Optimizer& o = chosen(context.recipe);
  return o.owned && o.takes(param) && sharding_of(context) != Sharding::none;
}

Update::Update(Builder& b, const Recipe& recipe, const Param& param, const std::vector<OptimizerState>& states,
               ValueId scalars, ValueId gradient)
    : recipe(recipe), b(b), param(param), scalars(scalars), gradient(gradient) {
  for (auto& s : states) {
    states_.emplace_back(s.name, b.declare(fmt::format("{}.{}", param.name, s.name), s.dtype, s.shape, Role::state,
                                           Lifetime::persistent));
    if (s.shape == b.at(param.value).shape)
      b.program().at(states_.back().second).placement = b.at(param.value).placement;
    if (states_.back().first == "master") copy = param.value;
  }
}

ValueId Update::state(std::string_view name) const {
  for (auto& [known, value] : states_)
    if (known == name) return value;
  fail_internal(fmt::format("the optimizer of {} declares no state '{}'", param.name, name));
}

DType Update::product_dtype() const {
  std::string precision = product_precision(b.program());
  return precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : b.at(param.value).dtype;
}
bool Update::product_tf32() const { return product_precision(b.program()) == "tf32"; }

Attrs Update::attrs() const {
  Attrs a;
  a.set("weight_decay", decay());
  if (param.lr_group) a.set("lr_factor", param.lr_factor);
  return a;
}

const std::vector<LearningRateGroup>& learning_rate_groups() {
  static const std::vector<LearningRateGroup> all = {
      {"embedding", "lr-embedding", "", "",
       [](const Param& p) { return p.name == "wte.weight" || p.name == "wpe.weight"; }},
      {"head", "lr-head", "the head of this model is its token embedding (tied = true)",
       "Set --lr-embedding, or train a model with tied = false.",
       [](const Param& p) { return p.name == "lm_head.weight"; }},
      {"vectors", "lr-vectors", "this model has neither norms with weights nor biases", "Leave out --lr-vectors.",
       [](const Param& p) { return p.shape.rank() == 1; }}};
  return all;
}

// 0: no own rate.
static double rate_of(const Recipe& recipe, const LearningRateGroup& group) {
  auto given = recipe.pass_settings.find(group.setting);
  return given == recipe.pass_settings.end() ? 0 : std::strtod(given->second.c_str(), nullptr);
}

std::string learning_rates_text(const Recipe& recipe) {
  std::vector<std::string> rates;
  for (auto& group : learning_rate_groups())
    if (const double rate = rate_of(recipe, group); rate > 0) rates.push_back(fmt::format("{} {}", group.name, rate));
  return join(rates, ", ");
}

double learning_rate_scale(const std::string& name) {
  for (auto& o : optimizers())
    if (name == o.name) return o.rate;
  return 1;
}

// For every Program, because groups of parameters depend on it.
static void set_learning_rates(Program& program, const PassContext& context) {
  const Recipe& r = context.recipe;
  for (size_t g = 0; g < learning_rate_groups().size(); ++g) {
    const LearningRateGroup& group = learning_rate_groups()[g];
    const double rate = rate_of(r, group);
    if (rate == 0) continue;
    std::vector<Param> all = parameters_of(r.model);  // a pipeline stage has some of them
    std::erase_if(all, [](const Param& p) { return p.frozen; });
    if (std::none_of(all.begin(), all.end(), group.has))
      fail_usage(group.lack, std::string("--") + group.setting, group.hint);
    const double base = r.lr > 0 ? r.lr : default_learning_rate(r);
    for (Param& p : program.params)
      if (group.has(p)) p.lr_group = int(g) + 1, p.lr_factor = rate / base;
  }
}

double default_learning_rate(const Recipe& recipe) {
  double rate = std::clamp(6e-4 * std::sqrt(768.0 / double(recipe.model.width)), 1e-4, 3e-3);
  if (recipe.model.lora.rank) rate = adapter_rate;
  double tokens = double(std::min(recipe.tokens_per_step(), enough_tokens));
  return rate * std::sqrt(tokens / double(enough_tokens)) * learning_rate_scale(recipe.optimizer);
}

void optimizer(Program& program, const PassContext& context) {
  set_learning_rates(program, context);
  const Optimizer& o = chosen(context.recipe);
  auto block = int64_t(context.number("state-block"));
  bool blocks = std::any_of(o.states.begin(), o.states.end(), [](auto& row) { return row.per == Per::block; });
  if (blocks) program.properties.set(state_block_property, block);  // every Program: groups are aligned to it
  if (context.kind != ProgramKind::update) return;
  check_weights(o, program);
  Builder b(program);
  b.phase = Phase::update;
  ValueId scalars = latest(program, program.find("scalars"));
  std::vector<ValueId> gradients = required_gradients(program, "optimizer");
  for (size_t q = 0; q < program.params.size(); ++q) {
    const Param& p = program.params[q];
    if (p.frozen) continue;
    b.origin = Origin(p.name.substr(0, p.name.rfind('.')));
    const Value& weight = program.at(p.value);
    std::vector<OptimizerState> states = optimizer_states(context, p, weight.shape, weight.dtype);
    Update update(b, context.recipe, p, states, scalars, gradients[q]);
    optimizer_of(o, p).emit(update);
  }
  finish_step(b, scalars);
}

const std::vector<Setting>& optimizer_settings() {
  const char* group = "Optimizer";
  static const std::vector<Setting> rows = [&] {
    std::vector<const char*> names;
    for (auto& o : optimizers()) names.push_back(o.name);
    const Effect update = {Effect::all, Effect::anywhere, {}, "update"};
    auto rate = [&](const char* name, const char* help) {
      return pass_setting({.name = name,
                           .group = group,
                           .help = help,
                           .default_value = "0",
                           .min = 0,
                           .max = 1e6,
                           .newer = true,
                           .type = SettingType::number});
    };
    return std::vector<Setting>{
        setting<&Recipe::optimizer>({.name = "optimizer",
                                     .group = group,
                                     .help = "optimizer that updates the weights",
                                     .choices = names,
                                     .common = true,
                                     .resume = OnResume::refuses,
                                     .effects = {update}}),
        setting<&Recipe::weight_decay>({.name = "weight-decay",
                                        .group = group,
                                        .help = "weight decay of matrices per step, times the learning rate",
                                        .min = 0}),
        setting<&Recipe::beta1>({.name = "beta1",
                                 .group = group,
                                 .help = "decay rate of the first moment",
                                 .min = 0,
                                 .max = 1,
                                 .below = true}),
        setting<&Recipe::beta2>({.name = "beta2",
                                 .group = group,
                                 .help = "decay rate of the second moment",
                                 .min = 0,
                                 .max = 1,
                                 .below = true}),
        setting<&Recipe::eps>({.name = "eps",
                               .group = group,
                               .help = "added to the square root of the second moment",
                               .min = 0,
                               .above = true}),
        rate("lr-embedding",
             "peak learning rate of the token embedding and learned positions, on the schedule of --lr; 0: as --lr"),
        rate("lr-head", "peak learning rate of an output head of its own, on the schedule of --lr; 0: as --lr"),
        rate("lr-vectors", "peak learning rate of norms and biases, on the schedule of --lr; 0: as --lr"),
        pass_setting({.name = "state-block",
                      .group = group,
                      .help = "adamw-8bit, adamw-fp8: number of state elements per scale",
                      .unit = "elements",
                      .default_value = "256",
                      .choices = {"64", "128", "256", "512", "1024", "2048", "4096"},
                      .resume = OnResume::refuses,
                      .effects = {update}}),
        pass_setting(
            {.name = "master-weights",
             .group = group,
             .help = "fp32 master weights of bf16 weights: the missing 16 bits next to each weight, if the update is "
                     "element-wise (split), or complete fp32 copies (fp32)",
             .default_value = "split",
             .choices = {"split", "fp32"},
             .effects = {update},
             .smaller = {"split"}}),
    };
  }();
  return rows;
}

}  // namespace crest
