// How the stages of a pipeline spent a step, as text.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace crest {

// A table of the stages, and the split of the step, of the document of train/pipeline_times.h.
std::string pipeline_text(const nlohmann::ordered_json& json, size_t width, bool color);

}  // namespace crest
