#include "store/new_record.h"

#include <algorithm>

#include "backend/device_json.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "host/cgroup.h"
#include "plan/automatic.h"
#include "plan/plan_json.h"
#include "plan/recipe_settings.h"

namespace crest {

// Whether a setting is about the joint work of ranks.
static bool between_ranks(const Setting& s) {
  return std::any_of(s.effects.begin(), s.effects.end(), [](auto& e) { return e.factors == Effect::communication; });
}

// Settings without an effect in this recipe: keys of before there were such settings stay.
// data_parallel is older than keys.
static bool has_no_effect(const Setting& s, const Recipe& recipe) {
  if (s.newer && text_of(s.get(s, &recipe)) == s.default_value) return true;
  if (s.key().starts_with("fp8_") && recipe.precision != "fp8") return true;
  if (s.key().starts_with("offload")) {
    auto offload = recipe.pass_settings.find("offload");
    return offload == recipe.pass_settings.end() || offload->second == "none";
  }
  return recipe.all_ranks() == 1 && between_ranks(s) && s.key() != "data_parallel";
}

std::string run_key(const Recipe& given, const Device& device, const std::string& phase, const std::string& variant) {
  Recipe recipe = given;
  if (has_usual_fp8_weights(recipe)) recipe.pass_settings.erase("fp8-weights");  // keys are older than this value
  Json what = settings_of(recipe).json([&](const Setting& s) { return s.identity && !has_no_effect(s, recipe); });
  what["sizes"] = model_to_json(recipe.model);  // a model file may change under the same name
  if (!variant.empty()) what["variant"] = variant;
  return measurement_key(what, device_to_json(device), phase);
}

std::string command_line() {
  std::string text = read_system_file("/proc/self/cmdline"), line = "crest";
  if (!text.empty() && text.back() == '\0') text.pop_back();
  auto words = split(text, '\0');
  for (size_t i = 1; i < words.size(); ++i) line += " " + printed_word(words[i]);
  return line;
}

RunRecord new_record(const std::string& kind, const std::string& name, const Recipe& recipe, const Device& device,
                     const std::string& phase, const Conditions& before) {
  RunRecord r;
  r.kind = kind;
  r.phase = phase;
  r.name = name;
  r.command = command_line();
  r.recipe = recipe_to_json(recipe);
  r.device = device_to_json(device);
  r.key = run_key(recipe, device, phase);
  r.environment = environment_json(device, before);
  return r;
}

}  // namespace crest
