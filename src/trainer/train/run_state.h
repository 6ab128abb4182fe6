// Content of a run's checkpoint besides tensors, and saving and restoring of an engine.
#pragma once
#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/weights_io.h"
#include "train/engine.h"

namespace crest {

class Tokenizer;

// Everything the next step depends on. The loader's position follows from `step`.
struct RunState {
  int64_t step = 0;         // completed steps
  int64_t total_steps = 0;  // of the schedule; 0 while it is being fitted
  // The last step with changed weights (others were skipped for NaN or infinite gradients), and how
  // many of the skipped steps in a row count as bad.
  int64_t last_good = 0, bad_steps = 0;
  uint64_t seed = 0;
  int threads = 0;            // results depend on it bit for bit
  uint64_t train_tokens = 0;  // of the data: detects different data
  std::string data_hash;      // content hash of the data, for the same purpose; "": unknown
};

// As JSON, for other processes of the run. parse: `where` is who sent it.
std::string to_text(const RunState& state);
RunState parse_run_state(const std::string& text, const std::string& where);

using Report = std::function<void(const std::string&)>;

// Weights, optimizer state, scalars, kernel choices and small files (model.toml, config.toml,
// config.json, tokenizer.json, ..). copied: the tensors are a copy, unchanged while the engine
// trains.
CheckpointContents contents_to_save(Engine& engine, const RunState& state, const std::string& config_toml,
                                    const ModelText& text, bool copied);
// The newest valid checkpoint below root. Throws if there is none.
Checkpoint newest_checkpoint(const std::string& root, const Report& warn);
// Its kernel choices, for the continuing Engine; empty if the checkpoint has none.
Choices::Table kernel_choices(const Checkpoint& checkpoint, const Report& warn);
// Restores a checkpoint. Throws if the model or the number of samples per step differs. run: the
// folder, for messages.
RunState restore(Engine& engine, const Checkpoint& checkpoint, const std::string& run = "");
// --init: loads weights of a Hugging Face folder, a run or a checkpoint. The optimizer starts
// fresh. Throws if a weight is not finite.
void load_initial_weights(Engine& engine, const LoadedModel& model);

// Removes the oldest checkpoints until `keep` are left (0: keep all). If none of those has finite
// weights, the newest one with finite weights is kept as well.
void keep_newest(const std::string& root, int keep);
// The newest checkpoint below root with the mark of finite weights, unverified; -1: none. Throws if
// one cannot be read.
int64_t newest_finite(const std::string& root);
// Renames checkpoints newer than `step` to .rejected-NAME, so no later --resume uses steps after
// the point of continuation. Returns their number.
int reject_newer(const std::string& root, int64_t step);
// After NaN or infinite gradients. A checkpoint is good if its weights gave finite gradients:
// weights of steps before last_good did. If there is a good one, all later ones are set aside.
// Returns the rest, for a message.
std::string keep_good_checkpoints(const std::string& root, int64_t last_good, const std::string& run);

}  // namespace crest
