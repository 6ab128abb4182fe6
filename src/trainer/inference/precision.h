// A model's precision outside training.
#pragma once
#include <string>

#include "model/recipe.h"

namespace crest {

// Only training Programs quantize (passes/fp8.cpp): the rest of an fp8 model is bf16.
inline std::string inference_precision(const std::string& given) { return given == "fp8" ? "bf16" : given; }

// "bf16", "bf16 with int8 weights".
inline std::string inference_text(const Recipe& recipe) {
  auto it = recipe.pass_settings.find("weights");
  return recipe.precision + (it == recipe.pass_settings.end() || it->second == "float" ? "" : " with int8 weights");
}

}  // namespace crest
