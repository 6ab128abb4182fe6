// Moves an executor's parameters to and from files: canonical weights and optimizer state. Also
// finds the model at a path.
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
#include "model/config_files.h"
#include "run/executor.h"
#include "run/parameters.h"

namespace crest {

class Dataset;
class Tokenizer;
struct LoadedModel;

// The tensors of an executor to save. They point into its memory or are produced one by one during
// writing, so they are valid until it runs or is loaded again; the tensors of a copy, as long as it
// exists.
struct TensorsToSave {
  // fp32 (from the masters if there are any), unpadded, canonical: names and orientation as in
  // model/weights_map.h.
  std::vector<TensorSource> weights;
  // `<parameter>.<state>`, bit for bit as in memory, with Crest's parameter names and orientation.
  // States with the weight's shape are unpadded. Empty if the session has no update Program.
  std::vector<TensorSource> optimizer;
  std::shared_ptr<const ParameterCopy> copy;
  bool finite = true;  // no weight or master is NaN or infinite
};
// copied: from a copy; always so if the host cannot read the executor's memory.
TensorsToSave tensors_to_save(const Executor& executor, bool copied = false);

// Bytes of all tensors of a checkpoint.
uint64_t checkpoint_bytes(const Executor& executor);

// The first parameter with a NaN or infinite weight (or master); "": none.
std::string not_finite_weight(const Executor& executor);

// Set the weight and master of every parameter; vocabulary padding becomes zero. Optimizer states
// are unchanged. Throw, before anything is changed, if the weights belong to another model.
//
// Files of Hugging Face or Crest with any float dtype, one tensor at a time in memory. Adapters
// stay as they are. The extra head of a tied model must equal the embedding.
void load_weights(const Executor& executor, const WeightsFolder& folder);
// Verifies every tensor's hash. If one is wrong, the contents of the parameters are undefined.
// adapters: of a run with --lora, which saves nothing else; their base is unchanged.
void load_weights(const Executor& executor, const Checkpoint& checkpoint, bool adapters = false);
void load_optimizer(const Executor& executor, const Checkpoint& checkpoint);

// The text settings in transformers' files, beyond the tokenizer.
struct TextSettings {
  std::string chat_template;                        // in Jinja; "": none
  std::string tokenizer_config, generation_config;  // the files' JSON objects; "": none
  // Tokens that end and begin generate(): from generation_config.json, or from config.json without
  // it.
  std::vector<uint32_t> ends;
  std::optional<uint32_t> begin;
};

// How text becomes a model's tokens, and back.
struct ModelText {
  ModelText(const Tokenizer* tokenizer = nullptr, std::string chat_template = "", TextSettings before = {})
      : tokenizer(tokenizer), chat_template(std::move(chat_template)), before(std::move(before)) {}
  const Tokenizer* tokenizer;        // null: none
  std::string chat_template;         // of the conversations in its training, in Jinja; "": none
  std::optional<uint32_t> turn_end;  // the special token for the end of an answer in them
  TextSettings before;               // of the initial model: kept where Crest states nothing else
};

// Where texts of the model begin and end, by its files and the tokenizer. Tokens beyond both
// vocabularies are left out.
TextEnds text_ends(const ModelConfig& config, const ModelText& text);
// The same of a model as it is, with the ends of generate().
TextEnds text_ends(const LoadedModel& model);

// The small files of a self-contained checkpoint: model.toml; config.json if transformers has the
// architecture. With a tokenizer also tokenizer.json and tokenizer_config.json, for the same tokens
// in AutoTokenizer, and generation_config.json, for the end of generate().
std::map<std::string, std::string> model_files(const ModelConfig& config, const ModelText& text);

// Adapters by Crest's names of parameters.
using AdapterWeights = std::map<std::string, std::vector<float>>;

struct LoadedModel {
  ModelConfig config;
  std::string weights_path;                    // the folder or file with the weights
  std::shared_ptr<const Tokenizer> tokenizer;  // null if there is none, or an unsupported one
  std::string tokenizer_path;                  // its file; "" if there is none
  std::string tokenizer_problem;               // why it was not read
  TextSettings text;
  std::string text_problem;              // why a file of `text` was not read
  std::optional<Checkpoint> checkpoint;  // absent for Hugging Face weights
  int64_t step = -1;                     // of the checkpoint; -1 without one
  // Of an adapter (config.lora): where its base was in its training, and weights_hash of it ("":
  // unknown, as peft does not write it).
  std::string base_path, base_hash;
  std::shared_ptr<const AdapterWeights> adapter;  // of peft's files; null: in the checkpoint
};

// SHA-256 over names, dtypes, shapes and contents of all tensors of a model without adapters. The
// cache has the hashes of unchanged files.
std::string weights_hash(const LoadedModel& model);
// The base of an adapter. Throws if it is not there, or its weights are others than in training.
LoadedModel open_base(const LoadedModel& adapter);

// path: a run (its newest valid checkpoint), a folder of checkpoints, one checkpoint, or a Hugging
// Face folder (config.json or model.toml, safetensors, optionally tokenizer.json). Throws if
// nothing usable is there, or quantized weights. `report` gets a line for each skipped damaged
// checkpoint, and one if tensor names have wrappers of PyTorch's modules.
// An adapter is a run with --lora, or a folder of peft (adapter_config.json). base: the folder of
// its base model; "": where the adapter says.
LoadedModel open_model(const std::string& path, const std::function<void(const std::string&)>& report = {},
                       const std::string& base = "");
LoadedModel open_model(Checkpoint checkpoint);
// Throws if the data's tokenizer gives other tokens than the model's: the model's weights mean
// nothing on them. Folders and models without a tokenizer are taken on trust.
void require_same_tokenizer(const Dataset& data, const LoadedModel& model);
// Throws if the model has no embedding for some tokens of a tokenizer. where: the tokenizer.
void require_embeddings(uint64_t tokens, const ModelConfig& model, const std::string& where);
void load_weights(const Executor& executor, const LoadedModel& model);

}  // namespace crest
