// A checkpoint's content other than tensors, and how to save and restore an engine.
#pragma once
#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/weights_io.h"
#include "train/best_loss.h"
#include "train/engine.h"

namespace crest {

class Tokenizer;

// Everything with an effect on the next step. The loader's position follows from `step`.
struct RunState {
  int64_t step = 0;         // completed steps
  int64_t total_steps = 0;  // of the schedule; 0: not fitted yet
  // The last step with changed weights (other steps were skipped for NaN or infinite gradients),
  // and how many of the latest skipped steps count as bad.
  int64_t last_good = 0, bad_steps = 0;
  uint64_t seed = 0;
  int threads = 0;               // affects results bit for bit
  uint64_t train_tokens = 0;     // of the data, to detect different data
  std::string data_hash;         // content hash, also to detect different data; "": unknown
  std::string data_weights;      // of a mixture, as "7:3"
  std::string base, base_hash;   // --lora: the base's folder and weights_hash of it
  uint64_t skipped_samples = 0;  // left out after spikes of the loss (--on-spike rollback)
  BestLoss validation;
};

// As JSON, for the run's other processes. parse: `where` names the sender.
std::string to_text(const RunState& state);
RunState parse_run_state(const std::string& text, const std::string& where);

using Report = std::function<void(const std::string&)>;

// Weights, optimizer state, scalars, kernel choices and small files (model.toml, config.toml,
// config.json, tokenizer.json, ..). copied: the tensors are copies, so the engine may continue to
// train.
CheckpointContents contents_to_save(Engine& engine, const RunState& state, const std::string& config_toml,
                                    const ModelText& text, bool copied);
// The newest valid checkpoint below root. Throws if there is none.
Checkpoint newest_checkpoint(const std::string& root, const Report& warn);
// A checkpoint's kernel choices, for the continuing Engine; empty: none.
Choices::Table kernel_choices(const Checkpoint& checkpoint, const Report& warn);
// Restores a checkpoint. Throws if the model or the number of samples per step differs. run: its
// folder, for messages.
// base: another folder of the base, as in open_model.
RunState restore(Engine& engine, const Checkpoint& checkpoint, const std::string& run = "",
                 const std::string& base = "");
// --init: loads weights of a Hugging Face folder, a run or a checkpoint. Optimizer state starts at
// zero. Throws if a weight is not finite.
// For adapters, writes their base to the state.
void load_initial_weights(Engine& engine, const LoadedModel& model, RunState& state);

// Points ROOT/best at the checkpoint of this step, or removes the link if there is none.
void label_best(const std::string& root, int64_t step);
// Removes the oldest checkpoints until `keep` are left (0: keeps all), and ROOT/best besides. If
// none of these has finite weights, also keeps the newest with finite weights.
void keep_newest(const std::string& root, int keep);
// The step of the newest checkpoint below root that is not after `step`, unverified; -1: none.
int64_t newest_until(const std::string& root, int64_t step);
// The newest checkpoint below root with a mark of finite weights, unverified; -1: none. Throws if
// one is unreadable.
int64_t newest_finite(const std::string& root);
// Renames checkpoints newer than `step` to .rejected-NAME: a later --resume must not use them.
// ROOT/latest then names the newest one left, and ROOT/best goes with its checkpoint. Returns the
// number of renamed ones.
int reject_newer(const std::string& root, int64_t step);
// Call after NaN or infinite gradients. A checkpoint is good if its weights gave finite gradients,
// as did all weights of steps before last_good. If there is a good one, sets all later ones aside.
// Returns the last part of the error message.
std::string keep_good_checkpoints(const std::string& root, int64_t last_good, const std::string& run);

}  // namespace crest
