// Divides a model's layers among pipeline stages (--mesh pipeline, --stages).
#pragma once
#include <cstdint>
#include <vector>

#include "passes/pass.h"

namespace crest {

// Time of forward plus backward pass, in any unit: for each layer, for the embedding and for the
// head.
struct StageCosts {
  double before = 0, behind = 0;
  std::vector<double> layers;
};
// In FLOPs, for a recipe without measurements.
StageCosts flops_of_layers(const Recipe& recipe);
// Layers of each stage, at least one, chosen to minimize the slowest stage's time.
std::vector<int64_t> cut_layers(const StageCosts& costs, int stages);

// Parts of the model. The schedule decides how many each rank of the pipeline axis has (chunks).
// Stage s is chunk s / ranks of rank s % ranks.
int stage_count(const Recipe& recipe);
int chunks_of_rank(const Recipe& recipe);
// --schedule-pipeline.
enum class PipelineKind : uint8_t { one_f_one_b, interleaved, zero_bubble };
PipelineKind pipeline_kind(const Recipe& recipe);
// The error in a schedule; "": none.
std::string wrong_schedule(std::string_view text);
// Layers of each stage: from --stages, or cut by FLOPs.
std::vector<int64_t> stage_layers(const Recipe& recipe);
std::string stages_text(const std::vector<int64_t>& layers);
int stage_of_layer(int layer, const std::vector<int64_t>& layers);
// The stage that updates a parameter.
int stage_of_parameter(std::string_view name, const std::vector<int64_t>& layers);

}  // namespace crest
