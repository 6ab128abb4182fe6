// Families of transformers: published models, and the options of their files. Agreement of
// numbers: tests/parity, tests/interop.
#include "model/family.h"

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "files.h"
#include "model/config_files.h"
#include "model/parameters.h"
#include "model/weights_map.h"

using namespace crest;
using nlohmann::json;

namespace {

ModelConfig parse_file(const json& j) { return parse_huggingface_config(j.dump(), "config.json"); }

json published(const std::string& source) {
  std::ifstream file(CREST_TEST_DIR "/model/published.json");
  const json table = json::parse(file);
  for (auto& row : table["models"])
    if (source.empty() || row["source"] == source) return source.empty() ? table["models"] : row["config"];
  ADD_FAILURE() << source;
  return {};
}

json edited(json j, const char* key, json value) {
  j[key] = std::move(value);
  return j;
}

}  // namespace

TEST(Families, PublishedModelsHaveTheirParametersAndComeBack) {
  for (auto& row : published("")) {
    SCOPED_TRACE(row["source"].get<std::string>());
    const json& config = row["config"];
    const ModelConfig c = parse_file(config);
    EXPECT_EQ(parameter_count(c), row["parameters"].get<int64_t>());
    int64_t in_file = 0;
    for (auto& t : canonical_tensors(c)) in_file += t.elements();
    EXPECT_EQ(in_file, parameter_count(c));
    const json back = json::parse(to_huggingface_config(c));
    EXPECT_EQ(back["model_type"], config["model_type"]);
    EXPECT_EQ(back["architectures"], config["architectures"]);
    EXPECT_EQ(parse_file(back), c);
    EXPECT_EQ(parse_model_toml(to_toml(c), "m.toml"), c) << to_toml(c);
  }
}

TEST(Families, EveryTypeHasATestedFile) {
  for (auto& family : families()) {
    bool tested = std::string_view(family.type) == "gpt2" || family_of(load_model_config("llama-nano")) == &family;
    for (auto& row : published("")) tested = tested || row["config"]["model_type"] == family.type;
    if (std::string_view(family.type) != "mistral" && std::string_view(family.type) != "qwen2") {
      EXPECT_TRUE(tested) << family.type;
    }
    EXPECT_EQ(find_family(family.type), &family);
  }
  EXPECT_EQ(find_family("gpt3"), nullptr);
}

TEST(Families, WhatCrestLacksIsRefusedByItsName) {
  const json base = published("microsoft/phi-4");
  auto refused = [](const json& j, const std::vector<std::string>& parts) {
    expect_error([&] { parse_file(j); }, parts);
  };
  refused(edited(base, "num_local_experts", 8), {"the model has experts ('num_local_experts')"});
  refused({{"model_type", "mixtral"}, {"num_local_experts", 8}}, {"experts"});
  refused({{"model_type", "deepseek_v2"}, {"kv_lora_rank", 512}, {"n_routed_experts", nullptr}}, {"latent attention"});
  refused({{"model_type", "gemma3"}, {"vision_config", {{"hidden_size", 3}}}}, {"vision parts"});
  refused({{"model_type", "gemma2"}, {"attn_logit_softcapping", 50.0}}, {"a cap of attention scores"});
  refused({{"model_type", "gpt_oss"}}, {"model_type \"gpt_oss\" is not supported", "smollm3"});
  EXPECT_NO_THROW(parse_file(edited(edited(base, "num_local_experts", 0), "vision_config", nullptr)));
}

TEST(Families, HugeSizesAreAnErrorBeforeTheyTakeMemory) {
  for (auto& row : published(""))
    expect_error([&] { parse_file(edited(row["config"], "num_hidden_layers", int64_t(1) << 40)); },
                 {"layers = 1099511627776", "from 1 to 1024"});
}

TEST(Families, SmolLm3LeavesRotationOutInSomeLayers) {
  const json file = published("HuggingFaceTB/SmolLM3-3B");
  ModelConfig c = parse_file(file);
  EXPECT_EQ(c.pattern, "AAAB");
  EXPECT_TRUE(c.layer(2).rope);
  EXPECT_FALSE(c.layer(35).rope);
  EXPECT_EQ(c.rope_theta, 5e6);
  EXPECT_TRUE(c.tied);
  json rotate = json::array();
  for (int i = 0; i < 40; ++i) rotate.push_back(i == 7 ? 0 : 1);  // may be longer
  c = parse_file(edited(file, "no_rope_layers", rotate));
  for (int64_t i = 0; i < 36; ++i) EXPECT_EQ(c.layer(i).rope, i != 7) << i;
  json windows =
      edited(edited(edited(file, "no_rope_layers", rotate), "use_sliding_window", true), "sliding_window", 64);
  c = parse_file(windows);
  EXPECT_EQ(c.layer(7).window, 64) << "by default the layers without rotation";
  EXPECT_EQ(c.layer(6).window, 0);
  EXPECT_EQ(parse_file(json::parse(to_huggingface_config(c))), c);
  auto refused = [](const json& j, const std::vector<std::string>& parts) {
    expect_error([&] { parse_file(j); }, parts);
  };
  rotate[3] = 2;
  refused(edited(file, "no_rope_layers", rotate), {"'no_rope_layers' has 2"});
  refused(edited(file, "no_rope_layers", {1, 0}), {"'no_rope_layers' is no list of 36 layers"});
  refused(edited(file, "layer_types", std::vector<std::string>(36, "sliding_attention")), {"sliding_attention"});
  refused(edited(file, "hidden_act", "gelu"), {"hidden_act", "silu"});
}

TEST(Families, GraniteHasFactors) {
  const json file = published("ibm-granite/granite-3.3-2b-base");
  ModelConfig c = parse_file(file);
  EXPECT_EQ(c.embedding_scale, 12);
  EXPECT_EQ(c.residual_scale, 0.22);
  EXPECT_EQ(c.logit_scale, 0.125);
  EXPECT_EQ(c.attention_scale, 0.015625);
  EXPECT_EQ(parse_file(edited(file, "attention_multiplier", nullptr)).attention_scale, 1);
  expect_error([&] { parse_file(edited(file, "logits_scaling", 0)); }, {"'logits_scaling' is 0"});
  expect_error([&] { parse_file(edited(file, "embedding_multiplier", 0)); }, {"embedding_scale = 0"});
}

TEST(Families, Starcoder2HasOneDropoutAndMayHaveNoBiases) {
  const json file = published("bigcode/starcoder2-3b");
  ModelConfig c = parse_file(file);
  EXPECT_EQ(c.dropout, 0.1);
  EXPECT_EQ(c.window, 4096);
  EXPECT_TRUE(c.has_norm_bias());
  c = parse_file(edited(file, "use_bias", false));
  EXPECT_TRUE(c.has_norm_bias());
  EXPECT_FALSE(c.has_mlp_bias());
  EXPECT_EQ(parse_file(json::parse(to_huggingface_config(c))), c);
  expect_error([&] { parse_file(edited(file, "embedding_dropout", 0.2)); }, {"embedding_dropout", "0.2", "equal"});
  expect_error([&] { parse_file(edited(file, "hidden_act", "silu")); }, {"hidden_act", "silu"});
}

TEST(Families, Phi3KeepsItsFusedTensors) {
  const json file = published("microsoft/Phi-3-mini-4k-instruct");
  ModelConfig c = parse_file(file);
  EXPECT_EQ(c.family, "phi3") << "else its files would be Mistral's";
  EXPECT_EQ(c.window, 2047);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (auto& t : canonical_tensors(c)) shapes[t.name] = t.shape;
  EXPECT_EQ(shapes.at("model.layers.31.mlp.gate_up_proj.weight"), (std::vector<int64_t>{16384, 3072}));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.qkv_proj.weight"), (std::vector<int64_t>{9216, 3072}));
  // The class cannot hold this change: the model gets another class, or none.
  c.embedding_scale = 2;
  EXPECT_EQ(family_of(c), nullptr);
  expect_error([&] { parse_file(edited(file, "rope_scaling", {{"type", "linear"}, {"factor", 2.0}})); }, {"linear"});
}

TEST(Families, Phi4MiniEndsAtItsOriginalContext) {
  const json file = published("microsoft/Phi-4-mini-instruct");
  ModelConfig c = parse_file(file);
  EXPECT_EQ(c.context, 4096);
  EXPECT_EQ(c.rotary_dim, 96);
  EXPECT_NEAR(c.rope_scaling.attention_factor, std::sqrt(1 + std::log(32) / std::log(4096)), 1e-12);
  json other = file;
  other["rope_scaling"]["short_factor"][5] = 1.25;
  expect_error([&] { parse_file(other); }, {"'short_factor' has 1.25"});
  other["rope_scaling"].erase("short_factor");
  expect_error([&] { parse_file(other); }, {"'short_factor' is missing"});
  other["rope_scaling"]["type"] = "yarn";
  expect_error([&] { parse_file(other); }, {"rope_type' is \"yarn\""});
  expect_error([&] { parse_file(edited(file, "partial_rotary_factor", 0.7)); },
               {"partial_rotary_factor", "89 of the 128"});
}

TEST(Families, PythiaRotatesAQuarterAndHasItsMatricesByHead) {
  const json file = published("EleutherAI/pythia-160m");
  ModelConfig c = parse_file(file);
  EXPECT_EQ(c.rotary_dim, 16);
  EXPECT_TRUE(c.parallel_residual);
  EXPECT_EQ(c.activation, ActivationKind::gelu_erf);
  std::map<std::string, CanonicalTensor> tensors;
  for (auto& t : canonical_tensors(c)) tensors[t.name] = t;
  EXPECT_TRUE(tensors.count("embed_out.weight"));
  auto& qkv = tensors.at("gpt_neox.layers.3.attention.query_key_value.bias");
  ASSERT_EQ(qkv.parts.size(), 36u);
  EXPECT_EQ(qkv.parts[4].row, 768 + 64) << "the keys of head 1";
  EXPECT_EQ(qkv.parts[5].row, 2 * 768 + 64);
  EXPECT_EQ(parse_file(edited(file, "rotary_pct", 1.0)).rotary_dim, 0);
  json object = edited(file, "rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}});
  EXPECT_EQ(parse_file(edited(object, "rotary_pct", 0.7)).rotary_dim, 32) << "the object's part counts";
  EXPECT_FALSE(parse_file(edited(file, "use_parallel_residual", false)).parallel_residual);
  expect_error([&] { parse_file(edited(file, "attention_bias", false)); }, {"attention_bias"});
  expect_error([&] { parse_file(edited(file, "hidden_act", "silu")); }, {"hidden_act", "silu"});
  expect_error([&] { parse_file(edited(file, "hidden_dropout", 0.1)); }, {"dropout"});
  expect_error([&] { parse_file(edited(published("stabilityai/stablelm-2-1_6b"), "qk_layernorm", true)); },
               {"qk_layernorm"});
}

TEST(Families, Gemma3HasTwoKindsOfLayers) {
  const json file = published("google/gemma-3-1b-it");
  ModelConfig c = parse_file(file);
  EXPECT_EQ(c.pattern, "AAAAAB");
  EXPECT_EQ(c.layer(0).window, 512);
  EXPECT_EQ(c.layer(0).rope_theta, 1e4);
  EXPECT_EQ(c.layer(5).window, 0);
  EXPECT_EQ(c.layer(5).rope_theta, 1e6);
  EXPECT_EQ(c.attention_scale, 0) << "1 / sqrt(256) is the scale of heads of 256";
  EXPECT_EQ(c.embedding_scale, std::sqrt(1152.0));
  // Larger models scale the frequencies of their full layers only.
  json scaled = edited(file, "rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}});
  c = parse_file(scaled);
  EXPECT_EQ(c.layer(5).rope_scaling.factor, 8);
  EXPECT_EQ(c.layer(0).rope_scaling, RopeScaling());
  EXPECT_EQ(parse_file(json::parse(to_huggingface_config(c))), c);
  c = parse_file(edited(file, "query_pre_attn_scalar", 168));
  EXPECT_NEAR(c.attention_scale, 1 / std::sqrt(168.0), 1e-15);
  EXPECT_EQ(parse_file(json::parse(to_huggingface_config(c))), c);
  auto tensors = canonical_tensors(c);
  for (auto& t : tensors) EXPECT_EQ(t.offset, t.name.find("norm") == std::string::npos ? 0 : 1) << t.name;
  c = parse_file(edited(file, "final_logit_softcapping", 30.0));
  EXPECT_EQ(c.logit_cap, 30);
  EXPECT_EQ(parse_file(json::parse(to_huggingface_config(c))), c);
  expect_error([&] { parse_file(edited(file, "final_logit_softcapping", 0)); },
               {"'final_logit_softcapping' is 0", "null"});
  expect_error([&] { parse_file(edited(file, "use_bidirectional_attention", true)); }, {"attention to later tokens"});
  expect_error([&] { parse_file(edited(file, "sliding_window", nullptr)); }, {"'sliding_window' is null"});
  expect_error([&] { parse_file(edited(file, "hidden_activation", "silu")); }, {"hidden_activation", "silu"});
}

TEST(Families, NanochatHasNormsWithoutWeightsAndARotationBackwards) {
  const json file = published("karpathy/nanochat-d32");
  ModelConfig c = parse_file(file);
  EXPECT_EQ(c.logit_cap, 15);
  EXPECT_EQ(c.activation, ActivationKind::relu2);
  EXPECT_TRUE(c.embedding_norm);
  EXPECT_EQ(parse_file(edited(file, "final_logit_softcapping", nullptr)).logit_cap, 0);
  for (auto& t : canonical_tensors(c)) {
    const bool halves = t.name.ends_with("q_proj.weight") || t.name.ends_with("k_proj.weight");
    ASSERT_EQ(t.parts.size(), halves ? 32u : 1u) << t.name;
    if (!halves) continue;
    EXPECT_EQ(t.parts[0].row, t.parts[1].row + 64) << t.name;
    EXPECT_EQ(t.parts[2].row, t.parts[0].row + 128) << t.name;
  }
  c.norm_weight = true;
  EXPECT_EQ(to_huggingface_config(c), "") << "no family has an embedding norm with a weight";
  expect_error([&] { parse_file(edited(file, "hidden_act", "silu")); }, {"hidden_act", "silu", "relu2"});
}

TEST(Families, Olmo3ScalesTheFrequenciesOfFullLayers) {
  ModelConfig c = parse_file(published("allenai/Olmo-3-1025-7B"));
  EXPECT_EQ(c.pattern, "AAAB");
  EXPECT_EQ(c.norm_position, NormPosition::after);
  EXPECT_EQ(c.qk_norm, QkNorm::row);
  EXPECT_EQ(c.layer(3).rope_scaling.type, RopeScalingType::yarn);
  EXPECT_EQ(c.layer(3).rope_scaling.original_context, 8192);
  EXPECT_EQ(c.layer(2).rope_scaling, RopeScaling());
  EXPECT_EQ(c.layer(2).window, 4096);
}
