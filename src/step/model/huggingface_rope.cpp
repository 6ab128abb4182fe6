// Rotary positions in a config.json.
#include <cmath>

#include "model/huggingface_keys.h"

namespace crest {

namespace {

// The file's key wins over the key in the object.
constexpr const char* original_key = "original_max_position_embeddings";

// `s`: the object. `name`: its key, for errors.
void read_scaling(const Keys& file, const Keys& s, const std::string& name, int64_t& context, RopeScaling& out) {
  std::string type = s.text("rope_type", s.text("type", "default").c_str());
  if (type == "default") return;
  std::vector<const char*> needed = {"factor"};
  if (type == "linear") {
    out.type = RopeScalingType::linear;
  } else if (type == "dynamic") {
    out.type = RopeScalingType::dynamic;
  } else if (type == "yarn") {
    out.type = RopeScalingType::yarn;
  } else if (type == "llama3") {
    needed = {"factor", "low_freq_factor", "high_freq_factor"};
  } else {
    fail_usage(fmt::format("'{}.rope_type' is \"{}\"", name, printable(type)), file.where(),
               "Supported: default, linear, dynamic, yarn, llama3.");
  }
  for (const char* key : needed)
    if (!s.find(key))
      fail_usage(fmt::format("'{}.{}' is missing", name, key), file.where(),
                 fmt::format("rope_type {} needs it.", type));
  out.factor = s.number("factor", 1);
  if (!(out.factor >= 1 && out.factor <= 1e6))
    fail_usage(fmt::format("'{}.factor' is {}", name, out.factor), file.where(), "It must be from 1 to a million.");
  if (type == "llama3") {
    out.low_freq_factor = s.number("low_freq_factor", 1), out.high_freq_factor = s.number("high_freq_factor", 4);
    out.original_context = file.size(original_key, s.size(original_key, context));
  } else if (type == "dynamic") {
    // transformers rescales any length beyond max_position_embeddings. Here `factor` limits the
    // context.
    out.original_context = context;
    context = int64_t(double(context) * out.factor);
  } else if (type == "yarn") {
    out.original_context = file.size(original_key, s.size(original_key, context));
    auto nonzero = [&](const char* key, double otherwise) {  // transformers treats 0 as absent
      double x = s.number(key, otherwise);
      return x == 0 ? otherwise : x;
    };
    out.beta_fast = nonzero("beta_fast", 32), out.beta_slow = nonzero("beta_slow", 1);
    out.truncate = s.flag("truncate", true);
    double mscale = nonzero("mscale", 0), all = nonzero("mscale_all_dim", 0), log = 0.1 * std::log(out.factor);
    if (s.find("attention_factor")) {
      out.attention_factor = s.number("attention_factor", 0);
      if (!(out.attention_factor > 0))
        fail_usage(fmt::format("'{}.attention_factor' is {}", name, out.attention_factor), file.where(),
                   "It must be positive, or absent.");
    } else if (mscale != 0 && all != 0) {
      out.attention_factor = (mscale * log + 1) / (all * log + 1);
    }
  }
}

void read_part(const Keys& file, const RopeKeys& keys, double part, int64_t head_dim, const std::string& name,
               LayerConfig& out) {
  if (part == 1) return;
  const auto rotated = int64_t(double(head_dim) * part);
  if (!keys.part_key)
    fail_usage(fmt::format("'{}' is not 1", name), file.where(), "Models of this type rotate whole heads.");
  if (!(part > 0 && part < 1) || rotated < 2 || rotated % 2)
    fail_usage(fmt::format("'{}' = {} rotates {} of the {} elements of a head", name, part, rotated, head_dim),
               file.where(), "It must be an even number of them.");
  out.rotary_dim = rotated;
}

void read_object(const Keys& file, const nlohmann::json& object, const std::string& name, const RopeKeys& keys,
                 int64_t& context, int64_t head_dim, LayerConfig& out) {
  if (!object.is_object()) fail_usage(fmt::format("'{}' must be an object", name), file.where(), "See transformers.");
  for (auto& [key, value] : object.items())
    if (value.is_object())
      fail_usage(fmt::format("'{}' has values of its own for '{}'", name, printable(key, 60)), file.where(),
                 "Models of this type have one rotation for all layers.");
  Keys s(object, file.where(), name + ".");
  out.rope_theta = s.number("rope_theta", out.rope_theta);
  if (s.has("partial_rotary_factor"))
    out.rotary_dim = 0,
    read_part(file, keys, s.number("partial_rotary_factor", 1), head_dim, name + ".partial_rotary_factor", out);
  read_scaling(file, s, name, context, out.rope_scaling);
}

bool given(const Keys& file, const char* key) {
  auto* found = file.find(key);
  return found && !found->empty();
}

}  // namespace

// If a file has both objects, transformers uses rope_scaling only.
void read_rope(const Keys& file, const RopeKeys& keys, ModelConfig& c) {
  const char* name = given(file, "rope_scaling") ? "rope_scaling" : "rope_parameters";
  c.rope_theta = file.number(keys.theta_key, keys.theta);
  const bool in_object =
      given(file, name) && file.find(name)->is_object() && file.find(name)->contains("partial_rotary_factor");
  const char* part_key = keys.part_key ? keys.part_key : "partial_rotary_factor";
  if (!in_object || !keys.part_key) read_part(file, keys, file.number(part_key, keys.part), c.head_dim, part_key, c);
  if (given(file, name)) read_object(file, *file.find(name), name, keys, c.context, c.head_dim, c);
}

void read_rope_of(const Keys& file, const char* layer_type, const RopeKeys& keys, int64_t& context, int64_t head_dim,
                  LayerConfig& layer) {
  layer.rope_theta = keys.theta_key ? file.number(keys.theta_key, keys.theta) : keys.theta;
  nlohmann::json own = nlohmann::json::object();
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (given(file, key) && !file.find(key)->is_object())
      fail_usage(fmt::format("'{}' must be an object", key), file.where(), "See transformers.");
  if (given(file, "rope_parameters")) {
    own = file.find("rope_parameters")->value(layer_type, own);
    if (own.is_null()) own = nlohmann::json::object();
  }
  // Older files.
  if (layer_type == std::string_view("full_attention") && given(file, "rope_scaling") && own.is_object())
    own.update(*file.find("rope_scaling"));
  read_object(file, own, fmt::format("rope_parameters.{}", layer_type), keys, context, head_dim, layer);
}

// transformers rounds the product with head_dim down.
double rotated_part(int64_t rotary_dim, int64_t head_dim) {
  if (!rotary_dim) return 1;
  const double part = double(rotary_dim) / double(head_dim);
  return int64_t(double(head_dim) * part) == rotary_dim ? part : std::nextafter(part, 1.0);
}

nlohmann::ordered_json rope_object(const LayerConfig& layer, int64_t head_dim) {
  const RopeScaling& s = layer.rope_scaling;
  nlohmann::ordered_json j = {{"rope_theta", layer.rope_theta}};
  if (layer.rotary_dim) j["partial_rotary_factor"] = rotated_part(layer.rotary_dim, head_dim);
  if (s.type != RopeScalingType::yarn && s.factor == 1) {
    j["rope_type"] = "default";
    return j;
  }
  j["factor"] = s.factor;
  switch (s.type) {
    case RopeScalingType::llama3:
      j["low_freq_factor"] = s.low_freq_factor;
      j["high_freq_factor"] = s.high_freq_factor;
      j[original_key] = s.original_context;
      break;
    case RopeScalingType::linear:
    case RopeScalingType::dynamic: break;
    case RopeScalingType::yarn:
      j[original_key] = s.original_context;
      j["beta_fast"] = s.beta_fast;
      j["beta_slow"] = s.beta_slow;
      j["truncate"] = s.truncate;
      if (s.attention_factor != 0) j["attention_factor"] = s.attention_factor;
      break;
  }
  j["rope_type"] = name(s.type);
  return j;
}

void write_rope(const ModelConfig& c, nlohmann::ordered_json& out) {
  nlohmann::ordered_json scaling = rope_object(c, c.head_dim);
  out["rope_theta"] = c.rope_theta;
  scaling.erase("rope_theta");
  scaling.erase("partial_rotary_factor");
  if (scaling["rope_type"] != "default") out["rope_scaling"] = scaling;
}

int64_t max_position_embeddings(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  return s.factor != 1 && s.type == RopeScalingType::dynamic ? s.original_context : c.context;
}

}  // namespace crest
