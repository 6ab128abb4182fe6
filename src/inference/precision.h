// What a model computes in outside training.
#pragma once
#include <string>

namespace crest {

// Only training Programs quantize (passes/fp8.cpp): the rest of an fp8 model is bf16.
inline std::string inference_precision(const std::string& given) { return given == "fp8" ? "bf16" : given; }

}  // namespace crest
