// What several commands print about recipes, devices and memory as JSON; keys in docs/contract.md.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/recipe.h"
#include "plan/memory_plan.h"

namespace crest {

// All levers and sizes; names as the flags with '_', `model` is the model's name and `seq` the length really used.
nlohmann::ordered_json recipe_to_json(const Recipe& recipe);
// The sizes of a model; keys as in its TOML file, and its parameters.
nlohmann::ordered_json model_to_json(const ModelConfig& model);
// All but the model as the flags that make it: {"--batch=8", "--attention=flash", ...}; for a process of its own.
std::vector<std::string> recipe_flags(const Recipe& recipe);
nlohmann::ordered_json device_to_json(const Device& device);
// {"weights": bytes, ...}: all categories, `times` each (ranks).
nlohmann::ordered_json categories_to_json(const CategoryBytes& bytes, int64_t times = 1);
// Prints the document to standard output; text from files that is no UTF-8 is replaced.
void print_json(const nlohmann::ordered_json& document);

}  // namespace crest
