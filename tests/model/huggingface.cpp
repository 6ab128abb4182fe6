#include <cmath>
#include <nlohmann/json.hpp>

#include "files.h"
#include "model/config.h"
#include "model/config_files.h"

using namespace crest;
using nlohmann::json;

static ModelConfig parse(const json& j) { return parse_huggingface_config(j.dump(), "config.json"); }

// The model hub's files for gpt2 (transformers of 2019) and Llama 3.2 1B (transformers 4).
static const json gpt2 = json::parse(R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
  "n_positions": 1024, "resid_pdrop": 0.1, "summary_type": "cls_index", "task_specific_params": {"text-generation":
  {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})");
static const json llama1b = json::parse(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072,
  "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
  "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0,
  "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 128256})");

static json with(json j, const char* key, json value) {
  j[key] = std::move(value);
  return j;
}
static json without(json j, const char* key) {
  j.erase(key);
  return j;
}

TEST(HuggingFaceConfig, PublishedConfigurationsAreThePresets) {
  ModelConfig expected = load_model_config("gpt2-124M");
  expected.name = "gpt2", expected.dropout = 0.1;
  EXPECT_EQ(parse(gpt2), expected);
  expected = load_model_config("llama-1B");
  expected.name = "llama";
  EXPECT_EQ(parse(llama1b), expected);
}

TEST(HuggingFaceConfig, RopeParametersOfTransformers5) {
  json j = without(without(llama1b, "rope_scaling"), "rope_theta");
  json rope = llama1b["rope_scaling"];
  rope["rope_theta"] = 500000.0;
  EXPECT_EQ(parse(with(j, "rope_parameters", rope)), parse(llama1b));
  ModelConfig plain = parse(with(j, "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 123.0}}));
  EXPECT_EQ(plain.rope_theta, 123);
  EXPECT_EQ(plain.rope_scaling, RopeScaling());
  json old = llama1b;
  old["rope_scaling"]["type"] = old["rope_scaling"]["rope_type"];
  old["rope_scaling"].erase("rope_type");
  EXPECT_EQ(parse(old), parse(llama1b));
}

TEST(HuggingFaceConfig, AbsentAndNullKeysTakeTheDefaultsOfTransformers) {
  json small = {{"model_type", "llama"},         {"hidden_size", 64},        {"intermediate_size", 96},
                {"num_hidden_layers", 2},        {"num_attention_heads", 4}, {"vocab_size", 50},
                {"max_position_embeddings", 32}, {"rope_scaling", nullptr},  {"head_dim", nullptr},
                {"num_key_value_heads", nullptr}};
  ModelConfig c = parse(small);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_FALSE(c.tied);
  c = parse(with(without(gpt2, "resid_pdrop"), "n_inner", nullptr));
  EXPECT_EQ(c.dropout, 0.1);
  EXPECT_EQ(c.ff, 3072);
  EXPECT_EQ(parse(with(gpt2, "n_inner", 100)).ff, 100);
  EXPECT_FALSE(parse(with(gpt2, "tie_word_embeddings", false)).tied);
  EXPECT_EQ(parse(with(gpt2, "activation_function", "gelu_pytorch_tanh")).activation, ActivationKind::gelu);
  EXPECT_EQ(parse(with(gpt2, "activation_function", "gelu")).activation, ActivationKind::gelu_erf);
}

// Keys with the same meaning: Crest follows transformers or refuses the file.
// tests/interop/key_pairs.py compares each accepted row with transformers.
TEST(HuggingFaceConfig, OfTwoKeysForOneThingTransformersChoiceCounts) {
  std::ifstream file(CREST_TEST_DIR "/model/key_pairs.json");
  const json table = json::parse(file);
  ASSERT_GE(table["rows"].size(), 67u);
  for (auto& row : table["rows"]) {
    SCOPED_TRACE(row.dump());
    const json base = table["bases"].at(row["type"].get<std::string>());
    json pair = base, plain = base;
    for (auto& key : row.value("without", json::array())) pair.erase(key.get<std::string>());
    pair.update(row["keys"]);
    if (row.contains("refused")) {
      expect_error([&] { parse(pair); }, row["refused"].get<std::vector<std::string>>());
      continue;
    }
    plain.update(row["same_as"]);
    try {
      const ModelConfig c = parse(pair);
      EXPECT_EQ(c, parse(plain));
      ModelConfig again = parse(json::parse(to_huggingface_config(c)));  // nothing is lost in Crest's files
      again.name = c.name, again.dropout = c.dropout;
      EXPECT_EQ(again, c);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

// Every type with a factor of its own, as written by transformers, and back.
TEST(HuggingFaceConfig, RopeScalingOfEveryType) {
  json j = with(without(llama1b, "rope_scaling"), "max_position_embeddings", 4096);
  auto scaled = [&](json scaling) { return parse(with(j, "rope_scaling", std::move(scaling))); };
  ModelConfig c = scaled({{"type", "linear"}, {"factor", 4.0}});
  EXPECT_EQ(c.rope_scaling.type, RopeScalingType::linear);
  EXPECT_EQ(c.rope_scaling.factor, 4);
  EXPECT_EQ(c.context, 4096);
  c = scaled({{"rope_type", "dynamic"}, {"factor", 2.5}});
  EXPECT_EQ(c.rope_scaling.type, RopeScalingType::dynamic);
  EXPECT_EQ(c.rope_scaling.original_context, 4096);
  EXPECT_EQ(c.context, 10240);
  EXPECT_EQ(c.cached_context(), 4096);
  EXPECT_EQ(json::parse(to_huggingface_config(c))["max_position_embeddings"], 4096);
  c = scaled({{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", nullptr}});
  EXPECT_EQ(c.rope_scaling.type, RopeScalingType::yarn);
  EXPECT_EQ(c.rope_scaling.original_context, 4096);
  EXPECT_EQ(c.rope_scaling.attention_factor, 0);
  EXPECT_EQ(c.cached_context(), 4096);
  c = scaled({{"rope_type", "yarn"},
              {"factor", 4.0},
              {"original_max_position_embeddings", 1024},
              {"mscale", 1.0},
              {"mscale_all_dim", 0.5},
              {"truncate", false},
              {"beta_slow", 2}});
  EXPECT_EQ(c.rope_scaling.original_context, 1024);
  EXPECT_NEAR(c.rope_scaling.attention_factor, (0.1 * std::log(4) + 1) / (0.05 * std::log(4) + 1), 1e-12);
  EXPECT_EQ(c.rope_scaling.beta_slow, 2);
  EXPECT_FALSE(c.rope_scaling.truncate);
  for (json scaling : {json{{"rope_type", "linear"}, {"factor", 4.0}}, json{{"rope_type", "dynamic"}, {"factor", 2.0}},
                       json{{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 1.5}},
                       json{{"rope_type", "yarn"}, {"factor", 1.0}, {"truncate", false}}}) {
    c = scaled(scaling);
    EXPECT_EQ(parse(json::parse(to_huggingface_config(c))), c) << scaling;
  }
}

TEST(HuggingFaceConfig, BiasesOfLlamaAndQwen) {
  for (bool attention : {false, true})
    for (bool mlp : {false, true}) {
      ModelConfig c = parse(with(with(llama1b, "attention_bias", attention), "mlp_bias", mlp));
      EXPECT_EQ(c.has_qkv_bias(), attention);
      EXPECT_EQ(c.has_proj_bias(), attention);
      EXPECT_EQ(c.has_mlp_bias(), mlp);
      json back = json::parse(to_huggingface_config(c));
      EXPECT_EQ(back["model_type"], "llama");
      EXPECT_EQ(parse(back), c);
    }
  ModelConfig c = parse(with(llama1b, "model_type", "qwen2"));
  EXPECT_TRUE(c.has_qkv_bias());
  EXPECT_FALSE(c.has_proj_bias());
  EXPECT_FALSE(c.has_mlp_bias());
  json back = json::parse(to_huggingface_config(c));
  EXPECT_EQ(back["architectures"][0], "Qwen2ForCausalLM");
  EXPECT_EQ(parse(back), c);
}

TEST(HuggingFaceConfig, MistralHasItsWindowInEveryLayer) {
  json mistral = with(with(without(llama1b, "rope_scaling"), "model_type", "mistral"), "max_position_embeddings", 8192);
  ModelConfig expected = parse(with(mistral, "model_type", "llama"));
  expected.name = expected.family = "mistral";
  EXPECT_EQ(parse(with(mistral, "sliding_window", nullptr)), expected);
  expected.family = "";  // no other class has a window in every layer
  expected.window = 8191;
  EXPECT_EQ(parse(with(mistral, "sliding_window", 8191)), expected);
  expected.window = 8192;  // without effect, until the context grows
  EXPECT_EQ(parse(with(mistral, "sliding_window", 8192)), expected);
  expected.window = 4096;
  EXPECT_EQ(parse(mistral), expected);  // transformers' default
  json back = json::parse(to_huggingface_config(expected));
  EXPECT_EQ(back["architectures"], json::array({"MistralForCausalLM"}));
  EXPECT_EQ(back["sliding_window"], 4096);
  EXPECT_EQ(parse(back), expected);
  json layers = json::array();
  for (int i = 0; i < 16; ++i) layers.push_back("sliding_attention");
  EXPECT_EQ(parse(with(mistral, "layer_types", layers)), expected);
  auto refused = [](const json& j, const std::vector<std::string>& parts) { expect_error([&] { parse(j); }, parts); };
  refused(with(mistral, "sliding_window", "wide"), {"sliding_window", "wide"});
  refused(with(mistral, "sliding_window", 0), {"sliding_window", "at least 1"});
  layers[3] = "full_attention";
  refused(with(mistral, "layer_types", layers), {"layer_types", "full_attention", "4096", "sliding_window to null"});
}

TEST(HuggingFaceConfig, Qwen2HasItsWindowFromALayerOn) {
  json qwen = with(with(without(llama1b, "rope_scaling"), "model_type", "qwen2"), "max_position_embeddings", 8192);
  qwen["sliding_window"] = 100;
  ModelConfig expected = parse(qwen);
  EXPECT_EQ(expected.window, 0);  // use_sliding_window is false
  EXPECT_EQ(parse(with(qwen, "use_sliding_window", false)), expected);
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(parse(qwen), expected);  // max_window_layers is 28: all 16 layers see everything
  EXPECT_EQ(parse(with(with(qwen, "sliding_window", nullptr), "max_window_layers", 3)), expected);
  expected.window = 100;
  ModelConfig everywhere = expected;
  see_all_in_first(expected, 3);
  EXPECT_EQ(expected.pattern, "BBBAAAAAAAAAAAAA");
  EXPECT_EQ(parse(with(qwen, "max_window_layers", 3)), expected);
  json layers = json::array();
  for (int i = 0; i < 16; ++i) layers.push_back(i < 3 ? "full_attention" : "sliding_attention");
  EXPECT_EQ(parse(with(qwen, "layer_types", layers)), expected) << "transformers 5 writes both; the list decides";
  json back = json::parse(to_huggingface_config(expected));
  EXPECT_EQ(back["architectures"], json::array({"Qwen2ForCausalLM"}));
  EXPECT_EQ(parse(back), expected);
  EXPECT_EQ(parse(with(qwen, "max_window_layers", 0)), everywhere);
  EXPECT_EQ(parse(json::parse(to_huggingface_config(everywhere))), everywhere);
  auto refused = [](const json& j, const std::vector<std::string>& parts) { expect_error([&] { parse(j); }, parts); };
  refused(with(qwen, "layer_types", {"full_attention"}), {"layer_types", "16 layers"});
  layers[9] = "full_attention";
  ModelConfig mixed = parse(with(qwen, "layer_types", layers));
  EXPECT_EQ(mixed.pattern, "BBBAAAAAABAAAAAA");
  EXPECT_EQ(parse(json::parse(to_huggingface_config(mixed))), mixed);
  layers[9] = "chunked_attention";
  refused(with(qwen, "layer_types", layers), {"layer_types", "chunked_attention"});
  refused(with(qwen, "max_window_layers", -1), {"max_window_layers", "-1"});
}

TEST(HuggingFaceConfig, ActivationsByEveryNameThatComputesTheSame) {
  auto kind = [](const char* name) { return parse(with(gpt2, "activation_function", name)).activation; };
  for (const char* name : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}) EXPECT_EQ(kind(name), ActivationKind::gelu);
  for (const char* name : {"gelu", "gelu_python"}) EXPECT_EQ(kind(name), ActivationKind::gelu_erf);
  EXPECT_EQ(kind("relu"), ActivationKind::relu);
  ModelConfig c = parse(with(gpt2, "activation_function", "relu"));
  EXPECT_EQ(json::parse(to_huggingface_config(c))["activation_function"], "relu");
}

TEST(HuggingFaceConfig, WhatCrestWouldComputeDifferentlyIsRefused) {
  auto refused = [](const json& j, const std::vector<std::string>& parts) { expect_error([&] { parse(j); }, parts); };
  refused(with(gpt2, "activation_function", "quick_gelu"), {"quick_gelu", "gelu_new"});
  refused(with(gpt2, "attn_pdrop", 0.2), {"attn_pdrop", "0.2", "equal"});
  refused(with(gpt2, "scale_attn_weights", false), {"scale_attn_weights"});
  refused(with(gpt2, "scale_attn_by_inverse_layer_idx", true), {"scale_attn_by_inverse_layer_idx"});
  refused(with(gpt2, "add_cross_attention", true), {"add_cross_attention"});
  refused(with(llama1b, "hidden_act", "gelu"), {"hidden_act", "silu"});
  refused(with(llama1b, "attention_dropout", 0.1), {"attention_dropout"});
  refused(with(llama1b, "rope_scaling", {{"rope_type", "longrope"}, {"factor", 2}}), {"longrope", "llama3"});
  for (const char* type : {"linear", "dynamic", "yarn"})
    for (json factor : {json(), json(0.5), json(-2), json("2")})
      refused(with(llama1b, "rope_scaling", {{"rope_type", type}, {"factor", factor}}), {"rope_scaling.factor"});
  refused(with(llama1b, "rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}, {"attention_factor", -1}}),
          {"rope_scaling.attention_factor", "-1"});
  refused(with(llama1b, "rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}, {"truncate", 1}}),
          {"rope_scaling.truncate", "true or false"});
  refused(with(llama1b, "rope_scaling", {{"rope_type", "llama3"}, {"factor", 2}}), {"low_freq_factor", "missing"});
  refused(with(llama1b, "rope_scaling", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}), {"partial"});
  refused(with(gpt2, "model_type", "gemma"), {"gemma", "gpt2, llama, mistral, qwen2, "});
  refused(without(gpt2, "model_type"), {"model_type", "gpt2, llama"});
}

TEST(HuggingFaceConfig, BadValuesAreNamed) {
  auto refused = [](const json& j, const std::vector<std::string>& parts) { expect_error([&] { parse(j); }, parts); };
  for (const char* key : {"n_embd", "n_layer", "n_head", "vocab_size"}) {
    refused(without(gpt2, key), {key, "missing"});
    for (json bad : {json(-3), json(0), json(768.0), json("768"), json(true), json::array({1}), json(uint64_t(-1)),
                     json(int64_t(1) << 62)})
      refused(with(gpt2, key, bad), {key, bad.dump()});
  }
  refused(with(gpt2, "n_embd", int64_t(12) << 30), {"out of range"});
  refused(with(gpt2, "n_layer", 4096), {"layers = 4096", "from 1 to 1024"});
  refused(with(gpt2, "n_head", 7), {"n_head = 7", "does not divide"});
  refused(with(gpt2, "layer_norm_epsilon", "small"), {"layer_norm_epsilon", "number"});
  refused(with(gpt2, "layer_norm_epsilon", -1), {"norm_eps"});
  refused(with(gpt2, "tie_word_embeddings", 1), {"tie_word_embeddings", "true or false"});
  refused(with(gpt2, "model_type", 3), {"model_type", "string"});
  refused(with(llama1b, "num_key_value_heads", 5), {"kv_heads = 5"});
  refused(with(llama1b, "rope_scaling", 3), {"rope_scaling", "object"});
  refused(with(without(llama1b, "head_dim"), "num_attention_heads", 24), {"does not divide"});
  refused(with(llama1b, "rope_theta", 0.5), {"rope_theta = 0.5 is out of range"});
  refused(json::array({1, 2}), {"not a JSON object"});
}

TEST(HuggingFaceConfig, MalformedTextIsAnErrorNotACrash) {
  auto refused = [](const std::string& text, const std::vector<std::string>& parts) {
    expect_error([&] { parse_huggingface_config(text, "config.json"); }, parts, Exit::failed);
  };
  refused("", {"config.json"});
  refused("{\"model_type\": ", {"config.json", "JSON"});
  refused("{\"model_type\": \"\xff\"}", {"config.json"});
  std::string deep = "{\"a\": ";
  for (int i = 0; i < 300000; ++i) deep += i % 2 ? "[" : "{\"a\":";
  refused(deep, {"nested"});
  // Brackets within strings are no nesting.
  EXPECT_EQ(parse(with(gpt2, "note", std::string(1000, '[') + "\\\"")).layers, 12);
  std::string whole = gpt2.dump();
  for (size_t n = 0; n < whole.size(); ++n) refused(whole.substr(0, n), {"config.json"});
}

TEST(HuggingFaceConfig, ExportReadsBackAndNamesTheClass) {
  for (auto& name : preset_names()) {
    ModelConfig c = load_model_config(name);
    std::string text = to_huggingface_config(c);
    ASSERT_FALSE(text.empty()) << name;
    ModelConfig back = parse_huggingface_config(text, name);
    back.name = c.name, back.zero_projections = c.zero_projections;  // of new models only
    EXPECT_TRUE(back == c) << text;
    json j = json::parse(text);
    const char* llama = c.activation == ActivationKind::relu2 ? "NanoChatForCausalLM" : "LlamaForCausalLM";
    EXPECT_EQ(j["architectures"], json::array({c.norm == NormKind::layer ? "GPT2LMHeadModel" : llama}));
  }
}

TEST(HuggingFaceConfig, ArchitecturesThatTransformersLacksHaveNone) {
  ModelConfig gpt = load_model_config("nano"), llama = load_model_config("llama-nano");
  auto changed = [](ModelConfig c, auto change) {
    change(c);
    return to_huggingface_config(c);
  };
  EXPECT_EQ(changed(gpt, [](auto& c) { c.norm = NormKind::rms; }), "");
  EXPECT_EQ(changed(gpt, [](auto& c) { c.activation = ActivationKind::relu2; }), "");
  EXPECT_EQ(changed(gpt, [](auto& c) { c.bias = false; }), "");
  EXPECT_EQ(changed(gpt, [](auto& c) { c.kv_heads = 2; }), "");
  EXPECT_EQ(changed(gpt, [](auto& c) { c.head_dim = 16; }), "");
  EXPECT_EQ(changed(llama, [](auto& c) { c.bias = true; }), "");
  EXPECT_EQ(changed(llama, [](auto& c) { c.activation = ActivationKind::gelu; }), "");
  EXPECT_EQ(changed(llama, [](auto& c) { c.qkv_bias = c.mlp_bias = true; }), "");
  EXPECT_EQ(changed(gpt, [](auto& c) { c.window = 9; }), "");
  EXPECT_EQ(changed(llama, [](auto& c) { c.window = 9, c.norm = NormKind::layer; }), "");
  // transformers refuses a Llama with a number of heads that does not divide the width.
  auto uneven = [](auto& c) { c.width = 32, c.heads = c.kv_heads = 5, c.head_dim = 8; };
  EXPECT_EQ(changed(llama, [&](auto& c) { uneven(c), c.embedding_scale = 2; }), "");
  for (auto [bias, type] : {std::pair{false, "mistral"}, {true, "qwen2"}}) {
    ModelConfig c = llama;
    uneven(c), c.qkv_bias = bias;
    const json j = json::parse(to_huggingface_config(c));
    EXPECT_EQ(j["model_type"], type);
    ModelConfig back = parse(j);
    back.name = c.name, back.dropout = c.dropout;
    EXPECT_EQ(back, c);
  }
  EXPECT_NE(changed(llama, [](auto& c) { c.head_dim = 16; }), "");
  EXPECT_NE(changed(gpt, [](auto& c) { c.tied = false; }), "");
}

TEST(HuggingFaceConfig, FixturesAsTransformersWritesThem) {
  std::string fixtures = CREST_TEST_DIR "/parity/fixtures/";
  ModelConfig c = load_model_config(fixtures + "gpt2-tiny");
  EXPECT_EQ(c.name, "gpt2-tiny");
  EXPECT_EQ(c.ff, 144);
  EXPECT_EQ(c.context, 33);
  EXPECT_EQ(c.dropout, 0);
  c = load_model_config(fixtures + "llama-tiny/config.json");
  EXPECT_EQ(c.name, "llama-tiny");
  EXPECT_EQ(c.head_dim, 12);
  EXPECT_EQ(c.kv_heads, 2);
  c = load_model_config(fixtures + "llama3-tied-tiny/");
  EXPECT_EQ(c.name, "llama3-tied-tiny");
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.rope_theta, 5000);
  EXPECT_EQ(c.rope_scaling, (RopeScaling{8, 1, 4, 64}));
  c = load_model_config(fixtures + "mistral-tiny/");
  EXPECT_EQ(c.window, 6);
  EXPECT_EQ(c.others.size(), 0u);
}
