// What a checkpoint of a run holds besides tensors, and how an engine is saved and restored.
#pragma once
#include <functional>
#include <string>

#include "train/engine.h"

namespace crest {

class Tokenizer;

// Everything that the next step depends on; the loader's position follows from `step`.
struct RunState {
  int64_t step = 0;         // completed steps
  int64_t total_steps = 0;  // of the schedule; 0 while it is being fitted
  uint64_t seed = 0;
  int threads = 0;  // bits depend on it
};

using Report = std::function<void(const std::string&)>;

// Saves weights, optimizer state, scalars and small files (model.toml, config.toml, config.json, tokenizer.json).
void save(Engine& engine, const RunState& state, const std::string& root, int keep, const std::string& config_toml,
          const Tokenizer* tokenizer, const Report& warn);
// Restores the newest valid checkpoint below root. Throws when there is none or it is of another model.
RunState restore(Engine& engine, const std::string& root, const Report& warn);
// --init: weights from a Hugging Face or Crest folder; the optimizer starts fresh.
void load_initial_weights(Engine& engine, const std::string& path);

}  // namespace crest
