// adapter_config.json of peft. It describes the adapters in adapter_model.safetensors.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/name_pattern.h"

namespace crest {

// Every setting of peft 0.21 is applied, has no effect on a saved adapter, or is refused.
class PeftConfig {
 public:
  // Throws for a damaged file, and for adapters of other methods. report: gets a line about unknown
  // settings.
  PeftConfig(const std::string& folder, const std::function<void(const std::string&)>& report);

  // base_model_name_or_path; "": none.
  std::string base() const;
  // Whether peft gives a linear layer ("model.layers.0.self_attn.q_proj") an adapter. head: it is
  // the model's head, and all-linear leaves it out.
  bool targets(const std::string& module, bool head) const;
  // The rank of its adapter, and the factor of B A.
  int64_t rank_of(const std::string& module) const;
  double factor_of(const std::string& module) const;

  int64_t rank = 0;
  double alpha = 0, dropout = 0;
  bool root = false;  // use_rslora

 private:
  using Json = nlohmann::ordered_json;
  // A text is a regular expression for the whole name, a list has names or their ends.
  struct Names {
    std::vector<std::string> names;
    std::optional<NamePattern> pattern;
    bool match(const std::string& module) const;
  };
  // Of rank_pattern and alpha_pattern. The first matching key counts.
  struct Own {
    std::string key;
    std::optional<NamePattern> pattern;  // none: the key has only dots
    double value = 0;
  };

  Json get(const char* key) const { return json_.value(key, Json()); }
  [[noreturn]] void refuse(const char* key, const std::string& hint) const;
  void refuse_other_methods() const;
  void tell_unknown(const std::function<void(const std::string&)>& report) const;
  double number(const Json& value, const char* key, double low, double high) const;
  NamePattern pattern(const std::string& text, const char* key);
  std::optional<Names> names(const char* key);
  std::vector<std::string> texts(const char* key) const;
  std::vector<Own> own_values(const char* key, double low, double high);
  void read_layers();
  bool in_layers(const std::string& module) const;

  const std::string where_;
  Json json_;
  size_t steps_ = 0;  // of all patterns
  bool all_linear_ = false;
  std::optional<Names> targets_, excluded_;
  std::optional<std::vector<int64_t>> layers_;  // layers_to_transform
  std::vector<std::string> layers_pattern_;
  std::vector<Own> ranks_, alphas_;
};

}  // namespace crest
