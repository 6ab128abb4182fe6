// nanochat: norms without weights, also of the embedding and of each query and key head; squared
// ReLU; capped logits. It rotates backwards. Swapping the halves of each query and key head turns
// this into a forward rotation. It normalizes heads after the rotation. Rotation keeps lengths, so
// a norm without weights may come first.
#include "model/families/decoder.h"

namespace crest {

namespace {

ModelConfig read_nanochat(const Keys& k) {
  ModelConfig c = read_decoder(k, {});
  if (const std::string activation = k.text("hidden_act", "relu2"); activation != "relu2")
    fail_usage(fmt::format("'hidden_act' is \"{}\"", printable(activation)), k.where(), "Supported: relu2.");
  require_no_dropout(k, {"attention_dropout"});
  c.activation = ActivationKind::relu2;
  c.norm_weight = false, c.embedding_norm = true, c.qk_norm = QkNorm::head;
  c.attention_bias = k.flag("attention_bias", false);
  read_rope(k, {}, c);
  read_logit_cap(k, 15, c);
  return c;
}

bool write_nanochat(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {});
  j["hidden_act"] = "relu2";
  j["attention_bias"] = c.attention_bias;
  write_rope(c, j);
  write_logit_cap(c, j);
  return true;
}

const TensorNames nanochat_names = {"model.",
                                    "layers.",
                                    {{"wte", "embed_tokens"}},
                                    {{"attn.qkv", "self_attn.*_proj", TensorForm::apart_back},
                                     {"attn.proj", "self_attn.o_proj"},
                                     {"mlp.fc", "mlp.fc1"},
                                     {"mlp.proj", "mlp.fc2"}}};

}  // namespace

extern const Family nanochat_family = {"nanochat",     "NanoChatForCausalLM", nullptr,
                                       nanochat_names, read_nanochat,         write_nanochat};

}  // namespace crest
