// The predicted step of pipeline stages: the times of their passes, as the schedule puts them
// together.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "plan/compile.h"
#include "predict/step_time.h"

namespace crest {

// Predicts the instructions of one stage.
using StagePredictor = std::function<StepTime(const CompiledSession&)>;

// The step of all ranks and stages. They wait for the slowest rank. Its rows stay those of the
// session's stage. The same result where a stage has no prediction. Stages with the work of one of
// `compiled` are not compiled again.
StepTime pipeline_step_time(const CompiledSession& session, const StagePredictor& of_stage,
                            const std::vector<const CompiledSession*>& compiled = {});

// Predicted times of layers, embedding and head, to cut a model into stages; none where a stage has
// no prediction. The recipe is resolved.
std::optional<StageCosts> predicted_stage_costs(const Recipe& recipe, const Device& device,
                                                const StagePredictor& of_stage);

}  // namespace crest
