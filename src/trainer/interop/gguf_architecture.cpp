#include "interop/gguf_architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "core/error.h"

namespace crest {

// A row of the table. Without a remark, llama.cpp computes every model of the families of the
// architecture.
struct GgufArchitecture {
  const char* name;
  const TensorNames& names;
  bool neighbor_pairs = false;                         // it rotates neighboring elements of a head
  bool own_head = false;                               // its files have the head of a tied model, too
  bool equal_heads = true;                             // heads divide the width equally
  bool rope_factors = false;                           // it reads rope_freqs.weight
  bool layer_windows = false;                          // windows in some layers; otherwise it has none
  bool output_bias = false;                            // a bias of attention's projection; may be absent
  bool mlp_bias = false;                               // may be absent
  std::string (*lacks)(const ModelConfig&) = nullptr;  // anything else
  void (*describe)(const ModelConfig&, GgufHeader&, const std::string& prefix) = nullptr;  // more keys
};

namespace {

// Some models have no norms behind attention and MLP, or of queries and keys.
const std::vector<TensorName> model_names = {{"wte", "token_embd"}, {"wpe", "position_embd"}, {"ln_f", "output_norm"}};
std::vector<TensorName> members(const TensorName& qkv, const TensorName& up) {
  return {qkv,
          up,
          {"ln_1", "attn_norm"},
          {"ln_1_post", "post_attention_norm"},
          {"attn.q_norm", "attn_q_norm"},
          {"attn.k_norm", "attn_k_norm"},
          {"attn.proj", "attn_output"},
          {"ln_2", "ffn_norm"},
          {"ln_2_post", "post_ffw_norm"},
          {"mlp.gate", "ffn_gate"},
          {"mlp.up", "ffn_up"},
          {"mlp.proj", "ffn_down"}};
}
const TensorNames apart = {"", "blk.", model_names,
                           members({"attn.qkv", "attn_*", TensorForm::apart}, {"mlp.fc", "ffn_up"}), "output"};
const TensorNames together = {"", "blk.", model_names, members({"attn.qkv", "attn_qkv"}, {"mlp.fc", "ffn_up"}),
                              "output"};
const TensorNames joined = {"", "blk.", model_names,
                            members({"attn.qkv", "attn_qkv"}, {"mlp.gate+mlp.up", "ffn_up", TensorForm::joined}),
                            "output"};

bool near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// The first layer with or without a window; if there is none, the first layer.
const LayerConfig& layer_with(const ModelConfig& c, bool window) {
  for (int64_t i = 0; i < c.layers; ++i)
    if ((c.layer(i).window > 0) == window) return c.layer(i);
  return c.layer(0);
}

// Of rotated vectors; 1: none.
double vector_scale(const RopeScaling& s) {
  if (s.type != RopeScalingType::yarn) return 1;
  return s.attention_factor == 0 ? 0.1 * std::log(s.factor) + 1 : s.attention_factor;
}
bool plain(const RopeScaling& s) { return s.factor == 1 && vector_scale(s) == 1; }

std::string lacks_of_relu(const ModelConfig& c) { return c.activation == ActivationKind::relu ? "ReLU" : ""; }

std::string lacks_of_starcoder2(const ModelConfig& c) { return c.bias ? "" : "linear layers without biases"; }

std::string lacks_of_smollm3(const ModelConfig& c) {
  for (int64_t i = 0; i < c.layers; ++i)
    if (c.layer(i).rope != ((i + 1) % 4 != 0)) return "layers without rotation other than each fourth";
  return "";
}

std::string lacks_of_olmo2(const ModelConfig& c) {
  if (!c.widest_window()) return "";
  const LayerConfig &full = layer_with(c, false), &sliding = layer_with(c, true);
  return sliding.rope_theta != full.rope_theta ? "another rope_theta in layers with a window"
         : !plain(sliding.rope_scaling)        ? "rescaled rotary frequencies in layers with a window"
                                               : "";
}

std::string lacks_of_gemma3(const ModelConfig& c) {
  const LayerConfig& full = layer_with(c, false);
  // llama.cpp takes models of 62 layers for the one of 27B.
  const int64_t head_dim = c.layers == 62 ? c.width / c.heads : c.head_dim;
  const double scale = c.attention_scale == 0 ? 1 / std::sqrt(double(c.head_dim)) : c.attention_scale;
  if (!near(scale, 1 / std::sqrt(double(head_dim)))) return fmt::format("attention scores times {:.6g}", scale);
  if (c.widest_window() && !plain(layer_with(c, true).rope_scaling))
    return "rescaled rotary frequencies in layers with a window";
  return full.rope_scaling.type == RopeScalingType::yarn && !plain(full.rope_scaling) ? "YaRN in this architecture"
                                                                                      : "";
}

void describe_granite(const ModelConfig& c, GgufHeader& h, const std::string& prefix) {
  h.real(prefix + "attention.scale", c.attention_scale == 0 ? 1 / std::sqrt(double(c.head_dim)) : c.attention_scale);
  h.real(prefix + "embedding_scale", c.embedding_scale);
  h.real(prefix + "residual_scale", c.residual_scale);
  h.real(prefix + "logit_scale", 1 / c.logit_scale);
}

void describe_residual(const ModelConfig& c, GgufHeader& h, const std::string& prefix) {
  h.flag(prefix + "use_parallel_residual", c.parallel_residual);
}

// Older versions of llama.cpp require the key.
void describe_phi3(const ModelConfig&, GgufHeader& h, const std::string& prefix) {
  h.number(prefix + "attention.sliding_window", 0);
}

void describe_gemma3(const ModelConfig& c, GgufHeader& h, const std::string& prefix) {
  if (c.widest_window()) h.real(prefix + "rope.freq_base_swa", layer_with(c, true).rope_theta);
  if (c.logit_cap > 0) h.real(prefix + "final_logit_softcapping", c.logit_cap);
}

const GgufArchitecture architectures[] = {
    {.name = "gpt2", .names = together, .output_bias = true, .mlp_bias = true, .lacks = lacks_of_relu},
    {.name = "gptneox",
     .names = together,
     .own_head = true,
     .output_bias = true,
     .mlp_bias = true,
     .lacks = lacks_of_relu,
     .describe = describe_residual},
    {.name = "starcoder2", .names = apart, .output_bias = true, .mlp_bias = true, .lacks = lacks_of_starcoder2},
    {.name = "stablelm", .names = apart, .own_head = true, .describe = describe_residual},
    {.name = "llama",
     .names = apart,
     .neighbor_pairs = true,
     .equal_heads = false,
     .rope_factors = true,
     .output_bias = true,
     .mlp_bias = true},
    {.name = "granite",
     .names = apart,
     .neighbor_pairs = true,
     .equal_heads = false,
     .rope_factors = true,
     .output_bias = true,
     .describe = describe_granite},
    {.name = "smollm3", .names = apart, .neighbor_pairs = true, .equal_heads = false, .lacks = lacks_of_smollm3},
    {.name = "qwen2", .names = apart},
    {.name = "qwen3", .names = apart, .equal_heads = false},
    {.name = "phi3", .names = joined, .describe = describe_phi3},
    {.name = "olmo2", .names = apart, .own_head = true, .layer_windows = true, .lacks = lacks_of_olmo2},
    {.name = "gemma3",
     .names = apart,
     .equal_heads = false,
     .layer_windows = true,
     .lacks = lacks_of_gemma3,
     .describe = describe_gemma3},
};

const GgufArchitecture* find_architecture(const ModelConfig& c) {
  const Family* family = family_of(c);
  if (!family || !family->llama_cpp) return nullptr;
  for (auto& a : architectures)
    if (a.name == std::string_view(family->llama_cpp)) return &a;
  fail_internal(std::string("no row for ") + family->llama_cpp, "gguf_architecture");
}

std::string lacks_of_rope(const GgufArchitecture& a, const RopeScaling& s) {
  if (s.factor == 1) return "";
  if (s.type == RopeScalingType::llama3 && !a.rope_factors) return "rotary frequencies rescaled as in Llama 3";
  if (s.type != RopeScalingType::yarn) return "";
  if (!s.truncate) return "YaRN with truncate = false";
  const RopeScaling standard;  // the others are not read from files
  return s.beta_fast != standard.beta_fast || s.beta_slow != standard.beta_slow
             ? fmt::format("YaRN with beta_fast = {} and beta_slow = {}", s.beta_fast, s.beta_slow)
             : "";
}

std::string lacks_of(const GgufArchitecture& a, const ModelConfig& c) {
  if (a.equal_heads && c.heads * c.head_dim != c.width) return "heads that do not divide the width equally";
  if (!a.output_bias && c.has_proj_bias()) return "a bias of attention's projection";
  if (!a.mlp_bias && c.has_mlp_bias()) return "biases in the MLP";
  if (c.position == PositionKind::rope)
    if (std::string lacks = lacks_of_rope(a, layer_with(c, false).rope_scaling); !lacks.empty()) return lacks;
  return a.lacks ? a.lacks(c) : "";
}

void describe_rope(const ModelConfig& c, GgufHeader& h, const std::string& prefix) {
  const LayerConfig& layer = layer_with(c, false);
  const RopeScaling& s = layer.rope_scaling;
  h.number(prefix + "rope.dimension_count", layer.rotary_dim ? layer.rotary_dim : c.head_dim);
  h.real(prefix + "rope.freq_base", layer.rope_theta);
  const bool linear = s.type == RopeScalingType::linear, yarn = s.type == RopeScalingType::yarn;
  if (s.factor != 1 && (linear || yarn)) {
    h.text(prefix + "rope.scaling.type", linear ? "linear" : "yarn");
    h.real(prefix + "rope.scaling.factor", s.factor);
    if (yarn) h.number(prefix + "rope.scaling.original_context_length", s.original_context);
  }
  // llama.cpp multiplies by YaRN's standard factor itself.
  const double standard = s.factor == 1 ? 1 : 0.1 * std::log(s.factor) + 1;
  if (yarn && !near(vector_scale(s), standard)) h.real(prefix + "rope.scaling.attn_factor", vector_scale(s) / standard);
}

}  // namespace

const char* name(const GgufArchitecture& a) { return a.name; }

const GgufArchitecture* gguf_architecture(const ModelConfig& c) {
  const GgufArchitecture* a = find_architecture(c);
  return a && lacks_of(*a, c).empty() ? a : nullptr;
}

std::string gguf_lacks(const ModelConfig& c) {
  const Family* family = family_of(c);
  if (!family) return "an architecture of its own";
  const GgufArchitecture* a = find_architecture(c);
  if (!a) return fmt::format("the architecture {}", family->type);
  const std::string lacks = lacks_of(*a, c);
  return lacks.empty() ? "" : fmt::format("the architecture {} with {}", family->type, lacks);
}

std::vector<GgufTensor> gguf_tensors(const ModelConfig& c) {
  const GgufArchitecture* a = gguf_architecture(c);
  if (!a) fail_internal("llama.cpp lacks the model", "gguf_tensors");
  std::vector<GgufTensor> out;
  for (auto& t : tensors_under(&a->names, c)) {
    out.push_back({t});
    out.back().neighbor_pairs = a->neighbor_pairs && (t.name.find(".attn_q.") != std::string::npos ||
                                                      t.name.find(".attn_k.") != std::string::npos);
  }
  if (out.empty()) fail_internal("a parameter without a name in llama.cpp", "gguf_tensors");
  if (a->own_head && c.tied) {
    auto embedding = std::find_if(out.begin(), out.end(), [](auto& t) { return t.tensor.name == "token_embd.weight"; });
    GgufTensor head = *embedding;
    head.tensor.name = "output.weight", head.again = true;
    out.push_back(head);
  }
  return out;
}

// The rule of transformers and of Crest.
std::vector<float> gguf_rope_factors(const ModelConfig& c) {
  const LayerConfig& layer = layer_with(c, false);
  const RopeScaling& s = layer.rope_scaling;
  if (c.position != PositionKind::rope || s.type != RopeScalingType::llama3 || s.factor == 1) return {};
  const auto dim = double(layer.rotary_dim ? layer.rotary_dim : c.head_dim);
  const auto original = double(s.original_context);
  std::vector<float> factors;
  for (int64_t i = 0; i < int64_t(dim) / 2; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(layer.rope_theta, 2 * double(i) / dim);
    const double turns = original / wavelength;
    const double ramp = std::clamp((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
    factors.push_back(float(1 / ((1 - ramp) / s.factor + ramp)));
  }
  return factors;
}

int64_t gguf_context(const ModelConfig& c, std::string* why) {
  const GgufArchitecture* a = gguf_architecture(c);
  int64_t context = c.context;
  auto shorten = [&](int64_t to, const char* part) {
    if (to >= context) return;
    context = to;
    if (why)
      *why = fmt::format(
          "llama.cpp has no {} for this architecture, so context_length is {} instead of {}: up to there "
          "it computes the same.",
          part, to, c.context);
  };
  shorten(c.cached_context(), "dynamic RoPE");
  for (int64_t i = 0; i < c.layers && !(a && a->layer_windows); ++i)
    if (const int64_t window = c.layer(i).window) shorten(window, "sliding window");
  return context;
}

void gguf_describe(const ModelConfig& c, GgufHeader& h) {
  const GgufArchitecture* a = gguf_architecture(c);
  if (!a) fail_internal("llama.cpp lacks the model", "gguf_describe");
  const std::string prefix = std::string(a->name) + ".";
  h.text("general.architecture", a->name);
  h.number(prefix + "vocab_size", c.vocab);
  h.number(prefix + "context_length", gguf_context(c));
  h.number(prefix + "embedding_length", c.width);
  h.number(prefix + "block_count", c.layers);
  h.number(prefix + "feed_forward_length", c.ff);
  h.number(prefix + "attention.head_count", c.heads);
  h.number(prefix + "attention.head_count_kv", c.kv_heads);
  h.number(prefix + "attention.key_length", c.head_dim);
  h.number(prefix + "attention.value_length", c.head_dim);
  h.real(prefix + (c.norm == NormKind::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
         c.norm_eps);
  if (c.position == PositionKind::rope) describe_rope(c, h, prefix);
  if (const int64_t window = c.widest_window(); window && a->layer_windows) {
    std::vector<bool> sliding;
    for (int64_t i = 0; i < c.layers; ++i) sliding.push_back(c.layer(i).window > 0);
    h.number(prefix + "attention.sliding_window", window);
    h.flags(prefix + "attention.sliding_window_pattern", sliding);
  }
  if (a->describe) a->describe(c, h, prefix);
}

}  // namespace crest
