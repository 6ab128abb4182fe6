#include "cli/recipe_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace crest {

using Json = nlohmann::ordered_json;

Json recipe_to_json(const Recipe& r) {
  Json kernels = Json::object();
  for (auto& [op, pattern] : r.kernels) kernels[op] = pattern;
  Json json = {{"model", r.model.name},
               {"vocab", r.model.vocab},
               {"dropout", r.model.dropout},
               {"batch", r.batch},
               {"seq", r.seq_length()},
               {"grad_accumulation", r.grad_accumulation},
               {"data_parallel", r.data_parallel},
               {"precision", r.precision},
               {"policy", r.policy},
               {"grad_dtype", r.grad_dtype},
               {"attention", r.attention},
               {"fusion", r.fusion},
               {"pad_vocab", r.pad_vocab},
               {"recompute", r.recompute},
               {"optimizer", r.optimizer},
               {"weight_decay", r.weight_decay},
               {"beta1", r.beta1},
               {"beta2", r.beta2},
               {"eps", r.eps},
               {"clip", r.clip},
               {"loss_scale", r.loss_scale},
               {"kernel", kernels},
               {"disable_pass", r.disabled_passes},
               {"deterministic", r.deterministic}};
  for (auto& [lever, value] : r.levers) {
    std::string key = lever;
    std::replace(key.begin(), key.end(), '-', '_');
    json[key] = value;
  }
  return json;
}

std::vector<std::string> recipe_flags(const Recipe& recipe) {
  std::vector<std::string> flags;
  Json levers = recipe_to_json(recipe);
  for (auto& [key, value] : levers.items()) {
    if (key == "model") continue;
    std::string flag = "--" + key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (value.is_object())
      for (auto& [name, pattern] : value.items()) flags.push_back(flag + "=" + name + "=" + pattern.get<std::string>());
    else if (value.is_array())
      for (auto& element : value) flags.push_back(flag + "=" + element.get<std::string>());
    else if (!value.is_boolean())
      flags.push_back(flag + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
    else if (value.get<bool>())
      flags.push_back(flag);
  }
  return flags;
}

Json model_to_json(const ModelConfig& m) {
  return {{"name", m.name},
          {"vocab", m.vocab},
          {"context", m.context},
          {"layers", m.layers},
          {"heads", m.heads},
          {"kv_heads", m.kv_heads},
          {"width", m.width},
          {"head_dim", m.head_dim},
          {"ff", m.ff},
          {"norm", m.norm == NormKind::layer ? "layer" : "rms"},
          {"position", m.position == PositionKind::learned ? "learned" : "rope"},
          {"activation", name(m.activation)},
          {"bias", m.bias},
          {"tied", m.tied},
          {"dropout", m.dropout},
          {"parameters", m.parameters()}};
}

Json device_to_json(const Device& d) {
  return {{"kind", d.kind},          {"index", d.index}, {"name", d.name},
          {"threads", d.threads},    {"isa", d.isa},     {"native_bf16", d.native_bf16},
          {"memory_bytes", d.memory}};
}

Json categories_to_json(const CategoryBytes& bytes, int64_t times) {
  Json json = Json::object();
  for (int i = 0; i < category_count; ++i) json[std::string(name(Category(i)))] = bytes[size_t(i)] * times;
  return json;
}

void print_json(const Json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace crest
