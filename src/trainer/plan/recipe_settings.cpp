#include "plan/recipe_settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "passes/pass.h"

namespace crest {

namespace {

// OP=PATTERN, repeatable.
SettingValue kernel_pins(const Setting&, const void* object) {
  std::vector<std::string> pins;
  for (auto& [op, pattern] : static_cast<const Recipe*>(object)->kernels) pins.push_back(op + "=" + pattern);
  return pins;
}

void set_kernel_pins(const Setting& row, void* object, const SettingValue& value) {
  auto& kernels = static_cast<Recipe*>(object)->kernels;
  kernels.clear();
  for (auto& pin : std::get<std::vector<std::string>>(value)) {
    size_t equals = pin.find('=');
    if (equals == std::string::npos || equals == 0)
      fail_usage("'" + printable(pin) + "' is not OP=PATTERN", row.flag(), allowed(row));
    kernels.emplace_back(pin.substr(0, equals), pin.substr(equals + 1));
  }
}

std::vector<Setting> kernel_settings() {
  const char* group = "Kernels and passes";
  std::vector<const char*> passes;
  for (auto& pass : pipeline()) passes.push_back(pass.name);
  Setting pins = {.name = "kernel",
                  .group = group,
                  .help = "pin the kernels of an operation: OP=PATTERN; repeatable",
                  .example = "attention=cpu.*.reference",
                  .pairs = true,
                  .effects = {{Effect::all, Effect::kernels, {}, nullptr, true}}};
  pins.type = SettingType::list, pins.get = kernel_pins, pins.set = set_kernel_pins;
  return {pins,
          setting<&Recipe::disabled_passes>({.name = "disable-pass",
                                             .group = group,
                                             .help = "switch a pass off; repeatable",
                                             .choices = passes,
                                             .effects = {{Effect::all, Effect::changed, {}, nullptr, true},
                                                         {Effect::all, Effect::kernels, {}, nullptr, true}}}),
          setting<&Recipe::deterministic>(
              {.name = "deterministic",
               .group = group,
               .help = "choose nothing by timing, and use only kernels with bitwise identical results in "
                       "every run (on a CPU, all of them)",
               .effects = {{Effect::all, Effect::kernels, {}, nullptr, true}}})};
}

std::vector<Setting> launch_settings() {
  const char* group = "Launches (GPU)";
  return {setting<&Recipe::graphs>(
              {.name = "graphs",
               .group = group,
               .help = "launch a step as captured CUDA graphs (on) or kernel by kernel (off); a profile "
                       "without graphs times instructions one by one",
               .choices = {"on", "off"},
               .identity = false,
               .resume = OnResume::accepts,
               .effects = {{Effect::all, Effect::anywhere, {}, nullptr, true}}}),
          setting<&Recipe::programmatic_launch>(
              {.name = "programmatic-launch",
               .group = group,
               .help = "start a kernel while the one before it runs (compute capability 9.0 or newer, "
                       "Crest's own kernels)",
               .choices = {"on", "off"},
               .identity = false,
               .resume = OnResume::accepts,
               .effects = {{Effect::all, Effect::anywhere, {}, nullptr, true}}}),
          setting<&Recipe::nvtx>(
              {.name = "nvtx",
               .group = group,
               .help = "mark steps, Programs and instructions as NVTX ranges, for Nsight Systems; a captured "
                       "graph is one range, so --graphs off is needed to see instructions",
               .choices = {"on", "off"},
               .identity = false,
               .resume = OnResume::accepts})};
}

}  // namespace

const std::vector<Setting>& recipe_settings() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> rows = model_settings();
    for (auto& more : {pass_settings(), kernel_settings(), launch_settings()})
      rows.insert(rows.end(), more.begin(), more.end());
    return rows;
  }();
  return all;
}

Settings settings_of(Recipe& recipe) { return Settings().add(recipe_settings(), &recipe); }
Settings settings_of(const Recipe& recipe) { return settings_of(const_cast<Recipe&>(recipe)); }

nlohmann::ordered_json recipe_to_json(const Recipe& recipe) { return settings_of(recipe).json(); }

namespace {

// A recipe with only the model set, if the model can be found here.
Recipe plain_recipe(const std::string& model, const ModelConfig& otherwise) {
  Recipe recipe;
  recipe.model = otherwise;
  settings_of(recipe).apply(preset_settings(model, {}));
  try {
    recipe.model = load_model_config(model);
  } catch (const Error&) {  // from another program or machine
  }
  return recipe;
}

// 1.0 equals 1.
bool is_same(const Setting& row, const std::string& a, const std::string& b) {
  try {
    return text_of(parse_setting(row, a)) == text_of(parse_setting(row, b));
  } catch (const Error&) {  // from another build
    return a == b;
  }
}

}  // namespace

std::vector<std::string> recipe_flags(const Recipe& recipe, const std::string& model) {
  std::string source = !model.empty() ? model : recipe.model_source.empty() ? recipe.model.name : recipe.model_source;
  Recipe plain = plain_recipe(source, recipe.model);
  std::vector<std::string> flags = {"--model=" + source};
  Settings defaults = settings_of(plain);
  for (auto& flag : settings_of(recipe).flags(&defaults))
    if (!flag.starts_with("--model=")) flags.push_back(flag);
  return flags;
}

std::vector<std::string> recipe_flags(const nlohmann::ordered_json& recipe) {
  std::string model = recipe.contains("model") ? texts_of(recipe["model"]).back() : "";
  Recipe plain = plain_recipe(model, {});
  std::vector<std::string> flags;
  for (auto& row : settings_of(plain).rows()) {
    std::string key = row.setting->key();
    if (!recipe.contains(key) || recipe[key].is_null()) continue;
    std::vector<std::string> texts = texts_of(recipe[key]);
    bool model_row = key == "model", list = row.setting->type == SettingType::list;
    if (!model_row && !list && texts == std::vector<std::string>{row.text()}) continue;
    for (auto& text : texts)
      if (model_row || list || !is_same(*row.setting, text, row.text()))
        flags.push_back(row.setting->type == SettingType::truth ? row.setting->flag()
                                                                : row.setting->flag() + "=" + text);
  }
  return flags;
}

// --ranks 1 --mesh data=4 is an error, but a recipe cannot tell --ranks 1 from its default.
static void check_same_ranks(const RecipeOptions& o, const Recipe& r) {
  if (!o.has("mesh") || !o.has("ranks")) return;
  Recipe alone;
  settings_of(alone).apply({{"ranks", o.given.at("ranks")}});
  if (alone.ranks == r.ranks) return;
  fail_usage(fmt::format("--ranks {} and --mesh {} were given", printable(o.given.at("ranks").back()),
                         printable(o.given.at("mesh").back())),
             "--mesh", "Leave one of the two out.");
}

int RecipeOptions::processes() const {
  Recipe r;
  GivenSettings counts;
  std::vector<const char*> names = {"ranks"};
  if (has("mesh")) names.insert(names.end(), {"data-parallel", "mesh"});
  for (const char* name : names)
    if (has(name)) counts[name] = given.at(name);
  settings_of(r).apply(counts);
  check_same_ranks(*this, r);
  return r.ranks;
}

SettingsOfPreset RecipeOptions::of_preset(const GivenSettings& more) const {
  if (!has("model")) return {};
  GivenSettings all = given;
  all.insert(more.begin(), more.end());
  return preset_settings(given.at("model").back(), all);
}

Recipe RecipeOptions::finish(const std::string& default_model) const {
  GivenSettings all = given;
  if (!has("model")) all["model"] = {default_model};
  for (auto& [name, texts] : of_preset()) all[name] = texts;
  Recipe r;
  settings_of(r).apply(all);
  check_same_ranks(*this, r);
  return r;
}

const char* default_model(const Device& device) { return device.kind == "cuda" ? "micro" : "nano"; }

}  // namespace crest
