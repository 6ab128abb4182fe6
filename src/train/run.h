// A training run from data folder to checkpoints.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "device/conditions.h"
#include "model/recipe.h"
#include "store/record.h"
#include "train/step_row.h"

namespace crest {

// How a run is recorded in the run store.
struct TrainRecord {
  std::string store;  // file; "": default_store_file()
  double wait = 5;    // seconds, for another process that keeps the store locked; then the run is not recorded
  RunRecord head;     // name, command, recipe, device, key, environment
  Conditions before;
};

// What training does while a checkpoint is written.
enum class SaveMode {
  automatic,   // goes on where weights and optimizer state are copied to the host anyway
  waiting,     // waits
  background,  // goes on; the host holds a copy of weights and optimizer state until then
};

struct TrainOptions {
  Recipe recipe;
  Device device;
  int64_t memory_limit = 0;
  std::string data;     // folder of shards
  std::string out;      // RUN; "": the run leaves no files
  bool resume = false;  // continue RUN from its newest valid checkpoint
  bool overwrite = false;
  bool fresh = false;  // `out` was made for this run (FreshFolder)
  std::string init;    // folder, file, run or checkpoint with weights to start from; not read when the run is continued
  // What is written to RUN/config.toml, from options with steps, lr and warmup as they are used. It is asked again when
  // the steps have been fitted to max_seconds.
  std::function<std::string(const TrainOptions& resolved)> config_toml;

  std::optional<TrainRecord> record;

  std::string schedule = "cosine";
  double lr = 0;           // 0: 6e-4 sqrt(768 / width), within [1e-4, 3e-3]
  double min_lr = -1;      // below 0: a tenth of lr
  int64_t warmup = -1;     // below 0: a fiftieth of the steps, 5 to 2000; below 50 steps a tenth
  int64_t steps = 0;       // 0: 1000, or as many as max_seconds allows
  double max_seconds = 0;  // 0: no limit; without steps the schedule is fitted to it after the first steps
  int64_t val_every = -1;  // below 0: a tenth of the steps; 0: never
  int64_t val_batches = 20;
  int64_t save_every = -1;  // below 0: a quarter of the steps; 0: only at the end
  SaveMode save_mode = SaveMode::automatic;
  int64_t sample_every = 0;
  int64_t sample_tokens = 200;
  int keep = 3;            // checkpoints; 0: all
  int64_t stop_after = 0;  // leave (saved) after this many steps of this call
  uint64_t seed = 1337;
  bool quiet = false, json = false;
  int prefetch = 0;            // batches that are read ahead by threads; 0: read where a step needs them
  int loader_threads = 1;      // that read them
  double loader_delay_ms = 0;  // a training sample takes so much longer, as from slow storage: for experiments

  // What came out, as it comes.
  std::function<void(const StepRow&)> on_step;
  std::function<void(const ValidationRow&)> on_validation;
};

struct TrainOutcome {
  bool interrupted = false;
  int64_t held_bytes = 0;    // arenas of all ranks
  int64_t device_bytes = 0;  // on a GPU: what it took of the device
};

// Runs to the end, the limit or a signal, then saves. Throws when something fails or five steps in a row had gradients
// that are not finite: checkpoints saved until then are intact.
TrainOutcome run_training(const TrainOptions& options);

}  // namespace crest
