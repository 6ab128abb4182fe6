// A training run, from data folder to checkpoints.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "device/conditions.h"
#include "model/recipe.h"
#include "store/record.h"
#include "train/restarts.h"
#include "train/step_row.h"

namespace crest {

class RankGroup;

// How a run is recorded in the run store.
struct TrainRecord {
  std::string store;  // file; "": default_store_file()
  double wait = 5;    // seconds to wait for a locked store; then the run is not recorded
  RunRecord head;     // name, command, recipe, device, key, environment
  Conditions before;
};

// Training during a save.
enum class SaveMode {
  automatic,   // continues if weights and optimizer state are copied to the host anyway
  waiting,     // waits
  background,  // continues; the host has a copy of weights and optimizer state meanwhile
};

// The value of --data for rows of tokens from standard input (data/row_stream.h).
inline constexpr const char* data_stream = "-";

// A run goes back to a checkpoint before a spike of the loss, and leaves out the samples since.
struct Rollback {
  int64_t to_step = 0;
  uint64_t skipped_samples = 0;  // of the whole run
  int count = 0;                 // rollbacks of this process
  Restarted command;             // for the limits of the command
};

struct TrainOptions {
  Recipe recipe;
  Device device;               // this process's part of it
  int64_t memory_limit = 0;    // for this process
  RankGroup* group = nullptr;  // the processes if recipe.ranks > 1; only the first writes and prints
  // Folders of shards, each with a weight if there are several (data/mixture.h); or data_stream.
  std::vector<std::string> data;
  int data_descriptor = 0;  // of the stream
  // A stream's tokenizer: bytes or a file; "": none, or the initial model's.
  std::string stream_tokenizer;
  std::string out;      // RUN; "": write no files
  bool resume = false;  // continue RUN from its newest valid checkpoint
  bool overwrite = false;
  bool fresh = false;                   // `out` was created for this run (FreshFolder)
  std::optional<Restarted> restarted;   // set if the launcher restarted this run
  std::optional<Rollback> rolled_back;  // set if a spike of the loss began this part of the run
  std::string init;  // folder, file, run or checkpoint with initial weights; ignored for a continued run
  std::string base;  // of an adapter: folder of its base, if it is no longer where it was
  // The text of RUN/config.toml for options with the steps, lr and warmup in use. Called again
  // after steps are fitted to max_seconds.
  std::function<std::string(const TrainOptions& resolved)> config_toml;

  std::optional<TrainRecord> record;

  std::string schedule = "cosine";
  double decay_share = 0.2;          // wsd
  std::string decay_shape = "sqrt";  // wsd
  double lr = 0;                     // 0: default_learning_rate()
  double min_lr = -1;                // below 0: a tenth of lr
  int64_t warmup = -1;               // below 0: a fiftieth of the steps, 40 to 2000; below 200 steps a fifth
  int64_t steps = 0;                 // 0: of epochs, or else 1000, or as many as max_seconds allows
  double epochs = 0;                 // passes over the training data, in place of steps; 0: steps count
  double max_seconds = 0;            // 0: no limit; without steps, the schedule is fitted to it after the first steps
  int64_t val_every = -1;            // below 0: a tenth of the steps; 0: never
  int64_t val_batches = 20;
  int64_t patience = 0;           // validations without an improvement before the run ends; 0: it does not end early
  double min_delta = 0;           // the smallest improvement, in nats
  double until_loss = 0;          // the run ends once the validation loss is at most this; 0: it does not end early
  std::string on_spike = "warn";  // the response to a jump of the loss (train/spike_watch.h)
  int64_t save_every = -1;        // below 0: a quarter of the steps; 0: only at the end
  SaveMode save_mode = SaveMode::automatic;
  int64_t sample_every = 0;
  int64_t sample_tokens = 200;
  int64_t check_ranks = 100;  // steps between comparisons of the weights of all ranks; 0: never
  int keep = 3;               // checkpoints to keep; 0: all
  bool keep_best = false;     // also keep the checkpoint with the lowest validation loss
  int64_t stop_after = 0;     // save and stop after this many steps of this call
  uint64_t seed = 1337;
  bool quiet = false, json = false;
  double peak = 0;             // FLOP/s of a rank's device, for MFU and HFU; 0: of its data sheet, if it has one
  int prefetch = 0;            // batches read ahead by threads; 0: read when a step needs them
  int loader_threads = 1;      // reading threads
  double loader_delay_ms = 0;  // additional time per training sample, to simulate slow storage in experiments

  // Receive results as they become available.
  std::function<void(const StepRow&)> on_step;
  std::function<void(const ValidationRow&)> on_validation;

  bool streams() const { return data.size() == 1 && data[0] == data_stream; }
};

struct TrainOutcome {
  bool interrupted = false;
  std::optional<Rollback> rollback;  // never after run_training
  int64_t held_bytes = 0;            // arenas of one rank
  int64_t device_bytes = 0;          // on a GPU: device memory in use
};

// Runs to the end, a limit or a signal, then saves. Throws on errors, and after five consecutive
// steps with NaN or infinite gradients. Checkpoints saved earlier stay intact.
TrainOutcome run_training(const TrainOptions& options);

}  // namespace crest
