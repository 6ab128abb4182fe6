// The settings of a recipe: those of the model, of the passes, and of choosing kernels.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/recipe.h"
#include "settings/settings.h"

namespace crest {

// All rows, in the order of help and of JSON.
const std::vector<Setting>& recipe_settings();
// Bound to a recipe. Of a const one nothing may be set.
Settings settings_of(Recipe& recipe);
Settings settings_of(const Recipe& recipe);

// By key; `model` is the model's name, `seq` the length really used.
nlohmann::ordered_json recipe_to_json(const Recipe& recipe);
// What differs from a recipe of the same model of which nothing was said, as flags behind --model=MODEL; for commands
// that Crest suggests or starts. model: of the command instead of what the recipe's user gave.
std::vector<std::string> recipe_flags(const Recipe& recipe, const std::string& model = "");
// The same for the recipe of a record.
std::vector<std::string> recipe_flags(const nlohmann::ordered_json& recipe);

// What was given of a recipe, as text; finish() loads the model and fills the Recipe (not yet resolved
// for a device).
struct RecipeOptions {
  GivenSettings given;
  bool has(const std::string& setting) const { return given.count(setting) && !given.at(setting).empty(); }
  // default_model is taken when --model is absent.
  Recipe finish(const std::string& default_model) const;
};

// The preset of a recipe that names none: micro on a GPU, nano on the CPU.
const char* default_model(const Device& device);

}  // namespace crest
