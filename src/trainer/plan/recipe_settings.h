// The settings of a recipe: model, passes, and the choice of kernels.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/recipe.h"
#include "settings/settings.h"

namespace crest {

// All rows, in the order of help and JSON.
const std::vector<Setting>& recipe_settings();
// The settings of a recipe. A const recipe cannot be changed.
Settings settings_of(Recipe& recipe);
Settings settings_of(const Recipe& recipe);

// By key. `model` is the name, `seq` the length in use.
nlohmann::ordered_json recipe_to_json(const Recipe& recipe);
// The differences from a default recipe of the same model, as flags after --model=MODEL, for
// commands suggested or started by Crest. model: replaces the user's model.
std::vector<std::string> recipe_flags(const Recipe& recipe, const std::string& model = "");
// For the recipe of a record.
std::vector<std::string> recipe_flags(const nlohmann::ordered_json& recipe);

// A recipe's values as text. finish() loads the model and fills the Recipe (not yet resolved for a
// device).
struct RecipeOptions {
  GivenSettings given;
  bool has(const std::string& setting) const { return given.count(setting) && !given.at(setting).empty(); }
  // What the model's preset brings along, of the recipe and of training: settings that neither
  // `given` nor `more` has. finish() applies the recipe's.
  SettingsOfPreset of_preset(const GivenSettings& more = {}) const;
  // Number of processes, from --ranks or --mesh.
  int processes() const;
  // default_model applies if --model is absent.
  Recipe finish(const std::string& default_model) const;
};

// micro on a GPU, nano on the CPU.
const char* default_model(const Device& device);

}  // namespace crest
