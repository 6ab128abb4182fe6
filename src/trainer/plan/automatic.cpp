#include "plan/automatic.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "passes/fp8.h"

namespace crest {

// Repeating norms and activations (activations inside their gradient's kernel) costs 1% to 2% of a
// step and saves a quarter to a third of its activations (docs/results/performance.md).
std::string auto_recompute(const std::string& fusion) { return fusion == "on" ? "pointwise" : "none"; }

// The default chunk of the loss: 32 MiB of logits, but at least 256 tokens (512 in half precision),
// because every chunk reads the head's weight and adds to its gradient. A GPU needs more rows: 8192
// cost no measurable time (H200, gpt2-124M: docs/results/performance.md), 4096 up to 2%.
std::string auto_loss_chunk(const std::string& precision, int64_t vocab, const std::string& device_kind) {
  if (device_kind != "cpu") return "8192";
  int64_t size = precision == "fp32" ? 4 : 2;
  return std::to_string(std::max<int64_t>(1024 / size, (int64_t(32) << 20) / (size * std::max<int64_t>(1, vocab))));
}

bool may_shard(const Recipe& r) {
  if (r.copies() == 1 || r.fusion != "on") return false;
  for (const char* name : {"adamw", "adamw-8bit", "adamw-fp8", "sgd", "lion", "muon"})
    if (r.optimizer == name) return true;
  return r.optimizer.starts_with("adamw-bf16");
}

std::vector<std::string> shard_levels(const Recipe& r) {
  if (!may_shard(r)) return {};
  if (has_start(r)) return {"optimizer", "gradients"};  // its update needs whole weights to quantize
  return {"optimizer", "gradients", "weights"};
}

// On two H100 it was faster than every other way to sum, for four recipes
// (docs/concepts/parallelism.md). Muon was not among them.
bool auto_shard(const Recipe& r, const std::string& device_kind) {
  if (device_kind != "cuda" || r.ranks == 1) return false;
  for (const char* chosen : {"shard", "reduce", "bucket", "comm-dtype"})
    if (r.pass_settings.count(chosen)) return false;
  return may_shard(r) && r.optimizer != "muon";
}

bool has_usual_fp8_weights(const Recipe& r) {
  auto weights = r.pass_settings.find("fp8-weights");
  return weights != r.pass_settings.end() && weights->second == auto_fp8_weights(r.grad_accumulation);
}

// On two H200 it saved 7% and 9% of a step (docs/results/h200). More ranks were not measured.
static bool overlaps_usually(const Mesh& mesh, int64_t processes, const std::string& device_kind) {
  return device_kind == "cuda" && processes > 1 && mesh.size(Axis::tensor) == 2 && mesh.size(Axis::pipeline) == 1;
}

bool auto_tensor_overlap(const Recipe& r, const std::string& device_kind) {
  return overlaps_usually(r.layout(), r.ranks, device_kind) && !r.pass_settings.count("tensor-overlap");
}

// The default value for a recorded mesh, which may be from anywhere.
static const char* usual_tensor_overlap(const std::string& mesh, int64_t processes, const std::string& device_kind) {
  try {
    return overlaps_usually(parse_mesh(mesh), processes, device_kind) ? "rows" : "off";
  } catch (const Error&) {
    return "off";
  }
}

std::vector<std::string> automatic_settings(const nlohmann::ordered_json& recipe,
                                            const nlohmann::ordered_json& device) {
  auto text = [](const nlohmann::ordered_json& json, const char* key) {
    auto it = json.find(key);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  std::vector<std::string> keys;
  if (std::string fusion = text(recipe, "fusion");
      !fusion.empty() && text(recipe, "recompute") == auto_recompute(fusion))
    keys.emplace_back("recompute");
  auto vocab = recipe.find("vocab");
  if (vocab != recipe.end() && vocab->is_number_integer() &&
      text(recipe, "loss_chunk") ==
          auto_loss_chunk(text(recipe, "precision"), vocab->get<int64_t>(), text(device, "kind")))
    keys.emplace_back("loss_chunk");
  auto micro_steps = recipe.find("grad_accumulation");
  if (text(recipe, "precision") == "fp8" && micro_steps != recipe.end() && micro_steps->is_number_integer() &&
      text(recipe, "fp8_weights") == auto_fp8_weights(micro_steps->get<int64_t>()))
    keys.emplace_back("fp8_weights");
  // Records from before the default lack the key.
  auto ranks = recipe.find("ranks");
  const int64_t processes = ranks != recipe.end() && ranks->is_number_integer() ? ranks->get<int64_t>() : 1;
  const std::string overlap = text(recipe, "tensor_overlap");
  if (overlap.empty() || overlap == usual_tensor_overlap(text(recipe, "mesh"), processes, text(device, "kind")))
    keys.emplace_back("tensor_overlap");
  return keys;
}

}  // namespace crest
