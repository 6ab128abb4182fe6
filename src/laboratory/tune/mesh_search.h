// Searches meshes, pipeline schedules, shard levels, recompute and micro batches together, by
// prediction alone: for many GPUs of a described device.
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tune/tune.h"

namespace crest {

// Whether tune() leaves this search to search_meshes(): several nodes of a described GPU with a
// global batch, without --mesh and --vary; or --vary mesh.
bool searches_meshes(const TuneOptions& options, const Recipe& start, const Device& device);

// A combination. The text of its settings is as in flags.
struct MeshCandidate {
  std::vector<std::pair<std::string, std::string>> settings;  // mesh, schedule-pipeline, shard, recompute, ...
  double least_ms = 0;                                        // a step takes at least so long
  int64_t least_bytes = 0;                                    // a rank needs at least so much
  double ms = 0, low_ms = 0, high_ms = 0;                     // predicted
  double bubble = 0, collectives_ms = 0, waiting_ms = 0;
  double mfu = 0;  // 0: the device's peak is unknown
  int64_t planned_bytes = 0;
};

struct MeshSearchResult {
  std::vector<MeshCandidate> best;  // the predicted ones, fastest first; never empty
  int64_t tokens = 0;               // of a step
  int ranks = 1;
  // All combinations: predicted, refused by the plan's memory, pruned before a plan because the
  // least memory does not fit, because the least time exceeds the best, or because less
  // recomputation already fits; excluded by settings; left by the time limit.
  size_t combinations = 0, refused_by_memory = 0, pruned_by_memory = 0, pruned_by_time = 0, pruned_by_recompute = 0,
         not_allowed = 0, not_tried = 0;
  double seconds = 0;
};

// limit: bytes of a GPU. Throws does_not_fit if nothing fits, `interrupted`, and usage errors. The
// global batch must be given.
MeshSearchResult search_meshes(const TuneOptions& options, const Device& device, int64_t limit,
                               const Calibration* calibration, const std::function<void(const std::string&)>& say);

nlohmann::ordered_json to_json(const TuneOptions& options, const MeshSearchResult& result);
// top: rows of the table.
std::string text_of(const TuneOptions& options, const MeshSearchResult& result, size_t top, bool color, size_t width);

}  // namespace crest
