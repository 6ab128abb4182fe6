// Adapters for peft, and models with their adapters merged for transformers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/adapter.h"
#include "core/dtype.h"
#include "core/io.h"
#include "interop/export.h"
#include "model/weights_map.h"

namespace crest {

namespace {

using Json = nlohmann::ordered_json;

void write_text(ExportJob& job, const char* name, const std::string& text) {
  write_file_synced(join_path(job.folder, name), text);
  job.files.push_back(name);
}

// The adapter of a linear layer of transformers. Rows of one layer of Crest share its A. Layers
// joined in one have their A on top of each other and their B side by side.
class ModuleAdapter {
 public:
  ModuleAdapter(const AdapterModule& module, const ModelConfig& c, const AdapterWeights& weights) {
    for (auto& layer : module.layers()) {
      auto a = weights.find(layer + lora_a);
      if (a == weights.end()) continue;
      a_.insert(a_.end(), a->second.begin(), a->second.end());
      const int64_t own = c.lora.rank_of(role_in_layer(layer));
      columns_ = int64_t(a->second.size()) / own;
      layers_.push_back({layer, rank_, own});
      rank_ += own;
    }
    for (auto& part : module.parts) rows_ += part.rows;
    b_.assign(size_t(rows_ * rank_), 0.0f);
    int64_t row = 0;
    for (auto& part : module.parts) {
      for (auto& layer : layers_) {
        if (layer.name != layer_of_weight(part.parameter)) continue;
        const float* b = weights.at(layer.name + lora_b).data();
        for (int64_t r = 0; r < part.rows; ++r)
          std::memcpy(&b_[size_t((row + r) * rank_ + layer.first)], b + (part.row + r) * layer.rank,
                      size_t(layer.rank) * sizeof(float));
      }
      row += part.rows;
    }
  }
  int64_t rank() const { return rank_; }
  TensorSource a(const std::string& name) const { return {{name, DType::f32, {rank_, columns_}}, a_.data()}; }
  TensorSource b(const std::string& name) const { return {{name, DType::f32, {rows_, rank_}}, b_.data()}; }

 private:
  struct Layer {
    std::string name;
    int64_t first, rank;
  };
  std::vector<Layer> layers_;
  std::vector<float> a_, b_;
  int64_t rank_ = 0, rows_ = 0, columns_ = 0;
};

// "self_attn.q_proj" of model.layers.3.self_attn.q_proj, "lm_head".
std::string module_suffix(const std::string& module) {
  size_t start = 0;
  for (size_t dot; (dot = module.find('.', start)) != std::string::npos;) {
    const std::string piece = module.substr(start, dot - start);
    start = dot + 1;
    if (!piece.empty() && piece.find_first_not_of("0123456789") == std::string::npos) return module.substr(start);
  }
  return module;
}

}  // namespace

void write_peft(ExportJob& job) {
  const ModelConfig& c = job.model.config;
  const AdapterWeights weights = read_adapter(job.model);
  const LoraConfig& lora = c.lora;
  const double nominal = lora.factor();
  Json targets = Json::array(), ranks = Json::object(), alphas = Json::object();
  std::vector<ModuleAdapter> adapters;
  std::vector<std::string> names;
  for (auto& module : adapter_modules(c)) {
    ModuleAdapter adapter(module, c, weights);
    if (adapter.rank() == 0) continue;
    const std::string suffix = module_suffix(module.name);
    if (std::find(targets.begin(), targets.end(), suffix) == targets.end()) {
      targets.push_back(suffix);
      if (adapter.rank() != lora.rank) {
        const auto rank = double(adapter.rank());
        ranks[suffix] = adapter.rank();
        alphas[suffix] = nominal * (lora.rank_stabilized ? std::sqrt(rank) : rank);
      }
    }
    names.push_back("base_model.model." + module.name);
    adapters.push_back(std::move(adapter));
  }
  std::vector<TensorSource> tensors;
  for (size_t i = 0; i < adapters.size(); ++i) {
    tensors.push_back(adapters[i].a(names[i] + ".lora_A.weight"));
    tensors.push_back(adapters[i].b(names[i] + ".lora_B.weight"));
  }
  write_safetensors(join_path(job.folder, adapter_weights_file), tensors);
  job.files.push_back(adapter_weights_file);
  const bool transposed = [&] {
    for (auto& t : canonical_tensors(c))
      if (t.transposed) return true;
    return false;
  }();
  const Json config = {{"alpha_pattern", alphas},
                       {"base_model_name_or_path", job.model.base_path},
                       {"bias", "none"},
                       {"fan_in_fan_out", transposed},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"lora_alpha", lora.alpha == 0 ? 2 * double(lora.rank) : lora.alpha},
                       {"lora_dropout", lora.dropout},
                       {"peft_type", "LORA"},
                       {"r", lora.rank},
                       {"rank_pattern", ranks},
                       {"target_modules", targets},
                       {"task_type", "CAUSAL_LM"},
                       {"use_dora", false},
                       {"use_rslora", lora.rank_stabilized}};
  write_text(job, adapter_config_file, config.dump(2) + "\n");
  if (!family_of(c))
    job.notes.push_back("transformers has no architecture for this model: only Crest opens the adapter.");
  job.advance(uint64_t(trained_parameter_count(c)));
}

static std::set<std::string> parameters_in(const CanonicalTensor& t) {
  std::set<std::string> names;
  for (auto& part : t.parts) names.insert(part.parameter);
  return names;
}

void write_merged(ExportJob& job) {
  std::vector<TensorSource> tensors;
  // Several tensors may be rows of one parameter. It stays in memory until the last one is written.
  std::map<std::string, std::vector<float>> rows;
  std::map<std::string, int> uses;
  for (auto& t : canonical_tensors(job.config)) {
    for (auto& name : parameters_in(t)) ++uses[name];
    TensorSource source{{t.name, job.dtype, t.shape}};
    source.make = [&job, &rows, &uses, t](void* to) {
      for (auto& name : parameters_in(t))
        if (auto [it, added] = rows.try_emplace(name); added) job.weights.read(name, it->second);
      std::vector<float> values(size_t(t.elements()));
      gather(
          t, [&](const TensorPart& part) { return rows.at(part.parameter).data() + part.row * t.columns; },
          values.data());
      for (auto& name : parameters_in(t))
        if (--uses[name] == 0) rows.erase(name);
      if (job.dtype == DType::bf16)
        for (size_t i = 0; i < values.size(); ++i) static_cast<bfloat16*>(to)[i] = to_bfloat16(values[i]);
      else
        std::memcpy(to, values.data(), values.size() * sizeof(float));
      job.advance(values.size());
    };
    tensors.push_back(std::move(source));
  }
  write_safetensors(join_path(job.folder, "model.safetensors"), tensors);
  job.files.push_back("model.safetensors");
  const LoadedModel& m = job.model;
  for (auto& [name, text] : model_files(job.config, {m.tokenizer.get(), "", m.text}))
    write_text(job, name.c_str(), text);
}

}  // namespace crest
