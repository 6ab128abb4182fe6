// How the layers of a model are divided among pipeline stages (--mesh pipeline, --stages).
#pragma once
#include <cstdint>
#include <vector>

#include "passes/pass.h"

namespace crest {

// Time of a forward and a backward pass, in any unit: of each layer, of the embedding before them
// and of the head behind them.
struct StageCosts {
  double before = 0, behind = 0;
  std::vector<double> layers;
};
// FLOPs, for a recipe without measurements.
StageCosts flops_of_layers(const Recipe& recipe);
// Layers of each stage, so that the slowest stage is as fast as possible. Each has at least one.
std::vector<int64_t> cut_layers(const StageCosts& costs, int stages);

// Parts of the model: each rank along the pipeline axis has as many as the schedule gives it
// (chunks). Stage s is chunk s / ranks of rank s % ranks.
int stage_count(const Recipe& recipe);
int chunks_of_rank(const Recipe& recipe);
// --schedule-pipeline.
enum class PipelineKind : uint8_t { one_f_one_b, interleaved, zero_bubble };
PipelineKind pipeline_kind(const Recipe& recipe);
// Why a text is no schedule; "": it is one.
std::string wrong_schedule(std::string_view text);
// Layers of each stage: --stages, or the cut by FLOPs.
std::vector<int64_t> stage_layers(const Recipe& recipe);
std::string stages_text(const std::vector<int64_t>& layers);
int stage_of_layer(int layer, const std::vector<int64_t>& layers);
// The stage with the update of a parameter.
int stage_of_parameter(std::string_view name, const std::vector<int64_t>& layers);

}  // namespace crest
