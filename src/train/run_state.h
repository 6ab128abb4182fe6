// What a checkpoint of a run holds besides tensors, and how an engine is saved and restored.
#pragma once
#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "train/engine.h"

namespace crest {

class Tokenizer;

// Everything that the next step depends on; the loader's position follows from `step`.
struct RunState {
  int64_t step = 0;         // completed steps
  int64_t total_steps = 0;  // of the schedule; 0 while it is being fitted
  uint64_t seed = 0;
  int threads = 0;            // bits depend on it
  uint64_t train_tokens = 0;  // of the data: tells when it is another
  std::string data_hash;      // the same, of its content; "": unknown
};

using Report = std::function<void(const std::string&)>;

// Weights, optimizer state, scalars, kernel choices and small files (model.toml, config.toml, config.json,
// tokenizer.json). copied: the tensors are a copy, which stays as it is while the engine trains on.
CheckpointContents contents_to_save(Engine& engine, const RunState& state, const std::string& config_toml,
                                    const Tokenizer* tokenizer, bool copied);
// The newest valid checkpoint below root; throws when there is none.
Checkpoint newest_checkpoint(const std::string& root, const Report& warn);
// Its kernel choices, for the Engine that continues the run; none where the checkpoint has none.
Choices kernel_choices(const Checkpoint& checkpoint, const Report& warn);
// Restores a checkpoint below root; damaged ones that are newer are set aside (reject_newer). Throws when it is of
// another model or another number of samples a step.
RunState restore(Engine& engine, const Checkpoint& checkpoint, const std::string& root, const Report& warn);
// --init: weights of a Hugging Face folder, a run or a checkpoint; the optimizer starts fresh.
void load_initial_weights(Engine& engine, const std::string& path, const Report& warn);

// Removes the oldest checkpoints until `keep` are left (0: none is removed). The newest one with finite weights stays
// beside them where none of them has.
void keep_newest(const std::string& root, int keep);
// The newest checkpoint below root that says of its weights that they are finite, unverified; -1: none.
int64_t newest_finite(const std::string& root);
// Renames checkpoints newer than `step` to .rejected-NAME, so that no later --resume meets the future of a run that was
// continued from before it. Returns how many.
int reject_newer(const std::string& root, int64_t step);

}  // namespace crest
