// Forward Programs of some layers, for pipeline stages. Building 126 layers takes most of the time
// of compiling two.
#pragma once
#include "model/gpt.h"

namespace crest {

struct LayerRange {
  int64_t first = 0, end = 0;
};

// build_model() without the other layers and their parameters: their input goes to the next layer,
// or to the head. Everything else, such as names and numbers of dropout, stays the same.
Program build_layers(const ModelConfig& config, const ForwardShape& shape, LayerRange range);

}  // namespace crest
