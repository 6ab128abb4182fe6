// Converts the config.json of transformers (GPT2Config, LlamaConfig) to and from ModelConfig.
#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "model/config_files.h"

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

ModelConfig read_gpt2(const Keys& k) {
  ModelConfig c;
  c.width = k.size("n_embd");
  c.layers = k.size("n_layer");
  c.heads = c.kv_heads = k.size("n_head");
  c.vocab = k.size("vocab_size");
  c.context = k.find("n_positions") ? k.size("n_positions") : k.size("n_ctx");
  c.ff = k.size("n_inner", 4 * c.width);
  if (c.width % c.heads)
    fail_usage(fmt::format("n_head = {} does not divide n_embd = {}", c.heads, c.width), k.where(),
               "In GPT-2 the heads divide the width equally.");
  c.head_dim = c.width / c.heads;
  std::string activation = k.text("activation_function", "gelu_new");
  if (activation == "gelu")
    c.activation = ActivationKind::gelu_erf;
  else if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    fail_usage(fmt::format("'activation_function' is \"{}\"", printable(activation)), k.where(),
               "Supported: gelu_new and gelu_pytorch_tanh (tanh form), gelu (exact).");
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
void read_rope(const Keys& k, ModelConfig& c) {
  const nlohmann::json* parameters = k.find("rope_parameters");
  const char* name = parameters ? "rope_parameters" : "rope_scaling";
  const nlohmann::json* scaling = parameters ? parameters : k.find("rope_scaling");
  c.rope_theta = k.number("rope_theta", 10000);
  if (!scaling) return;
  if (!scaling->is_object()) fail_usage(fmt::format("'{}' must be an object", name), k.where(), "See transformers.");
  Keys s(*scaling, k.where(), std::string(name) + ".");
  c.rope_theta = s.number("rope_theta", c.rope_theta);
  if (s.number("partial_rotary_factor", 1) != 1)
    fail_usage("'partial_rotary_factor' is not 1", k.where(), "Crest supports rotation of whole heads only.");
  std::string type = s.text("rope_type", s.text("type", "default").c_str());
  if (type == "default") return;
  if (type != "llama3")
    fail_usage(fmt::format("'{}.rope_type' is \"{}\"", name, printable(type)), k.where(),
               "Supported: default, llama3.");
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    if (!s.find(key)) fail_usage(fmt::format("'{}.{}' is missing", name, key), k.where(), "rope_type llama3 needs it.");
  c.rope_scaling = {s.number("factor", 1), s.number("low_freq_factor", 1), s.number("high_freq_factor", 4),
                    s.size("original_max_position_embeddings")};
}

ModelConfig read_llama(const Keys& k) {
  ModelConfig c;
  c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = ActivationKind::swiglu, c.bias = false;
  c.width = k.size("hidden_size");
  c.ff = k.size("intermediate_size");
  c.layers = k.size("num_hidden_layers");
  c.heads = k.size("num_attention_heads");
  c.kv_heads = k.size("num_key_value_heads", c.heads);
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
  k.must_be("attention_bias", false, "Llama models in Crest have no biases.");
  k.must_be("mlp_bias", false, "Llama models in Crest have no biases.");
  if (k.number("attention_dropout", 0) != 0)
    fail_usage("'attention_dropout' is not 0", k.where(),
               "Crest's dropout also applies to the embedding and residual branches. Set it to 0.");
  read_rope(k, c);
  return c;
}

}  // namespace

ModelConfig parse_huggingface_config(std::string_view text, const std::string& where) {
  nlohmann::json object = parse_json_guarded(text, {.bytes = 1 << 20, .values = 10'000}, where);
  if (!object.is_object()) fail_usage("is not a JSON object", where, "Give a Hugging Face config.json.");
  Keys keys(object, where);
  if (!keys.find("model_type"))
    fail_usage("'model_type' is missing", where, "Supported: gpt2, llama. Give a Hugging Face config.json.");
  std::string type = keys.text("model_type", "");
  if (type != "gpt2" && type != "llama")
    fail_usage(fmt::format("model_type \"{}\" is not supported", printable(type)), where, "Supported: gpt2, llama.");
  ModelConfig c = type == "gpt2" ? read_gpt2(keys) : read_llama(keys);
  c.name = type;
  validate(c, where);
  return c;
}

std::string to_huggingface_config(const ModelConfig& c, const TextEnds& ends) {
  nlohmann::ordered_json j;
  bool equal_heads = c.heads == c.kv_heads && c.heads * c.head_dim == c.width;
  if (c.norm == NormKind::layer && c.position == PositionKind::learned && c.activation != ActivationKind::swiglu &&
      c.bias && equal_heads) {
    j = {{"architectures", {"GPT2LMHeadModel"}},
         {"model_type", "gpt2"},
         {"vocab_size", c.vocab},
         {"n_positions", c.context},
         {"n_embd", c.width},
         {"n_layer", c.layers},
         {"n_head", c.heads},
         {"n_inner", c.ff},
         {"activation_function", c.activation == ActivationKind::gelu ? "gelu_new" : "gelu"},
         {"layer_norm_epsilon", c.norm_eps},
         {"resid_pdrop", c.dropout},
         {"embd_pdrop", c.dropout},
         {"attn_pdrop", c.dropout}};
  } else if (c.norm == NormKind::rms && c.position == PositionKind::rope && c.activation == ActivationKind::swiglu &&
             !c.bias) {
    // Dropout is left out: transformers' Llama has none on its residuals, and it does not change
    // the trained function.
    j = {{"architectures", {"LlamaForCausalLM"}},
         {"model_type", "llama"},
         {"vocab_size", c.vocab},
         {"max_position_embeddings", c.context},
         {"hidden_size", c.width},
         {"num_hidden_layers", c.layers},
         {"num_attention_heads", c.heads},
         {"num_key_value_heads", c.kv_heads},
         {"head_dim", c.head_dim},
         {"intermediate_size", c.ff},
         {"hidden_act", "silu"},
         {"rms_norm_eps", c.norm_eps},
         {"attention_bias", false},
         {"mlp_bias", false},
         {"rope_theta", c.rope_theta}};
    const RopeScaling& s = c.rope_scaling;
    if (s.factor != 1)
      j["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", s.factor},
                           {"low_freq_factor", s.low_freq_factor},
                           {"high_freq_factor", s.high_freq_factor},
                           {"original_max_position_embeddings", s.original_context}};
  } else {
    return "";
  }
  j["tie_word_embeddings"] = c.tied;
  j["torch_dtype"] = "float32";
  auto id = [](const std::optional<uint32_t>& token) {
    return token ? nlohmann::ordered_json(*token) : nlohmann::ordered_json();
  };
  j["bos_token_id"] = id(ends.begin);
  j["eos_token_id"] = id(ends.end);
  return j.dump(2) + "\n";
}

}  // namespace crest
