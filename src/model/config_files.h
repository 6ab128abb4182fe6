// Model configurations in files.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "model/config.h"

namespace crest {

// Reads a TOML file (keys as in ModelConfig), a Hugging Face config.json, or a folder that holds one of them
// (model.toml, which Crest's own checkpoints have, before config.json); nullopt when the path does not exist.
// The result is validated. Throws errors that name file and key.
std::optional<ModelConfig> read_model_file(const std::string& path);
// config.json that `transformers` loads (GPT2LMHeadModel or LlamaForCausalLM); empty when the architecture is neither.
std::string to_huggingface_config(const ModelConfig& config);

// The same from text; `where` names the file in errors.
//
// TOML: the keys are the fields of ModelConfig and a table [rope_scaling]; `preset` names the base that the other keys
// override (default: gpt2-124M's shape). Of what is not written, these follow what is: head_dim = width / heads,
// kv_heads = heads where the base has as many of both, ff = 4 width where the base has that ratio.
ModelConfig parse_model_toml(std::string_view text, const std::string& where);
// config.json with model_type gpt2 or llama; keys of transformers 4 and 5. Sizes are required, other keys default as in
// transformers. What would compute something else than Crest does (exact GELU, biases in Llama, ...) is refused.
ModelConfig parse_huggingface_config(std::string_view text, const std::string& where);

}  // namespace crest
