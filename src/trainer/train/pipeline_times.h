// How the stages of a pipeline spent a step, and why it takes longer than its work divided by its
// ranks: from the times when each rank began each call.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/compile.h"
#include "program/mesh.h"

namespace crest {

class Engine;
class RankGroup;

// One step of a rank.
struct RankCalls {
  double seconds = 0;          // of the step: as the host saw it (bench), or from its first to its last stamp (train)
  std::vector<double> stamps;  // Engine::timed_step
};

// What a rank does in each call of its step.
struct CallRole {
  int scheduled = -1;  // SegmentCall::scheduled
  bool joins = false;  // it is not scheduled, and communicates along the pipeline axis
};
std::vector<CallRole> roles_of(const CompiledSession& session);

// A part of a stage: the mean of a micro step.
struct PartTime {
  int chunk = 0;
  StagePart part = StagePart::forward;
  double ms = 0;
};

// A rank along the pipeline axis; the mean over the ranks of other axes.
struct StageTimes {
  double step_ms = 0;      // the sum of all below but parts
  double compute_ms = 0;   // forward and backward passes
  double transfer_ms = 0;  // both ranks of a transfer are there
  // Waiting for other stages: before the first pass, between passes, and after the last one.
  double warm_up_ms = 0, between_ms = 0, drain_ms = 0;
  double rest_ms = 0;  // sums over ranks, update, host
  std::vector<PartTime> parts;
  double waiting_ms() const { return warm_up_ms + between_ms + drain_ms; }
};

// bubble + rest + other = step.
struct PipelineTimes {
  int runs = 0;         // mean over the middle half of them
  double step_ms = 0;   // of these steps, as rank 0 sees it
  Bubble bubble;        // in ms: the schedule, simulated with the measured times of all parts
  double rest_ms = 0;   // before the first pass and after the last one of all ranks: sums, update, host
  double other_ms = 0;  // what the simulation leaves open
  double bubble_low = 0, bubble_high = 0;  // 95% interval of measured_bubble over the runs; of few runs, the extremes
  double planned_bubble = 0;               // the fraction by FLOPs
  double transfer_ms = 0;                  // of one transfer
  std::vector<StageTimes> stages;          // by rank along the pipeline axis
  double predicted_ms() const { return bubble.ideal + bubble.seconds(); }
  // Of all passes, beyond the work divided by the ranks.
  double measured_bubble() const { return bubble.ideal > 0 ? (predicted_ms() + other_ms) / bubble.ideal - 1 : 0; }
};

// roles and runs: by rank of the mesh. one_clock: all stamps are of one clock; otherwise transfers
// align the clocks. planned_bubble stays 0.
PipelineTimes pipeline_times(const PipelineSchedule& schedule, const Mesh& mesh,
                             const std::vector<std::vector<CallRole>>& roles,
                             const std::vector<std::vector<RankCalls>>& runs, bool one_clock = false);

// The same for timed steps of an engine, by its local ranks. All ranks call it. group: of its
// processes; null: there is one.
PipelineTimes measured_pipeline(Engine& engine, const std::vector<std::vector<RankCalls>>& own, const RankGroup* group);

// docs/reference/contract.md: `pipeline` of train, bench and profile.
nlohmann::ordered_json to_json(const PipelineTimes& times);

}  // namespace crest
