// StableLM 2: Llama with LayerNorm, partial rotation, and optional query, key and value biases.
#include "model/families/decoder.h"

namespace crest {

namespace {

constexpr RopeKeys stablelm_rope = {.part_key = "partial_rotary_factor", .part = 0.25};

ModelConfig read_stablelm(const Keys& k) {
  ModelConfig c = read_decoder(k, {.kv_heads = 32, .eps_key = "layer_norm_eps", .eps = 1e-5});
  require_silu(k);
  require_no_dropout(k, {"attention_dropout", "hidden_dropout"});
  k.must_be("qk_layernorm", false, "Crest has no LayerNorm of queries and keys yet.");
  k.must_be("use_parallel_residual", false, "Crest has no MLP that shares the norm of attention yet.");
  c.norm = NormKind::layer, c.norm_bias = true;
  c.qkv_bias = k.flag("use_qkv_bias", false);
  read_rope(k, stablelm_rope, c);
  return c;
}

bool write_stablelm(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {.eps_key = "layer_norm_eps"});
  j["hidden_act"] = "silu";
  j["use_qkv_bias"] = c.qkv_bias;
  write_rope(c, j);
  j[stablelm_rope.part_key] = rotated_part(c.rotary_dim, c.head_dim);
  return c.width % c.heads == 0;
}

}  // namespace

extern const Family stablelm_family = {"stablelm",  "StableLmForCausalLM", "stablelm",
                                       llama_names, read_stablelm,         write_stablelm};

}  // namespace crest
