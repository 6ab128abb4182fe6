#include "checkpoint/peft_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "checkpoint/adapter.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr const char* merge_in_peft = "Merge it in peft: model.merge_and_unload().save_pretrained(DIR).";
constexpr int64_t most_rank = 65536;
constexpr size_t most_steps = 20'000;  // of all patterns together: each name is matched against each

// null, false, "", [], {}, "none".
bool is_off(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value == "none" || value.get<std::string>().empty();
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

// The settings of other methods than LoRA: peft computes the layer, or the base, in another way.
constexpr const char* other_methods[] = {"use_dora",
                                         "lora_bias",
                                         "use_qalora",
                                         "use_bdlora",
                                         "bias",
                                         "modules_to_save",
                                         "layer_replication",
                                         "target_parameters",
                                         "trainable_token_indices",
                                         "arrow_config",
                                         "kasa_config",
                                         "velora_config",
                                         "monteclora_config",
                                         "alora_invocation_tokens"};

// These describe where and how the adapter was made, or how peft holds it. A saved adapter does not
// depend on them. fan_in_fan_out: A and B have one orientation, whatever the weight has.
constexpr const char* without_effect[] = {
    "auto_mapping", "base_model_name_or_path", "corda_config",   "ensure_weight_tying",
    "eva_config",   "fan_in_fan_out",          "inference_mode", "lora_ga_config",
    "loftq_config", "megatron_config",         "megatron_core",  "peft_type",
    "peft_version", "qalora_group_size",       "revision",       "runtime_config",
    "task_type"};

constexpr const char* read_here[] = {"r",
                                     "lora_alpha",
                                     "lora_dropout",
                                     "use_rslora",
                                     "rank_pattern",
                                     "alpha_pattern",
                                     "target_modules",
                                     "exclude_modules",
                                     "layers_to_transform",
                                     "layers_pattern",
                                     "init_lora_weights"};

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// As re.fullmatch("(.*\\.)?" + key, module): a dot of a key stands for any character.
bool ends_as_key(const std::string& module, const std::string& key) {
  if (key.size() > module.size()) return false;
  const size_t start = module.size() - key.size();
  for (size_t i = 0; i < key.size(); ++i)
    if (key[i] != '.' && key[i] != module[start + i]) return false;
  return start == 0 || module[start - 1] == '.';
}

bool ends_as(const std::string& module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

}  // namespace

PeftConfig::PeftConfig(const std::string& folder, const std::function<void(const std::string&)>& report)
    : where_(join_path(folder, adapter_config_file)) {
  json_ = parse_ordered_json_guarded(read_file(where_, 16 << 20), {.bytes = 16 << 20, .keys = 100'000}, where_);
  if (!json_.is_object()) fail("is not a JSON object", printable(where_));
  if (get("peft_type") != "LORA") refuse("peft_type", "Crest reads LORA.");
  refuse_other_methods();
  rank = int64_t(number(get("r"), "r", 1, most_rank));
  if (get("r").get<double>() != double(rank)) refuse("r", "It must be a whole number.");
  alpha = number(get("lora_alpha"), "lora_alpha", 1e-6, 1e6);
  if (!get("lora_dropout").is_null()) dropout = number(get("lora_dropout"), "lora_dropout", 0, 1);
  if (dropout == 1) refuse("lora_dropout", "It must be below 1.");
  root = get("use_rslora") == true;
  ranks_ = own_values("rank_pattern", 1, most_rank);
  alphas_ = own_values("alpha_pattern", 1e-6, 1e6);
  const Json target = get("target_modules");
  all_linear_ = target.is_string() && same_letters(target.get<std::string>(), "all-linear");
  if (!all_linear_) targets_ = names("target_modules");
  excluded_ = names("exclude_modules");
  read_layers();
  tell_unknown(report);
}

void PeftConfig::refuse(const char* key, const std::string& hint) const {
  fail(fmt::format("{} = {} is not supported", key, printable(get(key).dump(-1, ' ', true), 100)), printable(where_),
       hint);
}

void PeftConfig::refuse_other_methods() const {
  for (const char* key : other_methods)
    if (!is_off(get(key))) refuse(key, merge_in_peft);
  // Other methods change the base's weights when peft opens the adapter.
  const Json init = get("init_lora_weights");
  const auto keeps_base = {"gaussian", "orthogonal", "eva", "mica"};
  if (!init.is_null() && !init.is_boolean() &&
      std::none_of(keeps_base.begin(), keeps_base.end(), [&](const char* name) { return init == name; }))
    refuse("init_lora_weights", merge_in_peft);
}

void PeftConfig::tell_unknown(const std::function<void(const std::string&)>& report) const {
  std::vector<std::string> unknown;
  auto in = [](const auto& list, const std::string& key) {
    return std::any_of(std::begin(list), std::end(list), [&](const char* name) { return key == name; });
  };
  for (auto& [key, value] : json_.items())
    if (!is_off(value) && !in(other_methods, key) && !in(without_effect, key) && !in(read_here, key))
      unknown.push_back(printable(key, 60));
  if (unknown.size() > 5) unknown.resize(5), unknown.push_back("...");
  if (!unknown.empty() && report)
    report(fmt::format("{}: unknown settings are ignored: {}", printable(where_), join(unknown, ", ")));
}

double PeftConfig::number(const Json& value, const char* key, double low, double high) const {
  if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high))
    refuse(key, fmt::format("It must be a number from {} to {}.", low, high));
  return value.get<double>();
}

NamePattern PeftConfig::pattern(const std::string& text, const char* key) {
  NamePattern made(text, fmt::format("{}, {}", printable(where_), key));
  steps_ += made.steps();
  if (steps_ > most_steps) refuse(key, "Its patterns are too long together. Name the modules instead.");
  return made;
}

std::vector<std::string> PeftConfig::texts(const char* key) const {
  std::vector<std::string> list;
  for (auto& item : get(key)) {
    if (!item.is_string()) refuse(key, "It must be a list of texts.");
    list.push_back(item);
  }
  return list;
}

std::optional<PeftConfig::Names> PeftConfig::names(const char* key) {
  const Json value = get(key);
  if (value.is_null() || (key == std::string("exclude_modules") && is_off(value))) return {};
  Names names;
  if (value.is_string())
    names.pattern = pattern(value, key);
  else if (value.is_array())
    names.names = texts(key);
  else
    refuse(key, "It must be a text or a list of texts.");
  return names;
}

bool PeftConfig::Names::match(const std::string& module) const {
  if (pattern) return pattern->matches(module);
  return std::any_of(names.begin(), names.end(), [&](auto& name) { return ends_as(module, name); });
}

std::vector<PeftConfig::Own> PeftConfig::own_values(const char* key, double low, double high) {
  std::vector<Own> list;
  const Json given = get(key);
  if (is_off(given)) return list;
  if (!given.is_object()) refuse(key, "It must be an object.");
  for (auto& [name, value] : given.items()) {
    const bool plain = name.find_first_of("\\^$*+?{}[]()|") == std::string::npos;
    list.push_back({name, {}, number(value, key, low, high)});
    if (!plain) list.back().pattern = pattern("(.*\\.)?(" + name + ")", key);
  }
  return list;
}

void PeftConfig::read_layers() {
  const Json layers = get("layers_to_transform"), patterns = get("layers_pattern");
  auto index = [&](const Json& value) {
    return int64_t(number(value.is_number_integer() ? value : Json(), "layers_to_transform", 0, 1e9));
  };
  if (!layers.is_null() && get("target_modules").is_string())
    refuse("layers_to_transform", "peft refuses it next to a text in target_modules.");
  if (layers.is_array()) {
    for (auto& value : layers) {
      if (!layers_) layers_.emplace();
      layers_->push_back(index(value));
    }
  } else if (!layers.is_null()) {
    layers_ = {index(layers)};
  }
  if (is_off(patterns)) return;
  layers_pattern_ = patterns.is_string() ? std::vector<std::string>{patterns} : texts("layers_pattern");
  for (auto& name : layers_pattern_)
    if (name.find_first_of("\\^$*+?{}[]()|.") != std::string::npos)
      refuse("layers_pattern", "It must have names alone, such as layers.");
}

// The index is the first number behind a name ("layers_pattern"), or without one behind two names:
// "model.layers.3.mlp".
bool PeftConfig::in_layers(const std::string& module) const {
  if (!layers_) return true;
  const std::vector<std::string> parts = split(module, '.');
  auto found = [&](const std::string& pattern) -> std::optional<int64_t> {
    for (size_t i = pattern.empty() ? 2 : 1; i + 1 < parts.size(); ++i)
      if (is_number(parts[i]) && (pattern.empty() || parts[i - 1] == pattern)) return std::stoll(parts[i]);
    return {};
  };
  std::optional<int64_t> index;
  if (layers_pattern_.empty()) index = found("");
  for (size_t i = 0; i < layers_pattern_.size() && !index; ++i) index = found(layers_pattern_[i]);
  return index && std::find(layers_->begin(), layers_->end(), *index) != layers_->end();
}

std::string PeftConfig::base() const {
  const Json value = get("base_model_name_or_path");
  return value.is_string() ? value.get<std::string>() : "";
}

bool PeftConfig::targets(const std::string& module, bool head) const {
  if (excluded_ && excluded_->match(module)) return false;
  if (all_linear_) return !head;
  return !targets_ || (targets_->match(module) && in_layers(module));
}

static double own_value(const auto& list, const std::string& module, double otherwise) {
  for (auto& own : list)
    if (own.pattern ? own.pattern->matches(module) : ends_as_key(module, own.key)) return own.value;
  return otherwise;
}

int64_t PeftConfig::rank_of(const std::string& module) const {
  return int64_t(own_value(ranks_, module, double(rank)));
}

double PeftConfig::factor_of(const std::string& module) const {
  const auto own_rank = double(rank_of(module));
  return own_value(alphas_, module, alpha) / (root ? std::sqrt(own_rank) : own_rank);
}

}  // namespace crest
