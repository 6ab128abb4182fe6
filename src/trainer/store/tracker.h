// Recorded runs in the formats of experiment trackers. Their own Python packages write the files:
// other programs cannot.
#pragma once
#include <string>
#include <vector>

#include "store/store.h"

namespace crest {

// Throws for an unknown tracker. Known: "wandb".
void check_tracker(const std::string& name);

struct TrackerOptions {
  std::string tracker = "wandb";
  std::string folder = ".";  // gets a folder wandb/; made if it is missing
  std::string project;       // "": WANDB_PROJECT, else "crest"
};

struct TrackedRun {
  std::string uid, name;
  std::string folder;  // absolute
  int64_t rows = 0;    // steps and validations, or samples of a measurement
};

struct TrackerExport {
  std::string tracker, version;  // of the Python package
  std::vector<TrackedRun> runs;
};

// Writes offline runs, one for each id, and sends nothing. A run's id there is its uid. Throws
// without python3 (CREST_PYTHON) or the tracker's package, and on a signal (StopSignal).
TrackerExport export_to_tracker(const Store& store, const std::vector<int64_t>& ids, const TrackerOptions& options);
// docs/reference/contract.md, runs export.
Json to_json(const TrackerExport& exported);

}  // namespace crest
