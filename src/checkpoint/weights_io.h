// Between an executor's parameters and files: canonical weights out and in, optimizer state out and in, and finding the
// model that a path means.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors_folder.h"
#include "model/config.h"
#include "run/executor.h"
#include "run/parameters.h"

namespace crest {

class Tokenizer;

// What is saved of an executor. The tensors point into its memory or are made of it one by one when they are written,
// so they are valid until it runs or is loaded again; those of a copy as long as that lives.
struct TensorsToSave {
  // fp32 (the masters where there are some), unpadded, canonical: names and orientation of model/weights_map.h.
  std::vector<TensorSource> weights;
  // `<parameter>.<state>`, bit for bit as in memory, Crest's parameter names and orientation. States of the weight's
  // shape are unpadded. Empty when the session has no update Program.
  std::vector<TensorSource> optimizer;
  std::shared_ptr<const ParameterCopy> copy;
  bool finite = true;  // no weight or master is NaN or infinite
};
// copied: of a copy; always where the host cannot read the executor's memory itself.
TensorsToSave tensors_to_save(const Executor& executor, bool copied = false);

// Set weight and master of every parameter; the vocabulary's padding becomes zero. The states stay as they are. Throw
// for weights of another model before anything is changed.
//
// Files of Hugging Face or Crest, any float dtype, one tensor at a time in memory; a tied model's extra head must equal
// the embedding.
void load_weights(const Executor& executor, const WeightsFolder& folder);
// Every tensor's hash is verified; when one is wrong, the parameters hold garbage.
void load_weights(const Executor& executor, const Checkpoint& checkpoint);
void load_optimizer(const Executor& executor, const Checkpoint& checkpoint);

// The small files by which a checkpoint can be used on its own: model.toml, config.json where transformers has the
// architecture, tokenizer.json when there is a tokenizer (may be null).
std::map<std::string, std::string> model_files(const ModelConfig& config, const Tokenizer* tokenizer);

struct LoadedModel {
  ModelConfig config;
  std::string weights_path;                    // the folder or file that holds the weights
  std::shared_ptr<const Tokenizer> tokenizer;  // null when there is none, or none that Crest can read
  std::string tokenizer_problem;               // why a tokenizer.json that is there was not read
  std::optional<Checkpoint> checkpoint;        // absent for weights of Hugging Face
  int64_t step = -1;                           // of the checkpoint; -1 when there is none
};

// path: a run (its newest valid checkpoint), a folder of checkpoints, one checkpoint, or a folder of Hugging Face
// (config.json or model.toml, safetensors, perhaps tokenizer.json). Throws when nothing usable is there. `report` gets
// a line for each damaged checkpoint that was skipped.
LoadedModel open_model(const std::string& path, const std::function<void(const std::string&)>& report = {});
void load_weights(const Executor& executor, const LoadedModel& model);

}  // namespace crest
