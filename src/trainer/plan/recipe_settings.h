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
// Bound to a recipe. A const recipe cannot be changed.
Settings settings_of(Recipe& recipe);
Settings settings_of(const Recipe& recipe);

// By key. `model` is the model's name, `seq` the length in use.
nlohmann::ordered_json recipe_to_json(const Recipe& recipe);
// The differences from a default recipe of the same model, as flags after --model=MODEL: for
// commands suggested or started by Crest. model: use this instead of the model given by the user.
std::vector<std::string> recipe_flags(const Recipe& recipe, const std::string& model = "");
// The same, for the recipe of a record.
std::vector<std::string> recipe_flags(const nlohmann::ordered_json& recipe);

// The values given for a recipe, as text. finish() loads the model and fills the Recipe (not yet
// resolved for a device).
struct RecipeOptions {
  GivenSettings given;
  bool has(const std::string& setting) const { return given.count(setting) && !given.at(setting).empty(); }
  // The number of processes from --ranks or --mesh.
  int processes() const;
  // default_model is used if --model is absent.
  Recipe finish(const std::string& default_model) const;
};

// The default preset of a recipe: micro on a GPU, nano on the CPU.
const char* default_model(const Device& device);

}  // namespace crest
