// The predicted time of a step on any basis, as printed by crest plan.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/compile.h"
#include "profile/profile.h"

namespace crest {

// The basis of the predicted collectives of a step.
struct CollectivesSource {
  bool measured = false;      // by crest calibrate --ranks; else from the data sheet's link
  int ranks = 0;              // number of ranks measured; 0: nothing was predicted
  std::string library, date;  // of the measurement
  double factor = 1;          // possible error
  int nodes = 1, node_gpus = 0;
  std::string network = "";             // between nodes
  double network_bytes_per_second = 0;  // of a GPU, in one direction
  bool copied = false;                  // some by copy engines, at a rate of two H200
};

// Bytes sent by a rank in a step: to GPUs of its node (or processes of its host), and to other
// nodes, divided as in NCCL's rings.
struct LinkTraffic {
  double in_node = 0, between_nodes = 0;
};

// A rank along the pipeline axis.
struct PredictedStage {
  double passes_ms = 0, rest_ms = 0;  // per step: forward and backward passes; sums over ranks, update
  double low = 1, high = 1;           // the range, as factors
};

struct PredictedPipeline {
  Bubble bubble;                        // in ms
  double transfer_ms = 0, rest_ms = 0;  // of one transfer; of the slowest stage
  std::vector<PredictedStage> stages;
};

// How much a rank's step varies: the standard deviation over the mean.
struct StepSpread {
  double share = 0;    // 0: unknown
  std::string source;  // "calibration", "two H200"
};

struct PredictedStep {
  Profile profile;                         // the session's rows with predicted times
  double ms = 0, low_ms = 0, high_ms = 0;  // of a step, or of a forward pass; the same below
  int64_t tokens = 0;
  double model_flops = 0;       // PaLM's, for MFU
  double recomputed_flops = 0;  // HFU counts them, too
  double peak = 0;              // FLOP/s of all ranks in the recipe's precision; 0: unknown
  int ranks = 1;
  double collectives_ms = 0;         // exposed, part of ms, with several ranks
  double hidden_collectives_ms = 0;  // next to computation
  CollectivesSource collectives;
  std::map<std::string, double> collectives_by_axes;  // parts of collectives_ms: "data", "tensor", "pipeline"
  std::map<std::string, LinkTraffic> traffic;         // by axes, as above
  double waiting_ms = 0;                              // for the slowest rank, part of ms
  StepSpread spread;
  double transfers_ms = 0;                    // exposed copies to and from the host, part of ms
  ProfileRate host_link;                      // the assumed link; empty without copies
  std::optional<PredictedPipeline> pipeline;  // of stages: then ms is the step of all, and the rows are one stage's

  double tokens_per_second() const { return 1e3 * double(tokens) / ms; }
};

// The rows of a step of the session, without times.
Profile step_rows(const CompiledSession& session);
// Sets the rows, tokens and FLOPs of the session's step, or of its forward pass if it has no step.
void set_work(PredictedStep& step, const CompiledSession& session);
// docs/reference/contract.md, plan: the keys of `time` in every prediction. measured_share: share
// of the time in kernels measured by a calibration.
nlohmann::ordered_json time_json(const PredictedStep& step, double measured_share);
// "time  7.85 ms (7.09 ms to 8.70 ms), ...", without a newline.
std::string time_line(const PredictedStep& step);
// A line about several ranks; "" for one.
std::string ranks_line(const PredictedStep& step);
// A line about copies to and from the host; "" without copies.
std::string transfers_line(const PredictedStep& step);
// "1 step", "12.3k steps".
std::string count_of(double n, std::string_view noun);
// A line about a whole training; "" for 0 tokens.
std::string training_line(const PredictedStep& step, double total);

}  // namespace crest
