// Adapters (LoraConfig) between Crest and peft. peft has one adapter for each linear layer of
// transformers, in adapter_model.safetensors, and describes it in adapter_config.json.
#pragma once
#include <string>
#include <vector>

#include "checkpoint/weights_io.h"
#include "model/weights_map.h"

namespace crest {

inline constexpr const char *adapter_config_file = "adapter_config.json",
                            *adapter_weights_file = "adapter_model.safetensors";

// A linear layer of transformers: rows of linear layers of Crest.
struct AdapterModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  std::vector<TensorPart> parts;
  // Names of the layers of Crest, each once: "h.0.attn.qkv".
  std::vector<std::string> layers() const;
};
// "h.0.attn.qkv" of h.0.attn.qkv.weight.
std::string layer_of_weight(const std::string& parameter);
// All linear layers of the model with a place for adapters.
std::vector<AdapterModule> adapter_modules(const ModelConfig& config);

// Whether a folder holds an adapter of peft.
bool is_peft_folder(const std::string& path);
// base: the folder of its base model; "": where adapter_config.json says. Three A of q, k and v
// become one of three times the rank, and equal ones become one of the same rank: the adapter
// computes the same.
LoadedModel open_peft(const std::string& path, const std::string& base,
                      const std::function<void(const std::string&)>& report);

// Adds the change by an adapter to a weight [rows, columns]: w += factor B A. a: [rank, columns],
// b: [rows, rank].
void add_adapter(float* w, const float* a, const float* b, int64_t rows, int64_t columns, int64_t rank, double factor);

// Reads the adapters of an opened model into memory.
AdapterWeights read_adapter(const LoadedModel& model);

}  // namespace crest
