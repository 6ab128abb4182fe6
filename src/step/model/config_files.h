// Model configurations stored in files.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace crest {

// Reads a TOML file (keys as in ModelConfig), a Hugging Face config.json, or a folder with one of
// them. model.toml, which Crest's own checkpoints have, comes before config.json. nullopt if the
// path does not exist. The result is validated. Errors name file and key.
std::optional<ModelConfig> read_model_file(const std::string& path);
// The ids of the tokens that begin and end a text.
struct TextEnds {
  std::optional<uint32_t> begin;
  std::vector<uint32_t> end;  // the tokenizer's first, then others at which generate() ends
};
// As transformers' files have it: a number, a list of several, or null.
nlohmann::ordered_json eos_token_id(const TextEnds& ends);
// A config.json that `transformers` loads with the class of family_of(config); empty if there is
// none.
std::string to_huggingface_config(const ModelConfig& config, const TextEnds& ends = {});

// The same, from text. `where` names the file in errors.
//
// TOML: the keys are the fields of ModelConfig, a table [rope_scaling], and a table [layer.X] for
// layers that differ (their letters are in `pattern`). `preset` names the base that the other keys
// override (default: gpt2-124M's shape). Fields that are not given follow the given ones: head_dim
// = width / heads, kv_heads = heads if they are equal in the base, ff = 4 width if the base has
// that ratio.
ModelConfig parse_model_toml(std::string_view text, const std::string& where);
// config.json of one of the families (model/family.h); keys of transformers 4 and 5. Sizes are
// required; other keys default as in transformers. Options that Crest does not compute are
// rejected.
ModelConfig parse_huggingface_config(std::string_view text, const std::string& where);

// A model description is a few hundred bytes. A larger file is something else.
inline constexpr size_t max_model_file_bytes = 1 << 20;

}  // namespace crest
