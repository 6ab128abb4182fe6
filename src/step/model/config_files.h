// Model configuration files.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace crest {

// Reads and validates a TOML file (keys as in ModelConfig), a Hugging Face config.json, or a folder
// with one of them. A model.toml, written by Crest's checkpoints, comes before config.json.
// nullopt: no such path. Errors name file and key.
std::optional<ModelConfig> read_model_file(const std::string& path);
// The ids of the tokens at the start and at the end of a text.
struct TextEnds {
  std::optional<uint32_t> begin;
  std::vector<uint32_t> end;  // the tokenizer's token, then others that stop generate()
};
// In the format of transformers: a number, a list, or null.
nlohmann::ordered_json eos_token_id(const TextEnds& ends);
// A config.json for the transformers class of family_of(config); empty if there is no family.
std::string to_huggingface_config(const ModelConfig& config, const TextEnds& ends = {});

// Parses text. `where` names the file in errors.
//
// TOML keys are the fields of ModelConfig, a table [rope_scaling], and a table [layer.X] for layers
// that differ (their letters are in `pattern`). `preset` names the base of the other keys (default:
// the shape of gpt2-124M). Missing fields follow the given ones: head_dim = width / heads, kv_heads
// = heads if they are equal in the base, ff = 4 width if the base has that ratio.
ModelConfig parse_model_toml(std::string_view text, const std::string& where);
// A config.json of any family (model/family.h), with keys of transformers 4 or 5. Sizes are
// required. Other keys have the defaults of transformers. Unsupported options are errors.
ModelConfig parse_huggingface_config(std::string_view text, const std::string& where);

// A model description has a few hundred bytes. A larger file is something else.
inline constexpr size_t max_model_file_bytes = 1 << 20;

}  // namespace crest
