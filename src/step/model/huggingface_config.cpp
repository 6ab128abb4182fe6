// Converts a transformers config.json to ModelConfig and back: the part shared by all families.
#include <algorithm>

#include "core/json.h"
#include "model/config_files.h"
#include "model/family.h"
#include "model/huggingface_keys.h"

namespace crest {

namespace {

// Unsupported parts of published models, with the keys that request them.
struct Lack {
  const char *key, *what;
};
constexpr Lack lacks[] = {{"num_local_experts", "experts"},
                          {"num_experts", "experts"},
                          {"n_routed_experts", "experts"},
                          {"moe_num_experts", "experts"},
                          {"kv_lora_rank", "latent attention"},
                          {"attn_logit_softcapping", "a cap of attention scores"},
                          {"vision_config", "vision parts"},
                          {"audio_config", "audio parts"},
                          {"use_bidirectional_attention", "attention to later tokens"}};

void refuse_lacks(const Keys& keys) {
  for (auto& lack : lacks) {
    auto* found = keys.find(lack.key);
    if (!found || *found == 0 || *found == false || (found->is_object() && found->empty())) continue;
    fail_usage(fmt::format("the model has {} ('{}')", lack.what, lack.key), keys.where(),
               fmt::format("Crest does not have {} yet.", lack.what));
  }
}

ModelConfig read_config(const Keys& keys, const Family& family) {
  ModelConfig c = family.read(keys);
  c.name = family.type;
  return c;
}

nlohmann::ordered_json written(const ModelConfig& c, const Family& family, bool* possible) {
  nlohmann::ordered_json j = {{"architectures", {family.architecture}}, {"model_type", family.type}};
  *possible = family.write(c, j);
  j["tie_word_embeddings"] = c.tied;
  return j;
}

// Whether the family's file describes the whole model. Dropout may be missing: most classes have
// none on residual branches, and it does not change the trained function.
bool holds(const Family& family, const ModelConfig& c) {
  bool possible = false;
  const nlohmann::json j = written(c, family, &possible);
  if (!possible) return false;
  try {
    ModelConfig back = read_config(Keys(j, ""), family);
    back.name = c.name, back.family = c.family, back.dropout = c.dropout;
    back.zero_projections = c.zero_projections;  // affects new models only
    return back == c;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

const Family* family_of(const ModelConfig& config) {
  ModelConfig c = config.base();  // files of families hold no adapters
  c.simplify();
  if (const Family* own = find_family(c.family); own && holds(*own, c)) return own;
  for (auto& family : families())
    if (holds(family, c)) return &family;
  return nullptr;
}

ModelConfig parse_huggingface_config(std::string_view text, const std::string& where) {
  nlohmann::json object = parse_json_guarded(text, {.bytes = max_model_file_bytes, .values = 10'000}, where);
  if (!object.is_object()) fail_usage("is not a JSON object", where, "Give a Hugging Face config.json.");
  Keys keys(object, where);
  const std::string supported = "Supported: " + family_types() + ".";
  if (!keys.find("model_type"))
    fail_usage("'model_type' is missing", where, supported + " Give a Hugging Face config.json.");
  std::string type = keys.text("model_type", "");
  refuse_lacks(keys);
  const Family* family = find_family(type);
  if (!family) fail_usage(fmt::format("model_type \"{}\" is not supported", printable(type)), where, supported);
  keys.must_be("is_causal", true, "Crest trains decoders: a token sees no later one.");
  keys.must_be_absent("per_layer_config", "Crest supports layers of one shape.");
  keys.must_be_absent("configuration_files", "transformers reads another file in its place. Give that file.");
  ModelConfig c = read_config(keys, *family);
  validate(c, where);
  if (family_of(c) != family) c.family = family->type;
  return c;
}

nlohmann::ordered_json eos_token_id(const TextEnds& ends) {
  if (ends.end.empty()) return nullptr;
  return ends.end.size() == 1 ? nlohmann::ordered_json(ends.end[0]) : nlohmann::ordered_json(ends.end);
}

std::string to_huggingface_config(const ModelConfig& c, const TextEnds& ends) {
  const Family* family = family_of(c);
  if (!family) return "";
  bool possible = false;
  nlohmann::ordered_json j = written(c, *family, &possible);
  j["torch_dtype"] = "float32";
  j["bos_token_id"] = ends.begin ? nlohmann::ordered_json(*ends.begin) : nlohmann::ordered_json();
  j["eos_token_id"] = eos_token_id(ends);
  return j.dump(2) + "\n";
}

}  // namespace crest
