// Converts the config.json of transformers (GPT2Config, and the configurations of Llama, Mistral
// and Qwen 2) to and from ModelConfig.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "model/config_files.h"
#include "model/weights_map.h"

namespace crest {

namespace {

// Typed access to the keys of one JSON object. Null means absent, as in transformers.
class Keys {
 public:
  Keys(const nlohmann::json& object, std::string where, std::string prefix = "")
      : object_(object), where_(std::move(where)), prefix_(std::move(prefix)) {}

  const nlohmann::json* find(const char* key) const {
    auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool has_null(const char* key) const {
    auto it = object_.find(key);
    return it != object_.end() && it->is_null();
  }
  // Of two keys for one value, the name of the one that counts.
  const char* either(const char* first, const char* otherwise) const { return find(first) ? first : otherwise; }
  int64_t size(const char* key) const {
    auto* v = find(key);
    if (!v)
      fail_usage(fmt::format("'{}{}' is missing", prefix_, key), where_, "Add it; every model of this type has it.");
    return size(key, 0);
  }
  int64_t size(const char* key, int64_t otherwise) const {
    auto* v = find(key);
    if (!v) return otherwise;
    if (!v->is_number_integer()) wrong(key, *v, "a whole number");
    if (v->is_number_unsigned() ? v->get<uint64_t>() > uint64_t(1) << 40 : true) wrong(key, *v, "between 1 and 2^40");
    if (v->get<int64_t>() < 1) wrong(key, *v, "at least 1");
    return v->get<int64_t>();
  }
  // A size that may be 0.
  int64_t count(const char* key, int64_t otherwise) const {
    auto* v = find(key);
    return v && v->is_number_integer() && *v == 0 ? 0 : size(key, otherwise);
  }
  double number(const char* key, double otherwise) const {
    auto* v = find(key);
    if (!v) return otherwise;
    if (!v->is_number()) wrong(key, *v, "a number");
    return v->get<double>();
  }
  bool flag(const char* key, bool otherwise) const {
    auto* v = find(key);
    if (!v) return otherwise;
    if (!v->is_boolean()) wrong(key, *v, "true or false");
    return v->get<bool>();
  }
  std::string text(const char* key, const char* otherwise) const {
    auto* v = find(key);
    if (!v) return otherwise;
    if (!v->is_string()) wrong(key, *v, "a string");
    return v->get<std::string>();
  }
  // Rejects a flag if its value means something that Crest does not compute.
  void must_be(const char* key, bool expected, const char* reason) const {
    if (flag(key, expected) != expected) fail_usage(fmt::format("'{}' is {}", key, !expected), where_, reason);
  }
  void must_be_absent(const char* key, const char* reason) const {
    if (auto* v = find(key); v && !v->empty()) fail_usage(fmt::format("has '{}'", key), where_, reason);
  }
  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void wrong(const char* key, const nlohmann::json& v, const char* expected) const {
    std::string shown = v.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    fail_usage(fmt::format("'{}{}' must be {}, not {}", prefix_, key, expected, printable(shown, 60)), where_,
               "Correct the file, or give a preset or a TOML file.");
  }
  const nlohmann::json& object_;
  std::string where_, prefix_;
};

// The names of transformers' activation functions; the first name of a kind is written.
constexpr struct {
  const char* name;
  ActivationKind kind;
} activations[] = {{"gelu_new", ActivationKind::gelu},        {"gelu_pytorch_tanh", ActivationKind::gelu},
                   {"gelu_fast", ActivationKind::gelu},       {"gelu", ActivationKind::gelu_erf},
                   {"gelu_python", ActivationKind::gelu_erf}, {"relu", ActivationKind::relu}};

// GPT2Config's sizes have second names. transformers lets the second name win.
ModelConfig read_gpt2(const Keys& k) {
  ModelConfig c;
  c.width = k.size(k.either("hidden_size", "n_embd"));
  c.layers = k.size(k.either("num_hidden_layers", "n_layer"));
  c.heads = c.kv_heads = k.size(k.either("num_attention_heads", "n_head"));
  c.vocab = k.size("vocab_size");
  const char* context = k.either("max_position_embeddings", "n_positions");
  if (!k.find(context) && k.find("n_ctx"))
    fail_usage("'n_positions' is missing", k.where(), "transformers ignores 'n_ctx': give its value as n_positions.");
  c.context = k.size(context);
  c.ff = k.size("n_inner", 4 * c.width);
  if (c.width % c.heads)
    fail_usage(fmt::format("n_head = {} does not divide n_embd = {}", c.heads, c.width), k.where(),
               "In GPT-2 the heads divide the width equally.");
  c.head_dim = c.width / c.heads;
  std::string activation = k.text("activation_function", "gelu_new");
  auto known =
      std::find_if(std::begin(activations), std::end(activations), [&](auto& a) { return activation == a.name; });
  if (known == std::end(activations))
    fail_usage(fmt::format("'activation_function' is \"{}\"", printable(activation)), k.where(),
               "Supported: gelu_new, gelu_pytorch_tanh and gelu_fast (tanh form), gelu and gelu_python (exact), relu.");
  c.activation = known->kind;
  c.norm_eps = k.number("layer_norm_epsilon", 1e-5);
  c.tied = k.flag("tie_word_embeddings", true);
  c.dropout = k.number("resid_pdrop", 0.1);
  for (const char* other : {"embd_pdrop", "attn_pdrop"})
    if (k.number(other, 0.1) != c.dropout)
      fail_usage(fmt::format("'{}' = {} differs from 'resid_pdrop' = {}", other, k.number(other, 0.1), c.dropout),
                 k.where(), "Crest has one dropout probability: make resid_pdrop, embd_pdrop and attn_pdrop equal.");
  k.must_be("scale_attn_weights", true, "Crest scales attention scores by 1 / sqrt(head_dim).");
  k.must_be("scale_attn_by_inverse_layer_idx", false, "Crest does not scale attention by the layer index.");
  k.must_be("add_cross_attention", false, "Crest trains decoders without cross-attention.");
  return c;
}

// transformers 4 has rope_theta and rope_scaling; transformers 5 has rope_parameters with both.
// Where a file has both objects, transformers uses rope_scaling and nothing of rope_parameters.
void read_rope(const Keys& k, ModelConfig& c) {
  auto given = [&](const char* key) {
    auto* found = k.find(key);
    return found && !found->empty();
  };
  const char* name = given("rope_scaling") ? "rope_scaling" : "rope_parameters";
  c.rope_theta = k.number("rope_theta", 10000);
  if (k.number("partial_rotary_factor", 1) != 1)
    fail_usage("'partial_rotary_factor' is not 1", k.where(), "Crest supports rotation of whole heads only.");
  if (!given(name)) return;
  const nlohmann::json& scaling = *k.find(name);
  if (!scaling.is_object()) fail_usage(fmt::format("'{}' must be an object", name), k.where(), "See transformers.");
  for (auto& [key, value] : scaling.items())
    if (value.is_object())
      fail_usage(fmt::format("'{}' has values of its own for '{}'", name, printable(key, 60)), k.where(),
                 "Crest supports one rotation for all layers.");
  Keys s(scaling, k.where(), std::string(name) + ".");
  c.rope_theta = s.number("rope_theta", c.rope_theta);
  if (s.number("partial_rotary_factor", 1) != 1)
    fail_usage(fmt::format("'{}.partial_rotary_factor' is not 1", name), k.where(),
               "Crest supports rotation of whole heads only.");
  std::string type = s.text("rope_type", s.text("type", "default").c_str());
  if (type == "default") return;
  RopeScaling& out = c.rope_scaling;
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
    fail_usage(fmt::format("'{}.rope_type' is \"{}\"", name, printable(type)), k.where(),
               "Supported: default, linear, dynamic, yarn, llama3.");
  }
  for (const char* key : needed)
    if (!s.find(key))
      fail_usage(fmt::format("'{}.{}' is missing", name, key), k.where(), fmt::format("rope_type {} needs it.", type));
  out.factor = s.number("factor", 1);
  if (!(out.factor >= 1 && out.factor <= 1e6))
    fail_usage(fmt::format("'{}.factor' is {}", name, out.factor), k.where(), "It must be from 1 to a million.");
  // The file's key wins over the key in the object.
  const char* original = "original_max_position_embeddings";
  if (type == "llama3") {
    out.low_freq_factor = s.number("low_freq_factor", 1), out.high_freq_factor = s.number("high_freq_factor", 4);
    out.original_context = k.size(original, s.size(original, c.context));
  } else if (type == "dynamic") {
    // transformers rescales beyond max_position_embeddings, for any length. Here `factor` ends it.
    out.original_context = c.context;
    c.context = int64_t(double(c.context) * out.factor);
  } else if (type == "yarn") {
    out.original_context = k.size(original, s.size(original, c.context));
    auto nonzero = [&](const char* key, double otherwise) {  // transformers takes 0 for absent
      double x = s.number(key, otherwise);
      return x == 0 ? otherwise : x;
    };
    out.beta_fast = nonzero("beta_fast", 32), out.beta_slow = nonzero("beta_slow", 1);
    out.truncate = s.flag("truncate", true);
    double mscale = nonzero("mscale", 0), all = nonzero("mscale_all_dim", 0), log = 0.1 * std::log(out.factor);
    if (s.find("attention_factor")) {
      out.attention_factor = s.number("attention_factor", 0);
      if (!(out.attention_factor > 0))
        fail_usage(fmt::format("'{}.attention_factor' is {}", name, out.attention_factor), k.where(),
                   "It must be positive, or absent.");
    } else if (mscale != 0 && all != 0) {
      out.attention_factor = (mscale * log + 1) / (all * log + 1);
    }
  }
}

// Models whose layers are Llama's.
struct LlamaLike {
  const char* type;
  int64_t kv_heads;  // if the file has no such key; 0: as many as heads
  bool qkv_bias;
  int64_t window;            // of attention, if the file has none; 0: no window
  const char* uses_window;   // flag without which the window has no effect
  const char* first_window;  // key of the first layer with the window, and its default; null: all have it
  int64_t first_window_layer;
};
constexpr LlamaLike llama_likes[] = {{"llama", 0, false, 0, nullptr, nullptr, 0},
                                     {"mistral", 8, false, 4096, nullptr, nullptr, 0},
                                     {"qwen2", 32, true, 4096, "use_sliding_window", "max_window_layers", 28}};

// Which layers have the window of `sliding_window` tokens: in Qwen 2 those with "sliding_attention"
// in `layer_types`, which default to those from `max_window_layers` on; in Mistral all.
void read_window(const Keys& k, const LlamaLike& like, ModelConfig& c) {
  const nlohmann::json* types = k.find("layer_types");
  std::vector<bool> windows;
  if (types) {
    if (!types->is_array() || int64_t(types->size()) != c.layers)
      fail_usage(fmt::format("'layer_types' is no list of {} layers", c.layers), k.where(),
                 "It has as many entries as num_hidden_layers.");
    for (auto& type : *types) {
      if (type != "full_attention" && !(like.window && type == "sliding_attention"))
        fail_usage(fmt::format("'layer_types' has {}", printable(type.dump(), 60)), k.where(),
                   like.window ? "Supported: full_attention, sliding_attention." : "Supported: full_attention.");
      windows.push_back(type == "sliding_attention");
    }
  }
  const bool unused = like.uses_window && !k.flag(like.uses_window, false);
  if (!like.window || unused || k.has_null("sliding_window")) {
    if (std::find(windows.begin(), windows.end(), true) != windows.end())
      fail_usage(fmt::format("'layer_types' has sliding_attention though '{}' is {}",
                             unused ? like.uses_window : "sliding_window", unused ? "false" : "null"),
                 k.where(), "Set sliding_window, or give these layers full_attention.");
    return;
  }
  int64_t window = k.size("sliding_window", like.window);
  int64_t first = like.first_window ? k.count(like.first_window, like.first_window_layer) : 0;
  if (types && like.first_window) {
    first = std::find(windows.begin(), windows.end(), true) - windows.begin();
    if (std::find(windows.begin() + first, windows.end(), false) != windows.end())
      fail_usage("'layer_types' has full_attention after sliding_attention", k.where(),
                 "Supported: a window in all layers, or in all but the first ones.");
  } else if (std::find(windows.begin(), windows.end(), false) != windows.end()) {
    fail_usage(fmt::format("'layer_types' has full_attention though 'sliding_window' is {}", window), k.where(),
               "MistralForCausalLM has the window in all layers, AutoModelForCausalLM only where layer_types says so. "
               "Set sliding_window to null for none.");
  }
  if (first >= c.layers) return;
  c.window = window, c.full_layers = first;
}

ModelConfig read_llama(const Keys& k, const LlamaLike& like) {
  ModelConfig c;
  c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = ActivationKind::swiglu, c.bias = false;
  c.width = k.size("hidden_size");
  c.ff = k.size("intermediate_size");
  c.layers = k.size("num_hidden_layers");
  c.heads = k.size("num_attention_heads");
  const bool as_many = !like.kv_heads || k.has_null("num_key_value_heads");
  c.kv_heads = k.size("num_key_value_heads", as_many ? c.heads : like.kv_heads);
  c.vocab = k.size("vocab_size");
  c.context = k.size("max_position_embeddings");
  if (!k.find("head_dim") && c.width % c.heads)
    fail_usage(fmt::format("num_attention_heads = {} does not divide hidden_size = {}", c.heads, c.width), k.where(),
               "Give head_dim if the heads do not divide the width equally.");
  c.head_dim = k.size("head_dim", c.width / c.heads);
  c.norm_eps = k.number("rms_norm_eps", 1e-6);
  c.tied = k.flag("tie_word_embeddings", false);
  std::string activation = k.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    fail_usage(fmt::format("'hidden_act' is \"{}\"", printable(activation)), k.where(), "Supported: silu.");
  c.qkv_bias = like.qkv_bias;
  if (like.type == std::string_view("llama")) {
    c.attention_bias = k.flag("attention_bias", false);
    c.mlp_bias = k.flag("mlp_bias", false);
  }
  if (k.number("attention_dropout", 0) != 0)
    fail_usage("'attention_dropout' is not 0", k.where(),
               "Crest's dropout also applies to the embedding and residual branches. Set it to 0.");
  read_rope(k, c);
  read_window(k, like, c);
  return c;
}

}  // namespace

ModelConfig parse_huggingface_config(std::string_view text, const std::string& where) {
  nlohmann::json object = parse_json_guarded(text, {.bytes = max_model_file_bytes, .values = 10'000}, where);
  if (!object.is_object()) fail_usage("is not a JSON object", where, "Give a Hugging Face config.json.");
  Keys keys(object, where);
  const std::string supported = "Supported: gpt2, llama, mistral, qwen2.";
  if (!keys.find("model_type"))
    fail_usage("'model_type' is missing", where, supported + " Give a Hugging Face config.json.");
  std::string type = keys.text("model_type", "");
  auto like = std::find_if(std::begin(llama_likes), std::end(llama_likes), [&](auto& l) { return type == l.type; });
  if (type != "gpt2" && like == std::end(llama_likes))
    fail_usage(fmt::format("model_type \"{}\" is not supported", printable(type)), where, supported);
  keys.must_be("is_causal", true, "Crest trains decoders: a token sees no later one.");
  keys.must_be_absent("per_layer_config", "Crest supports layers of one shape.");
  keys.must_be_absent("configuration_files", "transformers reads another file in its place. Give that file.");
  ModelConfig c = type == "gpt2" ? read_gpt2(keys) : read_llama(keys, *like);
  c.name = type;
  validate(c, where);
  return c;
}

static void write_rope(const RopeScaling& s, nlohmann::ordered_json& j) {
  nlohmann::ordered_json scaling = {{"factor", s.factor}};
  if (s.type != RopeScalingType::yarn && s.factor == 1) return;
  switch (s.type) {
    case RopeScalingType::llama3:
      scaling["low_freq_factor"] = s.low_freq_factor;
      scaling["high_freq_factor"] = s.high_freq_factor;
      scaling["original_max_position_embeddings"] = s.original_context;
      break;
    case RopeScalingType::linear:
    case RopeScalingType::dynamic: break;
    case RopeScalingType::yarn:
      scaling["original_max_position_embeddings"] = s.original_context;
      scaling["beta_fast"] = s.beta_fast;
      scaling["beta_slow"] = s.beta_slow;
      scaling["truncate"] = s.truncate;
      if (s.attention_factor != 0) scaling["attention_factor"] = s.attention_factor;
      break;
  }
  scaling["rope_type"] = name(s.type);
  j["rope_scaling"] = scaling;
}

nlohmann::ordered_json eos_token_id(const TextEnds& ends) {
  if (ends.end.empty()) return nullptr;
  return ends.end.size() == 1 ? nlohmann::ordered_json(ends.end[0]) : nlohmann::ordered_json(ends.end);
}

std::string to_huggingface_config(const ModelConfig& c, const TextEnds& ends) {
  nlohmann::ordered_json j;
  const WeightFormat format = weight_format(c);
  if (format == WeightFormat::crest) return "";
  if (format == WeightFormat::gpt2) {
    if (c.window) return "";
    auto activation =
        std::find_if(std::begin(activations), std::end(activations), [&](auto& a) { return c.activation == a.kind; });
    j = {{"architectures", {"GPT2LMHeadModel"}},
         {"model_type", "gpt2"},
         {"vocab_size", c.vocab},
         {"n_positions", c.context},
         {"n_embd", c.width},
         {"n_layer", c.layers},
         {"n_head", c.heads},
         {"n_inner", c.ff},
         {"activation_function", activation->name},
         {"layer_norm_epsilon", c.norm_eps},
         {"resid_pdrop", c.dropout},
         {"embd_pdrop", c.dropout},
         {"attn_pdrop", c.dropout}};
  } else {
    // Mistral is Llama without biases, with an optional window in every layer. transformers refuses
    // a Llama whose heads do not divide the width, and takes such a Mistral.
    const bool qwen = c.qkv_bias && !c.attention_bias;  // biases of the query, key and value only
    const bool mistral = !qwen && (c.window || c.width % c.heads);
    if (mistral && ((c.window && c.full_layers) || c.attention_bias || c.mlp_bias)) return "";
    // Dropout is left out: transformers' Llama has none on its residuals, and it does not change
    // the trained function.
    const RopeScaling& s = c.rope_scaling;
    bool dynamic = s.factor != 1 && s.type == RopeScalingType::dynamic;
    const char* type = qwen ? "qwen2" : mistral ? "mistral" : "llama";
    j = {{"architectures",
          {qwen      ? "Qwen2ForCausalLM"
           : mistral ? "MistralForCausalLM"
                     : "LlamaForCausalLM"}},
         {"model_type", type},
         {"vocab_size", c.vocab},
         {"max_position_embeddings", dynamic ? s.original_context : c.context},
         {"hidden_size", c.width},
         {"num_hidden_layers", c.layers},
         {"num_attention_heads", c.heads},
         {"num_key_value_heads", c.kv_heads},
         {"head_dim", c.head_dim},
         {"intermediate_size", c.ff},
         {"hidden_act", "silu"},
         {"rms_norm_eps", c.norm_eps},
         {"attention_bias", c.attention_bias},
         {"mlp_bias", c.mlp_bias},
         {"rope_theta", c.rope_theta}};
    if (qwen || mistral) j.erase("attention_bias"), j.erase("mlp_bias");
    if (qwen) j["use_sliding_window"] = c.window > 0;
    if (qwen && c.window) j["max_window_layers"] = c.full_layers;
    if (c.window) j["sliding_window"] = c.window;
    if (mistral && !c.window) j["sliding_window"] = nullptr;
    write_rope(s, j);
  }
  j["tie_word_embeddings"] = c.tied;
  j["torch_dtype"] = "float32";
  j["bos_token_id"] = ends.begin ? nlohmann::ordered_json(*ends.begin) : nlohmann::ordered_json();
  j["eos_token_id"] = eos_token_id(ends);
  return j.dump(2) + "\n";
}

}  // namespace crest
