// Model configurations in files.
#pragma once
#include <optional>
#include <string>

#include "model/config.h"

namespace crest {

// Reads a TOML file (keys as in ModelConfig), a Hugging Face config.json, or a folder that holds one; nullopt when the
// path does not exist. Throws errors that name file and key.
std::optional<ModelConfig> read_model_file(const std::string& path);
// config.json that `transformers` loads (GPT2LMHeadModel or LlamaForCausalLM); empty when the architecture is neither.
std::string to_huggingface_config(const ModelConfig& config);

}  // namespace crest
