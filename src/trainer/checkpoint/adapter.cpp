#include "checkpoint/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/peft_config.h"
#include "core/error.h"
#include "core/io.h"
#include "core/shell_word.h"
#include "core/text.h"

namespace crest {

std::string layer_of_weight(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

std::vector<std::string> AdapterModule::layers() const {
  std::vector<std::string> names;
  for (auto& part : parts)
    if (std::string name = layer_of_weight(part.parameter); std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  return names;
}

namespace {

// Whether a linear layer can have an adapter: "h.0.attn.qkv".
bool takes_adapter(const std::string& layer) {
  const auto& known = lora_targets();
  return std::find(known.begin(), known.end(), role_in_layer(layer)) != known.end();
}

}  // namespace

std::vector<AdapterModule> adapter_modules(const ModelConfig& config) {
  std::vector<AdapterModule> modules;
  for (auto& t : canonical_tensors(config)) {
    if (t.shape.size() != 2 || !t.name.ends_with(".weight")) continue;
    if (!takes_adapter(layer_of_weight(t.parts[0].parameter))) continue;
    modules.push_back({t.name.substr(0, t.name.size() - std::strlen(".weight")), t.parts});
  }
  return modules;
}

[[noreturn]] static void fail_adapter_as_base(const std::string& base) {
  fail("the base of an adapter is an adapter itself", printable(base),
       fmt::format("Merge it first: crest export {} --to merged --out DIR. Then give that folder with --base.",
                   shell_path(base)));
}

LoadedModel open_base(const LoadedModel& adapter) {
  const std::string where = printable(adapter.base_path);
  if (adapter.base_path.empty() || !path_exists(adapter.base_path))
    fail(fmt::format("the base model of the adapter {} is not there", printable(adapter.weights_path)), where,
         "Give its folder with --base DIR.");
  LoadedModel base = open_model(adapter.base_path);
  if (base.config.lora.rank) fail_adapter_as_base(adapter.base_path);
  auto shape = [](ModelConfig c) {
    c.name.clear(), c.family.clear(), c.dropout = 0, c.context = 0, c.lora = {};
    return to_toml(c);
  };
  if (shape(base.config) != shape(adapter.config))
    fail(fmt::format("this model has other sizes than the base of the adapter {}", printable(adapter.weights_path)),
         where, "Give the folder of the adapter's base with --base DIR.");
  if (!adapter.base_hash.empty() && weights_hash(base) != adapter.base_hash)
    fail(fmt::format("these are not the weights that the adapter {} was trained on", printable(adapter.weights_path)),
         where, "Restore them, or give the folder of the adapter's base with --base DIR.");
  return base;
}

bool is_peft_folder(const std::string& path) {
  return is_directory(path) && path_exists(join_path(path, adapter_config_file));
}

namespace {

// An adapter of a module, as peft stores it.
struct PeftAdapter {
  std::vector<float> a, b;
  int64_t rank = 0, columns = 0, rows = 0;
  double factor = 0;
};

class PeftReader {
 public:
  PeftReader(const std::string& folder, const PeftConfig& config, const ModelConfig& base, const std::string& weights)
      : config_(config), where_(join_path(folder, adapter_weights_file)), base_(WeightsFolder::open(weights)) {
    for (auto& p : parameters_of(base)) shapes_[p.name] = p.shape;
    for (auto& module : adapter_modules(base)) modules_[module.name] = module;
    read();
  }

  // Sets the adapters' settings and weights.
  void convert(ModelConfig& model, AdapterWeights& weights) const {
    // By layer of Crest: its modules in their order, and their rows there.
    std::map<std::string, std::vector<const PeftAdapter*>> layers;
    for (auto& [name, adapter] : adapters_)
      for (auto& layer : modules_.at(name).layers()) layers[layer].push_back(&adapter);
    std::map<std::string, int64_t> ranks;  // by layer
    LoraConfig& lora = model.lora;
    lora = {}, lora.rank = 1;
    std::vector<std::string> roles;
    for (auto& [layer, list] : layers) {
      const bool one = shares_a(list);
      int64_t rank = 0;
      for (auto* adapter : list) rank = one ? adapter->rank : rank + adapter->rank;
      const std::string role(role_in_layer(layer));
      int64_t& most = role == "attn.qkv" ? lora.qkv_rank : lora.rank;
      most = std::max(most, rank);
      if (std::find(roles.begin(), roles.end(), role) == roles.end()) roles.push_back(role);
    }
    if (roles == std::vector<std::string>{"attn.qkv"}) lora.rank = lora.qkv_rank;
    if (lora.qkv_rank == lora.rank) lora.qkv_rank = 0;
    lora.targets = targets_text(model, roles);
    const bool same = lora.rank == config_.rank;
    const double factor = config_.alpha / (config_.root ? std::sqrt(double(config_.rank)) : double(config_.rank));
    lora.rank_stabilized = config_.root && same;
    lora.alpha = same ? config_.alpha : factor * double(lora.rank);
    lora.dropout = config_.dropout;
    validate(model, printable(where_));  // before memory is taken
    for (auto& p : parameters_of(model))
      if (is_adapter(p)) weights[p.name].assign(size_t(p.shape.numel()), 0.0f);
    for (auto& [layer, list] : layers) fill(layer, list, model, weights);
  }

 private:
  static bool shares_a(const std::vector<const PeftAdapter*>& list) {
    return std::all_of(list.begin(), list.end(), [&](auto* x) { return x->a == list[0]->a; });
  }

  static std::string targets_text(const ModelConfig& model, std::vector<std::string> roles) {
    using Names = std::vector<std::string>;
    const auto mlp = gated(model.activation) ? Names{"mlp.gate", "mlp.up", "mlp.proj"} : Names{"mlp.fc", "mlp.proj"};
    Names text;
    const auto shorten = [&](const char* name, const Names& group) {
      const auto is_in = [](const Names& list) {
        return [&list](const std::string& role) { return std::find(list.begin(), list.end(), role) != list.end(); };
      };
      if (!std::all_of(group.begin(), group.end(), is_in(roles))) return;
      text.push_back(name);
      std::erase_if(roles, is_in(group));
    };
    shorten("attention", {"attn.qkv", "attn.proj"});
    shorten("mlp", mlp);
    std::sort(roles.begin(), roles.end());
    text.insert(text.end(), roles.begin(), roles.end());
    return join(text, ",");
  }

  void read() {
    const SafetensorsFile file = SafetensorsFile::open(where_);
    for (size_t i = 0; i < file.tensors().size(); ++i) {
      const TensorEntry& t = file.tensors()[i];
      const std::string prefix = "base_model.model.", &name = t.spec.name;
      if (name.starts_with(prefix) && name.find(".lora_") == std::string::npos) {
        require_as_in_base(file, i, name.substr(prefix.size()));
        continue;
      }
      const bool is_a = name.ends_with(".lora_A.weight");
      if (!name.starts_with(prefix) || (!is_a && !name.ends_with(".lora_B.weight")))
        refuse(t, "is not of a LoRA of linear layers",
               "Merge it in peft: model.merge_and_unload().save_pretrained(DIR).");
      const std::string module =
          name.substr(prefix.size(), name.size() - prefix.size() - std::strlen(".lora_A.weight"));
      auto found = modules_.find(module);
      if (found == modules_.end())
        refuse(t, "belongs to no linear layer of the base model", "Give the folder of its base with --base DIR.");
      if (!t.readable || !is_float(t.spec.dtype) || t.spec.shape.size() != 2)
        refuse(t, "is not a matrix of floats", "Save the adapter again in fp32, bf16 or fp16.");
      if (!config_.targets(module, found->second.parts[0].parameter == "lm_head.weight"))
        refuse(t, "belongs to a layer without an adapter, by target_modules, exclude_modules and layers_to_transform",
               "Save the adapter again: model.save_pretrained(DIR).");
      PeftAdapter& adapter = adapters_[module];
      const int64_t rows = t.spec.shape[0], columns = t.spec.shape[1], rank = is_a ? rows : columns;
      const Shape& weight = shapes_.at(found->second.parts[0].parameter);
      int64_t out = 0;
      for (auto& part : found->second.parts) out += part.rows;
      if (rank < 1 || (adapter.rank && adapter.rank != rank) || (is_a ? columns != weight[1] : rows != out))
        refuse(t, "does not fit this layer of the base model", "Give the folder of its base with --base DIR.");
      adapter.rank = rank, adapter.rows = out, adapter.columns = weight[1];
      std::vector<char> bytes(t.bytes);
      file.read(i, bytes.data(), bytes.size());
      auto& to = is_a ? adapter.a : adapter.b;
      to.resize(size_t(rows * columns));
      CanonicalTensor plain;
      plain.name = name, plain.shape = t.spec.shape, plain.columns = columns, plain.parts = {{name, 0, rows}};
      scatter(plain, bytes.data(), t.spec.dtype, to.data());
    }
    for (auto& [module, adapter] : adapters_) {
      if (adapter.a.empty() || adapter.b.empty())
        fail(fmt::format("the adapter of {} lacks lora_{}", printable(module), adapter.a.empty() ? "A" : "B"),
             printable(where_), "Save the adapter again: model.save_pretrained(DIR).");
      if (const int64_t rank = config_.rank_of(module); rank != adapter.rank)
        fail(fmt::format("the adapter of {} has rank {}, but {} says {}", printable(module), adapter.rank,
                         adapter_config_file, rank),
             printable(where_), "Save the adapter again: model.save_pretrained(DIR).");
      adapter.factor = config_.factor_of(module);
    }
    if (adapters_.empty()) fail("has no adapters", printable(where_));
  }
  // peft copies embeddings and heads of the base if it adapts them.
  void require_as_in_base(const SafetensorsFile& file, size_t index, std::string name) const {
    const TensorEntry& t = file.tensors()[index];
    const std::string copy = ".base_layer";
    if (const size_t at = name.find(copy); at != std::string::npos) name.erase(at, copy.size());
    const int64_t found = base_.find(name);
    std::vector<char> own(t.bytes), in_base(found < 0 ? 0 : size_t(byte_count(base_.tensors()[size_t(found)].spec)));
    if (t.readable && in_base.size() == own.size() && t.spec.dtype == base_.tensors()[size_t(found)].spec.dtype) {
      file.read(index, own.data(), own.size());
      base_.read(size_t(found), in_base.data(), in_base.size());
      if (own == in_base) return;
    }
    refuse(t, "is a weight trained without LoRA, or another one than in the base model",
           "Merge it in peft: model.merge_and_unload().save_pretrained(DIR).");
  }
  [[noreturn]] void refuse(const TensorEntry& t, const char* why, const char* hint) const {
    fail(fmt::format("tensor {} {}", printable(t.spec.name), why), printable(where_), hint);
  }

  void fill(const std::string& layer, const std::vector<const PeftAdapter*>& list, const ModelConfig& model,
            AdapterWeights& weights) const {
    std::vector<float>&a = weights.at(layer + lora_a), &b = weights.at(layer + lora_b);
    const int64_t rank = model.lora.rank_of(role_in_layer(layer));
    const bool one = shares_a(list);
    int64_t first = 0;  // rows of A, columns of B
    for (auto& [name, adapter] : adapters_) {
      const AdapterModule& module = modules_.at(name);
      if (std::find(list.begin(), list.end(), &adapter) == list.end()) continue;
      std::copy(adapter.a.begin(), adapter.a.end(), a.begin() + first * adapter.columns);
      const double factor = adapter.factor / model.lora.factor();
      int64_t row = 0;
      for (auto& part : module.parts) {
        if (layer_of_weight(part.parameter) == layer)
          for (int64_t r = 0; r < part.rows; ++r)
            for (int64_t k = 0; k < adapter.rank; ++k) {
              const float x = adapter.b[size_t((row + r) * adapter.rank + k)];
              b[size_t((part.row + r) * rank + first + k)] = factor == 1 ? x : float(double(x) * factor);
            }
        row += part.rows;
      }
      if (!one) first += adapter.rank;
    }
  }

  const PeftConfig& config_;
  const std::string where_;
  const WeightsFolder base_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, AdapterModule> modules_;
  std::map<std::string, PeftAdapter> adapters_;  // by module
};

}  // namespace

LoadedModel open_peft(const std::string& path, const std::string& given,
                      const std::function<void(const std::string&)>& report) {
  const PeftConfig config(path, report);
  const std::string base = given.empty() ? config.base() : given;
  if (base.empty() || !path_exists(base))
    fail(base.empty() ? "the adapter does not name its base model"
                      : fmt::format("the base model {} of the adapter is not a folder here", printable(base)),
         printable(join_path(path, adapter_config_file)), "Give its folder with --base DIR.");
  // Not opened: it may name itself, or this adapter.
  if (is_peft_folder(base)) fail_adapter_as_base(base);
  LoadedModel model = open_model(base, report);
  if (model.config.lora.rank) fail_adapter_as_base(base);
  model.base_path = model.weights_path;
  model.weights_path = path, model.checkpoint.reset(), model.step = -1;
  AdapterWeights weights;
  PeftReader(path, config, model.config, model.base_path).convert(model.config, weights);
  model.adapter = std::make_shared<const AdapterWeights>(std::move(weights));
  return model;
}

AdapterWeights read_adapter(const LoadedModel& model) {
  if (model.adapter) return *model.adapter;
  AdapterWeights weights;
  std::vector<TensorTarget> targets;
  for (auto& t : saved_tensors(model.config)) {
    std::vector<float>& values = weights[t.name];
    values.resize(size_t(t.elements()));
    targets.push_back({{t.name, DType::f32, t.shape}, values.data(), nullptr});
  }
  model.checkpoint->load_weights(targets);
  return weights;
}

void add_adapter(float* w, const float* a, const float* b, int64_t rows, int64_t columns, int64_t rank, double factor) {
#pragma omp parallel for schedule(static) if (rows * columns > (1 << 14))
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<double> sum(size_t(columns), 0.0);
    for (int64_t k = 0; k < rank; ++k)
      for (int64_t j = 0; j < columns; ++j) sum[size_t(j)] += double(b[i * rank + k]) * double(a[k * columns + j]);
    for (int64_t j = 0; j < columns; ++j)
      w[i * columns + j] = float(double(w[i * columns + j]) + factor * sum[size_t(j)]);
  }
}

}  // namespace crest
