#include "train/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <variant>

#include "core/error.h"
#include "core/text.h"
#include "core/toml_string.h"
#include "data/mixture.h"
#include "train/training_settings.h"

namespace crest {

namespace {

std::string toml_value(const SettingValue& value, const std::string& flag) {
  if (auto* text = std::get_if<std::string>(&value)) return toml_string(check_utf8(*text, flag));
  auto* list = std::get_if<std::vector<std::string>>(&value);
  if (!list) return text_of(value);
  std::vector<std::string> parts;
  for (auto& element : *list) parts.push_back(toml_string(check_utf8(element, flag)));
  return "[" + join(parts, ", ") + "]";
}

std::string toml_path(const std::string& path, const std::string& flag) {
  return toml_string(check_utf8(std::filesystem::absolute(path).string(), flag));
}

// Folders as absolute paths.
std::string toml_data(const TrainOptions& used) {
  if (used.streams()) return toml_string(used.data[0]);
  std::vector<std::string> values;
  for (DataSource source : parse_data_sources(used.data)) {
    source.folder = std::filesystem::absolute(source.folder).string();
    values.push_back(toml_string(check_utf8(data_text(source), "--data")));
  }
  return values.size() == 1 ? values[0] : "[" + join(values, ", ") + "]";
}

// Unset settings (steps, --init) have empty text or a number below their range.
bool is_unset(const Settings::Row& row) {
  SettingValue value = row.value();
  auto* list = std::get_if<std::vector<std::string>>(&value);
  auto* whole = std::get_if<int64_t>(&value);
  auto* truth = std::get_if<bool>(&value);
  return text_of(value).empty() || (list && list->empty()) || (whole && double(*whole) < row.setting->min) ||
         (truth && !*truth);
}

// The file's keys in order.
class ConfigKeys {
 public:
  void add(const std::string& key, const std::string& toml) { keys_.emplace_back(key, toml); }
  bool has(const std::string& key) const {
    return std::any_of(keys_.begin(), keys_.end(), [&](auto& k) { return k.first == key; });
  }
  std::string text() const {
    std::string text;
    for (auto& [key, value] : keys_) text += fmt::format("{} = {}\n", key, value);
    return text;
  }

 private:
  std::vector<std::pair<std::string, std::string>> keys_;
};

void add_settings_in_use(ConfigKeys& keys, const TrainRequest& request, const TrainOptions& used) {
  std::vector<std::string> derived;
  for (auto& settings : {settings_of(used.recipe), settings_of(used)})
    for (auto& row : settings.rows()) {
      const std::string key = row.setting->key();
      if (is_unset(row) || keys.has(key) || key == "max_seconds" || key == "epochs") continue;
      keys.add(key, toml_value(row.value(), row.setting->flag()));
      auto given = request.training.find(row.setting->name);
      bool was_derived = std::find(request.derived.begin(), request.derived.end(), key) != request.derived.end();
      if (!follows(row.setting->name).empty() &&
          (given == request.training.end() || given->second.empty() || was_derived))
        derived.push_back(toml_string(key));
    }
  if (!derived.empty()) keys.add("derived", "[" + join(derived, ", ") + "]");
}

// Flags of the device, the ranks and the store.
void add_other_flags(ConfigKeys& keys, const FlagLayer& flags) {
  // Tokenizer and template are in the data. `ranks` states a mesh of data ranks.
  static const std::vector<std::string> not_kept = {"help",   "help-all",  "config",        "resume",     "overwrite",
                                                    "out",    "json",      "quiet",         "stop-after", "max-seconds",
                                                    "epochs", "tokenizer", "chat-template", "mesh"};
  for (auto& argument : flags) {
    const std::string flag = flag_of(argument);
    std::string key = flag.substr(2);
    if (std::find(not_kept.begin(), not_kept.end(), key) != not_kept.end()) continue;
    std::replace(key.begin(), key.end(), '-', '_');
    if (keys.has(key)) continue;
    std::vector<std::string> values;
    for (auto& value : values_in(flags, flag)) values.push_back(toml_string(check_utf8(value, flag)));
    keys.add(key, values.size() == 1 ? values[0] : "[" + join(values, ", ") + "]");
  }
}

}  // namespace

const std::string& check_utf8(const std::string& text, const std::string& flag) {
  if (!is_utf8(text))
    fail_usage(fmt::format("'{}' is not UTF-8, so the run's config.toml cannot store it", printable(text, 1000)), flag,
               "Rename the file or folder to a UTF-8 name.");
  return text;
}

std::string config_text(const TrainRequest& request, const TrainOptions& used) {
  const ModelConfig* found = find_preset(used.recipe.model_source);
  const std::string preset = found ? found->name : "";
  ConfigKeys keys;
  keys.add("data", toml_data(used));
  keys.add("model", preset.empty() ? toml_path(used.out + "/model.toml", "--out") : toml_string(preset));
  if (used.steps <= 0) keys.add("max_seconds", text_of(used.max_seconds));
  if (!used.init.empty()) keys.add("init", toml_path(used.init, "--init"));
  add_settings_in_use(keys, request, used);
  if (auto stores = values_in(request.flags, "--store"); !stores.empty())
    keys.add("store", toml_path(stores.back(), "--store"));
  for (const auto& [flag, value] : request.device.libraries.flags())
    keys.add(flag.substr(2), toml_string(check_utf8(value, flag)));
  add_other_flags(keys, request.flags);
  return fmt::format("# {}, {}\n", printable(used.device.name), format_number_of(used.device.threads, "thread")) +
         keys.text();
}

}  // namespace crest
