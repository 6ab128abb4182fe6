// The model family that Crest builds. One configuration covers GPT-2 and Llama shapes, and mixtures
// of them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace crest {

enum class NormKind { layer, rms };
enum class PositionKind { learned, rope };
enum class ActivationKind { gelu, swiglu, gelu_erf };  // gelu: its tanh form

std::string name(ActivationKind activation);  // as model files write it

// Llama 3's rescaling of rotary frequencies (factor 1 = plain RoPE).
struct RopeScaling {
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  std::string name = "custom";
  int64_t vocab = 50257;   // without padding (padding is a pass)
  int64_t context = 1024;  // longest sequence
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t kv_heads = 12;  // < heads: grouped-query attention
  int64_t width = 768;
  int64_t head_dim = 64;
  int64_t ff = 3072;  // inner width of the MLP
  NormKind norm = NormKind::layer;
  PositionKind position = PositionKind::learned;
  ActivationKind activation = ActivationKind::gelu;
  bool bias = true;
  bool tied = true;  // output head shares the token embedding
  double dropout = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool operator==(const ModelConfig&) const = default;

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  // Number of parameters (tied ones count once), and of those in matmuls (PaLM's N: with the head,
  // without embeddings).
  int64_t parameters() const;
  int64_t matmul_parameters() const;
  // 6N + 12 L d T (PaLM, appendix B): model FLOPs per trained token, without a causal discount and
  // without vocabulary padding.
  double flops_per_token(int64_t seq) const;
};

// Throws a usage error that names the field (heads that do not divide the width, sizes out of
// range).
void validate(const ModelConfig& config, const std::string& where);

const std::vector<std::string>& preset_names();
// Aliases of presets: {"gpt2", "gpt2-124M"}, ...
const std::map<std::string, std::string>& preset_aliases();
// The preset with this name or alias; "" if there is none.
std::string preset_called(const std::string& name);
// A preset's name, a TOML file, or a folder with a Hugging Face config.json (or the file itself).
ModelConfig load_model_config(const std::string& name_or_path);
// TOML text that load_model_config reads back.
std::string to_toml(const ModelConfig& config);

}  // namespace crest
