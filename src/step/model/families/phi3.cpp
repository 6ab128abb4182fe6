// Phi-3 and Phi-4: Llama with fused matrices, optional windows in all layers, and optional partial
// rotation.
#include <algorithm>
#include <cmath>

#include "model/families/decoder.h"

namespace crest {

namespace {

constexpr RopeKeys phi3_rope = {.part_key = "partial_rotary_factor"};

// longrope divides frequencies by short_factor up to the original context and by long_factor
// beyond. Crest supports the first part, so the context ends there. Rotated vectors are scaled.
void read_longrope(const Keys& k, const Keys& rope, ModelConfig& c) {
  const nlohmann::json* factors = rope.find("short_factor");
  if (!factors || !factors->is_array() || factors->empty())
    fail_usage("'short_factor' is missing", k.where(), "rope_type longrope needs it: a list of numbers.");
  for (auto& factor : *factors)
    if (factor != 1)
      fail_usage(fmt::format("'short_factor' has {}", printable(factor.dump(), 60)), k.where(),
                 "Crest supports longrope whose short_factor is 1 for all pairs.");
  const char* original_key = "original_max_position_embeddings";
  const int64_t original = k.size(original_key, rope.size(original_key, 4096));
  const double factor = rope.number("factor", double(c.context) / double(original));
  const double scale = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(double(original)));
  c.rope_scaling.type = RopeScalingType::yarn;  // with factor 1, only attention_factor has an effect
  c.rope_scaling.attention_factor = rope.number("attention_factor", scale);
  if (!(c.rope_scaling.attention_factor > 0))
    fail_usage(fmt::format("'attention_factor' is {}", c.rope_scaling.attention_factor), k.where(),
               "It must be positive, or absent.");
  c.context = std::min(c.context, original);
}

ModelConfig read_phi3(const Keys& k) {
  ModelConfig c = read_decoder(k, {.eps = 1e-5});
  require_silu(k);
  require_no_dropout(k, {"attention_dropout", "resid_pdrop", "embd_pdrop"});
  const char* name = k.has("rope_scaling") && !k.find("rope_scaling")->empty() ? "rope_scaling" : "rope_parameters";
  nlohmann::json plain = k.object();
  if (k.has(name) && k.find(name)->is_object()) {
    const Keys rope(*k.find(name), k.where(), std::string(name) + ".");
    const std::string type = rope.text("rope_type", rope.text("type", "default").c_str());
    if (type != "default" && type != "longrope" && type != "su")
      fail_usage(fmt::format("'{}.rope_type' is \"{}\"", name, printable(type)), k.where(),
                 "Models of this type have rope_type default or longrope.");
    if (type != "default") read_longrope(k, rope, c);
    plain[name]["rope_type"] = "default";
  }
  read_rope(Keys(plain, k.where()), phi3_rope, c);
  if (k.has("sliding_window")) c.window = k.size("sliding_window");
  return c;
}

bool write_phi3(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {});
  j["hidden_act"] = "silu";
  j["rope_theta"] = c.rope_theta;
  j["original_max_position_embeddings"] = c.context;
  j[phi3_rope.part_key] = rotated_part(c.rotary_dim, c.head_dim);
  if (c.rope_scaling.type == RopeScalingType::yarn) {
    const std::vector<double> ones(size_t((c.rotary_dim ? c.rotary_dim : c.head_dim) / 2), 1.0);
    j["rope_scaling"] = {{"type", "longrope"},
                         {"short_factor", ones},
                         {"long_factor", ones},
                         {"attention_factor", c.rope_scaling.attention_factor}};
  }
  j["sliding_window"] = c.window ? nlohmann::ordered_json(c.window) : nlohmann::ordered_json();
  j["pad_token_id"] = nullptr;  // the default may be outside the vocabulary
  return c.width % c.heads == 0;
}

const TensorNames phi3_names = {"model.",
                                "layers.",
                                {{"wte", "embed_tokens"}, {"ln_f", "norm"}},
                                {{"ln_1", "input_layernorm"},
                                 {"ln_2", "post_attention_layernorm"},
                                 {"attn.qkv", "self_attn.qkv_proj"},
                                 {"attn.proj", "self_attn.o_proj"},
                                 {"mlp.gate+mlp.up", "mlp.gate_up_proj", TensorForm::joined},
                                 {"mlp.proj", "mlp.down_proj"}}};

}  // namespace

extern const Family phi3_family = {"phi3", "Phi3ForCausalLM", "phi3", phi3_names, read_phi3, write_phi3};

}  // namespace crest
